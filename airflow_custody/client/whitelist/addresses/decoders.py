"""
Decoders of addresses.

Each decoder returns the prefix of an address, which identifies its network, or raises ``ValueError`` if the address is
wrong. Decoders check forms, lengths and checksums. They do not check that the address belongs to a key, because
contracts and accounts with several signers have addresses without a key. ``pycryptodome`` is imported for the first
address that needs it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from base58 import BITCOIN_ALPHABET, RIPPLE_ALPHABET, b58decode, b58decode_check, b58encode_check

Decoder = Callable[[str], str]

# The characters of bech32 and cashaddr: each stands for five bits.
_CHARACTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_CASHADDR_PREFIXES = ("bitcoincash", "bchtest", "bchreg")
_MAX_SEGWIT_LENGTH = 90
_RESERVED_SS58_NETWORKS = (46, 47)
# Length in bytes of a hash of 160 bits with its prefix of one byte.
_HASH_LENGTH = 21
# The first byte of legacy addresses of Bitcoin Cash, with the prefix and the kind of the same address in cashaddr. If
# several bytes have the same prefix and kind, the first one is the usual one; 1c and 28 are from BitPay's former
# format.
_LEGACY_KINDS = {
    0x00: ("bitcoincash", 0),
    0x05: ("bitcoincash", 8),
    0x1C: ("bitcoincash", 0),
    0x28: ("bitcoincash", 8),
    0x6F: ("bchtest", 0),
    0xC4: ("bchtest", 8),
}


class _Code(NamedTuple):
    """
    Parameters of the checksum of bech32 or cashaddr.

    The checksum is the remainder of a polynomial whose coefficients have five bits.

    :param length: number of characters of the checksum.
    :param generator: the multiples of the generator polynomial, one for each of the five bits.
    """

    length: int
    generator: tuple[int, ...]


# Bech32 (BIP-173) and bech32m (BIP-350) have the same checksum polynomial, but a correct address has a different
# remainder in each of them.
_BECH32_CODE = _Code(6, (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3))
_BECH32 = 1
_BECH32M = 0x2BC830A3
# The remainder of a correct cashaddr address is 1.
_CASHADDR_CODE = _Code(8, (0x98F2BC8E61, 0x79B76D99E2, 0xF33E5FB3C4, 0xAE2EABE2A8, 0x1E4F43E470))


class UncheckedForm(Exception):
    """
    Raised if an address has a correct checksum, but it is unknown whether it is valid.

    Its format may belong to another chain, or may not be in use yet.
    """


def accept(address: str) -> str:
    """Accept an address that has no checksum."""
    return ""


def refuse(address: str) -> str:
    """Refuse a text whose form is certainly not an address."""
    raise ValueError(f"{len(address)} characters")


def _expect(is_right: object) -> None:
    if not is_right:
        raise ValueError("checksum or length")


# --- base58 ------------------------------------------------------------------------------------------------


def plain_base58(address: str, *, size: int) -> str:
    """Decode base58 without a checksum."""
    _expect(len(_base58(address)) == size)
    return ""


def base58_check(address: str, *, prefix: int = 1, is_ripple: bool = False) -> str:
    """Decode base58 with a checksum, and return the prefix in hexadecimal."""
    data = b58decode_check(address, RIPPLE_ALPHABET if is_ripple else BITCOIN_ALPHABET)
    return data[:prefix].hex()


def litecoin_script(address: str) -> str:
    """
    Return a Litecoin address with Litecoin's own prefix: ``M`` instead of ``3``, which Bitcoin also uses.

    Addresses of other kinds are returned unchanged.
    """
    data = b58decode_check(address)
    _expect(len(data) == _HASH_LENGTH)
    number = {0x05: 0x32, 0xC4: 0x3A}.get(data[0])
    return address if number is None else b58encode_check(bytes([number]) + data[1:]).decode()


def litecoin_former(address: str) -> str:
    """Return a Litecoin address with the former prefix, which Bitcoin also uses: ``3`` instead of ``M``."""
    data = b58decode_check(address)
    number = {0x32: 0x05, 0x3A: 0xC4}.get(data[0])
    return address if number is None else b58encode_check(bytes([number]) + data[1:]).decode()


def tron_base58(address: str) -> str:
    """Convert a Tron address from hexadecimal, with or without ``0x``, to base58."""
    return b58encode_check(bytes.fromhex(address[-42:])).decode()


def tron_hexadecimal(address: str) -> str:
    """Convert a Tron address from base58 to hexadecimal."""
    return b58decode_check(address).hex()


class XAddress(NamedTuple):
    """
    An X-address of the XRP Ledger (XLS-5): an account, perhaps with a destination tag.

    :param prefix: the two bytes of the network in hexadecimal.
    :param account: the account's classic address.
    :param tag: the tag in decimal; empty if there is none.
    """

    prefix: str
    account: str
    tag: str


def read_x_address(address: str) -> XAddress:
    """
    Decode an X-address.

    The flags must be 0 (no tag) or 1 (a tag of 32 bits), and all unused bytes must be zero, because wallets differ in
    how they read any other form.
    """
    data = b58decode_check(address, RIPPLE_ALPHABET)
    # The network, the account, the flags, and eight bytes for the tag.
    _expect(len(data) == 2 + 20 + 1 + 8)
    flags, tag, unused = data[22], data[23:27], data[27:]
    _expect(flags in (0, 1) and not any(unused) and (flags or not any(tag)))
    account = b58encode_check(b"\0" + data[2:22], RIPPLE_ALPHABET).decode()
    return XAddress(data[:2].hex(), account, str(int.from_bytes(tag, "little")) if flags else "")


def x_address(address: str) -> str:
    """Decode an X-address, and return its prefix."""
    return read_x_address(address).prefix


def x_addresses(account: str, tag: str) -> list[str]:
    """
    Return the X-addresses of an account, on the main network and on test networks.

    :param account: the classic address of the account.
    :param tag: the tag, from 0 to 2**32 - 1 in decimal; empty: no tag.
    """
    data = b58decode_check(account, RIPPLE_ALPHABET)
    _expect(len(data) == _HASH_LENGTH)
    flags, number = (1, int(tag)) if tag else (0, 0)
    end = data[1:] + bytes([flags]) + number.to_bytes(8, "little")
    return [b58encode_check(prefix + end, RIPPLE_ALPHABET).decode() for prefix in (b"\x05\x44", b"\x04\x93")]


def ss58(address: str, *, network: int) -> str:
    """Decode an SS58 address, which must be of this Substrate network."""
    data = _base58(address)
    found, key = data[0], data[1:-2]
    if found & 0x40:
        # The network has two bytes: 01LLLLLL LLHHHHHH, with its low bits L and its high bits H.
        found, key = (data[0] & 0x3F) << 2 | data[1] >> 6 | (data[1] & 0x3F) << 8, data[2:-2]
    _expect(len(key) == 32 and found not in _RESERVED_SS58_NETWORKS)
    _expect(hashlib.blake2b(b"SS58PRE" + data[:-2]).digest()[:2] == data[-2:])
    if found != network:
        raise UncheckedForm
    return ""


def byron(address: str) -> str:
    """Decode a Cardano address of the Byron era, with an ordinary or a redeem key."""
    match _cbor(_base58(address))[0]:
        case [_Tagged(24, bytes(payload)), int(checksum)] if zlib.crc32(payload) == checksum:
            content = _cbor(payload)[0]
        case _:
            raise ValueError("checksum")
    match content:
        # The hash of the key, attributes, and the kind of the key.
        case [bytes(root), dict(attributes), 0 | 2] if len(root) == 28:
            _check_byron_attributes(attributes)
        case _:
            raise ValueError("content")
    return ""


def _check_byron_attributes(attributes: dict[int, Any]) -> None:
    """
    Check the attributes of a Byron address.

    The attributes are the key's encrypted path (number 1) and the network (number 2). Each is encoded as CBOR in bytes.
    """
    known = attributes.keys() & {1, 2}
    _expect(len(attributes) <= 2 and (known or not attributes))
    for number in known:
        _expect(isinstance(attributes[number], bytes))
        content = _cbor(attributes[number])[0]
        _expect(number == 2 or isinstance(content, bytes))


def _base58(text: str) -> bytes:
    return b58decode(text)


# --- bech32 and cashaddr -----------------------------------------------------------------------------------


def segwit(address: str) -> str:
    """Decode a SegWit address (BIP-173, BIP-350)."""
    _expect(len(address) <= _MAX_SEGWIT_LENGTH)
    prefix, values, remainder = _bech32(address)
    version, program = values[0], _to_bytes(values[1:])
    _expect(remainder == (_BECH32M if version else _BECH32))
    _expect(version <= 16 and 2 <= len(program) <= 40)
    _expect(version > 0 or len(program) in (20, 32))
    if version > 1 or (version == 1 and len(program) != 32):
        raise UncheckedForm
    return prefix


def bech32(address: str) -> str:
    """Decode a bech32 address of the Cosmos Hub or Cardano (CIP-19)."""
    prefix, values, remainder = _bech32(address)
    _to_bytes(values)
    _expect(remainder == _BECH32)
    return prefix


def cashaddr(address: str) -> str:
    """Decode a cashaddr address of Bitcoin Cash, with or without its prefix."""
    _expect(address in (address.lower(), address.upper()))
    given, _, rest = address.lower().rpartition(":")
    values = _values(rest)
    _to_bytes(values[: -_CASHADDR_CODE.length])
    for prefix in [given] if given else _CASHADDR_PREFIXES:
        low_bits = [ord(each) & 31 for each in prefix]
        if _remainder([*low_bits, 0, *values], _CASHADDR_CODE) == 1:
            return prefix
    raise ValueError("checksum")


def legacy_to_cashaddr(address: str) -> str:
    """Return a legacy address of Bitcoin Cash as cashaddr, without the prefix."""
    data = b58decode_check(address)
    _expect(len(data) == _HASH_LENGTH and data[0] in _LEGACY_KINDS)
    prefix, kind = _LEGACY_KINDS[data[0]]
    # 168 bits, followed by two unused bits.
    number = int.from_bytes(bytes([kind]) + data[1:], "big") << 2
    values = [number >> shift & 31 for shift in range(165, -1, -5)]
    low_bits = [ord(each) & 31 for each in prefix]
    checksum = _remainder([*low_bits, 0, *values, *[0] * _CASHADDR_CODE.length], _CASHADDR_CODE) ^ 1
    values += [checksum >> shift & 31 for shift in range(35, -1, -5)]
    return "".join(_CHARACTERS[each] for each in values)


def cashaddr_to_legacy(address: str) -> list[str]:
    """Return the legacy forms of a cashaddr address of Bitcoin Cash."""
    prefix = cashaddr(address)
    data = _to_bytes(_values(address.lower().rpartition(":")[2])[: -_CASHADDR_CODE.length])
    _expect(len(data) == _HASH_LENGTH)
    numbers = [number for number, form in _LEGACY_KINDS.items() if form == (prefix, data[0])]
    return [b58encode_check(bytes([number]) + data[1:]).decode() for number in numbers]


def _bech32(address: str) -> tuple[str, list[int], int]:
    """Return the prefix, the values without the checksum, and the remainder of the whole address."""
    _expect(address in (address.lower(), address.upper()))
    prefix, _, rest = address.lower().rpartition("1")
    values = _values(rest)
    _expect(len(values) > _BECH32_CODE.length)
    high_bits = [ord(each) >> 5 for each in prefix]
    low_bits = [ord(each) & 31 for each in prefix]
    remainder = _remainder([*high_bits, 0, *low_bits, *values], _BECH32_CODE)
    return prefix, values[: -_BECH32_CODE.length], remainder


def _values(text: str) -> list[int]:
    return [_CHARACTERS.index(each) for each in text]


def _remainder(values: Sequence[int], code: _Code) -> int:
    shift = 5 * (code.length - 1)
    remainder = 1
    for value in values:
        high = remainder >> shift
        remainder = (remainder & (1 << shift) - 1) << 5 ^ value
        for index, polynomial in enumerate(code.generator):
            if high >> index & 1:
                remainder ^= polynomial
    return remainder


def _to_bytes(values: Sequence[int]) -> bytes:
    """Convert five-bit values to bytes. Unused bits must be zero."""
    number = 0
    for value in values:
        number = number << 5 | value
    size, unused = divmod(5 * len(values), 8)
    _expect(unused < 5 and number & (1 << unused) - 1 == 0)
    return (number >> unused).to_bytes(size, "big")


# --- base32 and hexadecimal --------------------------------------------------------------------------------


def eip55(address: str) -> str:
    """Check the EIP-55 checksum of a mixed-case Ethereum address."""
    _expect(address == in_eip55(address.lower()))
    return ""


def in_eip55(address: str) -> str:
    """Return a lower-case Ethereum address in the case of EIP-55."""
    from Crypto.Hash import keccak

    digits = keccak.new(data=address[2:].encode(), digest_bits=256).hexdigest()
    letters = (each.upper() if digit > "7" else each for each, digit in zip(address[2:], digits, strict=False))
    return "0x" + "".join(letters)


def strkey(address: str) -> str:
    """Decode a strkey of Stellar (SEP-23)."""
    data = _base32(address)
    # The XModem checksum, lower byte first.
    _expect(binascii.crc_hqx(data[:-2], 0) == int.from_bytes(data[-2:], "little"))
    return address[0]


def algorand(address: str) -> str:
    """Decode an address of Algorand."""
    # pycryptodome is used because not every hashlib has this algorithm.
    from Crypto.Hash import SHA512

    data = _base32(address)
    _expect(SHA512.new(data[:-4], truncate="256").digest()[-4:] == data[-4:])
    return ""


def filecoin(address: str) -> str:
    """Decode a Filecoin address with a checksum (protocols 1 to 3)."""
    data = _base32(address[2:].upper())
    _expect(hashlib.blake2b(bytes([int(address[1])]) + data[:-4], digest_size=4).digest() == data[-4:])
    return ""


def internet_computer(address: str) -> str:
    """Decode an account or a principal of the Internet Computer."""
    data = _base32(address.replace("-", "").upper()) if "-" in address else bytes.fromhex(address)
    _expect(zlib.crc32(data[4:]).to_bytes(4, "big") == data[:4])
    return ""


def _base32(text: str) -> bytes:
    data = base64.b32decode(text + "=" * (-len(text) % 8))
    # Encode the result again and compare it, because unused bits of the last character must be zero.
    _expect(text == base64.b32encode(data).decode().rstrip("="))
    return data


# --- CBOR (RFC 8949) ---------------------------------------------------------------------------------------

# The kinds of items that addresses contain.
_NUMBER, _BYTES, _LIST, _MAP, _TAG = 0, 2, 4, 5, 6


class _Tagged(NamedTuple):
    """A CBOR item with its tag."""

    tag: int
    item: Any


def _cbor(data: bytes) -> tuple[Any, bytes]:
    """Return the first CBOR item of the data, and the bytes after it."""
    kind, number, rest = _cbor_head(data)
    if kind == _NUMBER:
        return number, rest
    if kind == _BYTES:
        _expect(len(rest) >= number)
        return rest[:number], rest[number:]
    if kind == _TAG:
        item, rest = _cbor(rest)
        return _Tagged(number, item), rest
    _expect(kind in (_LIST, _MAP))
    items = []
    for _ in range(number if kind == _LIST else 2 * number):
        item, rest = _cbor(rest)
        items.append(item)
    if kind == _LIST:
        return items, rest
    keys = items[::2]
    _expect(all(isinstance(each, int) for each in keys))
    return dict(zip(keys, items[1::2], strict=True)), rest


def _cbor_head(data: bytes) -> tuple[int, int, bytes]:
    """
    Return the kind and the number of the first CBOR item, and the remaining bytes.

    Depending on the kind, the number is the item's value, length or tag.
    """
    _expect(data)
    kind, number, rest = data[0] >> 5, data[0] & 31, data[1:]
    _expect(number < 28)
    if number < 24:
        return kind, number, rest
    size = 1 << number - 24
    _expect(len(rest) >= size)
    return kind, int.from_bytes(rest[:size], "big"), rest[size:]
