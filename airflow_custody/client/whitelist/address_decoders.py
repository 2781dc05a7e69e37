"""
Decoders of addresses: each returns an address's prefix, which tells its network, or raises ``ValueError``.

They are those of bip-utils, which the extra ``addresses`` brings. It is imported with the first address, which takes
0.15 to 0.6 seconds and 24 MB. Its decoders for Stellar and Algorand refuse accounts that are no point of the curve, as
those of contracts and of several signers are: of these, and of what it lacks, the checksum is compared here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable
from contextlib import suppress

Decoder = Callable[[str], str]

_CASHADDR_PREFIXES = ("bitcoincash", "bchtest", "bchreg")
_MAX_SEGWIT_LENGTH = 90


class UncheckedForm(Exception):
    """Raised when an address is intact, but of a form that may be another chain's, or is not in use yet."""


def accept(address: str) -> str:
    """Accept an address that has no checksum."""
    return ""


def refuse(address: str) -> str:
    """Refuse a text that is certainly not an address."""
    raise ValueError(f"{len(address)} characters")


def base58(address: str, *, size: int) -> str:
    """Decode base58 without a checksum."""
    from bip_utils.base58 import Base58Decoder

    _expect(len(Base58Decoder.Decode(address)) == size)
    return ""


def base58_check(address: str, *, prefix: int = 1, alphabet: str = "BITCOIN") -> str:
    """Decode base58 with a checksum; the prefix is returned in hexadecimal."""
    from bip_utils.base58 import Base58Alphabets, Base58Decoder

    data: bytes = Base58Decoder.CheckDecode(address, Base58Alphabets[alphabet])
    return data[:prefix].hex()


def segwit(address: str) -> str:
    """Decode a SegWit address (BIP-173, BIP-350)."""
    from bip_utils.bech32 import SegwitBech32Decoder

    _expect(len(address) <= _MAX_SEGWIT_LENGTH)
    prefix = _bech32_prefix(address)
    version, program = SegwitBech32Decoder.Decode(prefix, address)
    if version > 1 or (version == 1 and len(program) != 32):
        raise UncheckedForm
    return prefix


def cashaddr(address: str) -> str:
    """Decode a cashaddr address of Bitcoin Cash, which may be without its prefix."""
    from bip_utils.bech32 import BchBech32Decoder, Bech32ChecksumError

    _expect(address in (address.lower(), address.upper()))
    given, _, rest = address.lower().rpartition(":")
    for prefix in [given] if given else _CASHADDR_PREFIXES:
        with suppress(Bech32ChecksumError):
            BchBech32Decoder.Decode(prefix, f"{prefix}:{rest}")
            return prefix
    raise ValueError("checksum")


def bech32(address: str) -> str:
    """Decode an address in bech32, of the Cosmos Hub or of Cardano (CIP-19)."""
    from bip_utils.bech32 import Bech32Decoder

    prefix = _bech32_prefix(address)
    Bech32Decoder.Decode(prefix, address)
    return prefix


def byron(address: str) -> str:
    """Decode a Byron address of Cardano, whose key is an ordinary one or one to redeem with."""
    from bip_utils.addr import AdaByronAddrDecoder, AdaByronAddrTypes

    for kind in AdaByronAddrTypes:
        # The library reads data of another shape as if it had the right one.
        with suppress(ValueError, TypeError):
            AdaByronAddrDecoder.DecodeAddr(address, addr_type=kind)
            return ""
    raise ValueError("checksum")


def ss58(address: str, *, network: int) -> str:
    """Decode an SS58 address of a Substrate network."""
    from bip_utils.ss58 import SS58Decoder

    found, _ = SS58Decoder.Decode(address)
    if found != network:
        raise UncheckedForm
    return ""


def eip55(address: str) -> str:
    """Decode an Ethereum address in both cases."""
    from bip_utils.addr import EthAddrDecoder

    EthAddrDecoder.DecodeAddr(address)
    return ""


def in_eip55(address: str) -> str:
    """Return an Ethereum address that is in lower case in the one of EIP-55."""
    from bip_utils.utils.crypto import Kekkak256

    digits = Kekkak256.QuickDigest(address[2:].encode()).hex()
    letters = (each.upper() if digit > "7" else each for each, digit in zip(address[2:], digits, strict=False))
    return "0x" + "".join(letters)


def strkey(address: str) -> str:
    """Decode a strkey of Stellar (SEP-23)."""
    data = _base32(address)
    # XModem's checksum, the lower byte first.
    _expect(binascii.crc_hqx(data[:-2], 0) == int.from_bytes(data[-2:], "little"))
    return address[0]


def algorand(address: str) -> str:
    """Decode an address of Algorand."""
    # Not every hashlib has it.
    from bip_utils.utils.crypto import Sha512_256

    data = _base32(address)
    _expect(Sha512_256.QuickDigest(data[:-4])[-4:] == data[-4:])
    return ""


def filecoin(address: str) -> str:
    """Decode an address of Filecoin with a checksum, of the protocols 1 to 3."""
    data = _base32(address[2:].upper())
    _expect(hashlib.blake2b(bytes([int(address[1])]) + data[:-4], digest_size=4).digest() == data[-4:])
    return ""


def internet_computer(address: str) -> str:
    """Decode an account or a principal of the Internet Computer."""
    data = _base32(address.replace("-", "").upper()) if "-" in address else bytes.fromhex(address)
    _expect(zlib.crc32(data[4:]).to_bytes(4, "big") == data[:4])
    return ""


def _bech32_prefix(address: str) -> str:
    return address.lower().rpartition("1")[0]


def _base32(text: str) -> bytes:
    data = base64.b32decode(text + "=" * (-len(text) % 8))
    # The last character may have unused bits.
    _expect(text == base64.b32encode(data).decode().rstrip("="))
    return data


def _expect(is_right: bool) -> None:
    if not is_right:
        raise ValueError("checksum or length")
