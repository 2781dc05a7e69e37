"""
The encodings that addresses are written in, each with its checksum.

What the extra ``addresses`` brings is used here and nowhere else. It is imported with the first address, which
takes 0.15 to 0.6 seconds and 24 MB.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Callable
from typing import Any, Literal

#: The network that an address is of: the main one, a test network, or any; ``common``: written as on test networks, and
#: the same account on the main one.
Form = Literal["main", "test", "any", "common"]
Rule = Callable[[str], Form]
Base58Alphabet = Literal["BITCOIN", "RIPPLE"]

_BASE58 = re.compile(r"[1-9A-HJ-NP-Za-km-z]+")
#: An SS58 account index has up to eight bytes, with a prefix of up to two and a checksum of up to eight.
_MAX_SS58_INDEX_LENGTH = 18


class NotAnAddress(Exception):
    """Raised when a text is certainly no address of the chain; says why."""


class OtherPrefix(NotAnAddress):
    """Raised when a text is well-formed, and is no address of the chain in any network that is known."""


class CannotTell(Exception):
    """Raised when a text may be an address of the chain; says why that cannot be verified."""


OTHER_PREFIX = "it is well-formed, but its prefix is another chain's or another kind's"
WRONG_CHECKSUM = "its checksum does not match: at least one character is wrong"


def _decode(decode: Callable[..., Any], *arguments: object) -> Any:
    """Call a decoder of the library; what it is documented to raise for a malformed text means that it is none."""
    from bip_utils.base58 import Base58ChecksumError
    from bip_utils.bech32 import Bech32ChecksumError
    from bip_utils.ss58 import SS58ChecksumError

    try:
        return decode(*arguments)
    except (Base58ChecksumError, Bech32ChecksumError, SS58ChecksumError):
        raise NotAnAddress(WRONG_CHECKSUM) from None
    except ValueError:
        raise NotAnAddress("it is malformed: a character, its length or its padding is wrong") from None


def base58(text: str, alphabet: Base58Alphabet = "BITCOIN") -> bytes:
    """Return what base58 encodes, the checksum included if there is one."""
    from bip_utils.base58 import Base58Alphabets, Base58Decoder

    _check_base58(text)
    data: bytes = _decode(Base58Decoder.Decode, text, Base58Alphabets[alphabet])
    return data


def base58_check(text: str, alphabet: Base58Alphabet = "BITCOIN") -> bytes:
    """Return what base58 with a checksum encodes, without the checksum."""
    from bip_utils.base58 import Base58Alphabets, Base58Decoder

    _check_base58(text)
    data: bytes = _decode(Base58Decoder.CheckDecode, text, Base58Alphabets[alphabet])
    return data


def _check_base58(text: str) -> None:
    match = _BASE58.match(text)
    end = match.end() if match else 0
    if end < len(text) or not text:
        raise NotAnAddress(f"its character {end + 1} is none of base58's" if text else "it is empty")


def bech32_prefix(text: str) -> str:
    """Return what stands before the last ``1``, in lower case; empty if there is none."""
    return text.lower().rpartition("1")[0]


def bech32(prefix: str, text: str) -> bytes:
    """Return what bech32 encodes behind a prefix (BIP-173, of any length)."""
    from bip_utils.bech32 import Bech32Decoder

    data: bytes = _decode(Bech32Decoder.Decode, prefix, text)
    return data


def segwit(prefix: str, text: str) -> tuple[int, bytes]:
    """Return the version and the program of a SegWit address (BIP-173, BIP-350)."""
    from bip_utils.bech32 import SegwitBech32Decoder

    # The library has no limit.
    if len(text) > 90:
        raise NotAnAddress("it is too long")
    decoded: tuple[int, bytes] = _decode(SegwitBech32Decoder.Decode, prefix, text)
    return decoded


def cashaddr(prefix: str, text: str) -> tuple[int, bytes]:
    """Return the version byte and the hash of a cashaddr address, which begins with the prefix and a colon."""
    from bip_utils.bech32 import BchBech32Decoder

    version, data = _decode(BchBech32Decoder.Decode, prefix, text)
    return version[0], data


def ss58(text: str) -> tuple[int, bytes]:
    """Return the network's number and the public key of an SS58 address."""
    from bip_utils.ss58 import SS58Decoder

    if 3 <= len(base58(text)) <= _MAX_SS58_INDEX_LENGTH:
        raise CannotTell("it is an SS58 address of a length for account indexes, which are not verified")
    number, key = _decode(SS58Decoder.Decode, text)
    return number, key


def base32(text: str, *, lower: bool = False) -> bytes:
    """
    Return what RFC 4648 base32 without padding encodes.

    :param text: the text.
    :param lower: whether it is written in lower case. Default False: in upper case.
    :raises NotAnAddress: if it is anything but what encoding the result gives.
    """
    upper = text.upper() if lower else text
    try:
        data = base64.b32decode(upper + "=" * (-len(upper) % 8))
    except binascii.Error:
        raise NotAnAddress("it has a character or a length that base32 does not have") from None
    if text != encode_base32(data, lower=lower):
        raise NotAnAddress("it is not written as base32 writes it: a letter's case, or the last character, is wrong")
    return data


def encode_base32(data: bytes, *, lower: bool = False) -> str:
    """Return RFC 4648 base32 without padding."""
    text = base64.b32encode(data).decode().rstrip("=")
    return text.lower() if lower else text


def check(is_right: bool) -> None:
    """Raise :class:`NotAnAddress` unless a checksum is right."""
    if not is_right:
        raise NotAnAddress(WRONG_CHECKSUM)


def strkey(text: str) -> tuple[int, bytes]:
    """Return the version byte and the content of a Stellar strkey (SEP-23)."""
    data = base32(text)
    if len(data) < 4:
        raise NotAnAddress("it is too short")
    # XModem's, the lower byte first.
    check(binascii.crc_hqx(data[:-2], 0) == int.from_bytes(data[-2:], "little"))
    return data[0], data[1:-2]


def algorand_digest(data: bytes) -> bytes:
    """Return SHA-512/256 of the data, which not every hashlib has."""
    from bip_utils.utils.crypto import Sha512_256

    digest: bytes = Sha512_256.QuickDigest(data)
    return digest


def crc32(data: bytes) -> bytes:
    """Return the CRC-32 of the data, the highest byte first."""
    return zlib.crc32(data).to_bytes(4, "big")


def filecoin_checksum(data: bytes) -> bytes:
    """Return the checksum of a Filecoin address: BLAKE2b with four bytes."""
    return hashlib.blake2b(data, digest_size=4).digest()


def eip55(digits: str) -> str:
    """Return the 40 hexadecimal digits of an address in the case that EIP-55 gives them."""
    from bip_utils.utils.crypto import Kekkak256

    lower = digits.lower()
    digest: bytes = Kekkak256.QuickDigest(lower)
    return "".join(
        each.upper() if int(nibble, 16) > 7 else each for each, nibble in zip(lower, digest.hex(), strict=False)
    )


def hip15(address: str, ledger: int) -> str:
    """Return the five letters that HIP-15 puts behind an address of a Hedera ledger."""
    digits = [10 if each == "." else int(each) for each in address]
    p3, p5 = 26**3, 26**5
    weighted = 0
    for digit in digits:
        weighted = (weighted * 31 + digit) % p3
    of_ledger = 0
    for byte in (ledger, 0, 0, 0, 0, 0, 0):
        of_ledger = (of_ledger * 31 + byte) % p5
    even, odd = sum(digits[::2]) % 11, sum(digits[1::2]) % 11
    number = ((((len(digits) % 5) * 11 + even) * 11 + odd) * p3 + weighted + of_ledger) % p5 * 1_000_003 % p5
    letters = ""
    for _ in range(5):
        number, letter = divmod(number, 26)
        letters = chr(ord("a") + letter) + letters
    return letters
