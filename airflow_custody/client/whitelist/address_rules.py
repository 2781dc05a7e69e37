"""
The rules of each chain: what is an address of it, and of which of its networks.

A rule refuses only what cannot be an address. Forms that exist, and are not verified here, are left open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from airflow_custody.client.text import ascii_lower, count, read_number
from airflow_custody.client.whitelist.address_bitcoin import bitcoin, bitcoin_cash, dogecoin, litecoin, versioned
from airflow_custody.client.whitelist.address_codecs import (
    OTHER_PREFIX,
    WRONG_CHECKSUM,
    CannotTell,
    Form,
    NotAnAddress,
    OtherPrefix,
    Rule,
    algorand_digest,
    base32,
    base58,
    base58_check,
    bech32,
    bech32_prefix,
    check,
    crc32,
    eip55,
    encode_base32,
    filecoin_checksum,
    hip15,
    ss58,
    strkey,
)

# --- Ethereum and its kin ----------------------------------------------------------------------------------

_EVM = re.compile(r"(0[xX])?([0-9a-fA-F]{40})")
_EVM_OPEN = {
    "it is a validator's key, which is not verified": re.compile(r"0x[0-9a-fA-F]{96}"),
    "it is an ICAP address, which is not verified": re.compile(r"XE[0-9]{2}[0-9A-Z]{30,31}"),
}


def _evm(address: str) -> Form:
    match = _EVM.fullmatch(address)
    if match is None:
        for reason, pattern in _EVM_OPEN.items():
            if pattern.fullmatch(address):
                raise CannotTell(reason)
        raise NotAnAddress("it is not 0x and 40 hexadecimal digits")
    prefix, digits = match.groups()
    if digits not in (digits.lower(), digits.upper()) and digits != eip55(digits):
        raise NotAnAddress("the case of its letters is not the one of EIP-55: at least one character is wrong")
    if prefix != "0x":
        raise CannotTell("it does not begin with 0x")
    return "any"


def _evm_left_open(address: str, chain: str) -> None:
    """Leave an address open that is an Ethereum one, for a chain that has also others."""
    if address.startswith("0x") and _EVM.fullmatch(address):
        _evm(address)
        raise CannotTell(f"it is an address as Ethereum has them, which is not verified for {chain}")


def _avalanche(address: str) -> Form:
    if address.startswith("NodeID-"):
        raise CannotTell("it is the id of a node, which is not verified")
    if address[:2] in ("C-", "X-", "P-"):
        bech32(bech32_prefix(address[2:]), address[2:])
        raise CannotTell(f"it is an address of the form {address[:2]}..., which only other kinds of transfers take")
    return _evm(address)


# --- base58 ------------------------------------------------------------------------------------------------


def _xrp(address: str) -> Form:
    data = base58_check(address, "RIPPLE")
    if len(data) == 21 and data[0] == 0x00:
        return "any"
    # XLS-5d: account, flag, tag.
    networks: Mapping[bytes, Form] = {b"\x05\x44": "main", b"\x04\x93": "test"}
    if len(data) != 31 or data[:2] not in networks:
        raise OtherPrefix(OTHER_PREFIX)
    flag, tag = data[22], data[23:]
    if flag > 1:
        raise CannotTell("it is an X-address with a flag that is reserved for later")
    if any(tag[4:] if flag else tag):
        raise NotAnAddress("it is an X-address with a tag that its flag does not allow")
    return networks[data[:2]]


_TEZOS = tuple(bytes.fromhex(each) for each in ("06a19f", "06a1a1", "06a1a4", "06a1a6", "025a79"))


def _tezos(address: str) -> Form:
    account, entrypoint, _ = address.partition("%")
    data = base58_check(account)
    if entrypoint:
        raise CannotTell("it names an entrypoint, which is not verified")
    if data[:3] in _TEZOS and len(data) == 23:
        return "any"
    if address.startswith(("tz", "sr1", "btz1")):
        raise CannotTell(f"addresses that begin with {address[:3]} are not verified")
    raise OtherPrefix(OTHER_PREFIX)


def _solana(address: str) -> Form:
    if len(base58(address)) != 32:
        raise NotAnAddress("it does not encode 32 bytes")
    return "any"


def _tron(address: str) -> Form:
    if re.fullmatch(r"(0x)?41[0-9a-fA-F]{40}", address):
        raise CannotTell("it is written in hexadecimal, which has no checksum")
    return versioned(address, {0x41: "any", 0xA0: "test"})


def _mina(address: str) -> Form:
    data = base58_check(address)
    if data[:3] != b"\xcb\x01\x01" or len(data) != 36:
        raise OtherPrefix(OTHER_PREFIX)
    if data[-1] > 1:
        raise NotAnAddress("it encodes no compressed key")
    return "any"


def _substrate(address: str, *, number: int, name: str) -> Form:
    if re.fullmatch(r"0x([0-9a-fA-F]{64}|[0-9a-fA-F]{40})", address):
        raise CannotTell("it is written in hexadecimal, which has no checksum")
    found, _ = ss58(address)
    if found == number:
        return "any"
    if found == 42:
        return "common"
    raise CannotTell(f"its network is number {found} of SS58; that of {name} is {number}. The key may be the same")


# --- Cardano -----------------------------------------------------------------------------------------------


def _cardano(address: str) -> Form:
    if re.fullmatch(r"[0-9a-fA-F]{56,}", address):
        raise CannotTell("it is written in hexadecimal, which has no checksum")
    if not ascii_lower(address).startswith(("addr", "stake", "pool", "drep")):
        return _byron(address)
    prefix = bech32_prefix(address)
    data = bech32(prefix, address)
    if prefix in ("pool", "drep"):
        raise CannotTell(f"it is the id of a {prefix}, which is not verified")
    if prefix not in ("addr", "addr_test", "stake", "stake_test"):
        raise OtherPrefix("its prefix is none of an address")
    kind, network = data[0] >> 4, data[0] & 15
    is_test = prefix.endswith("_test")
    if network != (0 if is_test else 1) or (kind in (14, 15)) != prefix.startswith("stake") or 8 <= kind <= 13:
        raise CannotTell("its prefix and what it encodes name another network or kind of address")
    if kind in (4, 5):
        _check_pointer(data[29:])
    elif len(data) != (57 if kind < 4 else 29):
        raise NotAnAddress("it has a wrong length")
    return "test" if is_test else "main"


def _check_pointer(data: bytes) -> None:
    """Raise unless these are three numbers of variable length."""
    ends = [index for index, each in enumerate(data) if each < 0x80]
    if len(ends) != 3 or ends[-1] != len(data) - 1:
        raise NotAnAddress("its pointer is malformed")


def _byron(address: str) -> Form:
    data = base58(address)
    # CBOR: a list of two, the tag 24 with bytes, a number.
    if data[:4] != b"\x82\xd8\x18\x58" or len(data) < 6:
        raise NotAnAddress("it is neither a Byron nor a Shelley address")
    content, crc = data[5 : 5 + data[4]], data[5 + data[4] :]
    check(len(content) == data[4] and crc == _cbor_number(int.from_bytes(crc32(content), "big")))
    if content[:3] != b"\x83\x58\x1c":
        raise CannotTell("what it encodes is not verified")
    attributes = content[31:]
    # The path of its key, which mainnet addresses may have; or the number of a test network.
    if attributes[:1] == b"\xa0" or attributes[:2] == b"\xa1\x01":
        return "main"
    if attributes[:2] in (b"\xa1\x02", b"\xa2\x01", b"\xa2\x02"):
        return "test"
    raise CannotTell("it has attributes that are not verified")


def _cbor_number(number: int) -> bytes:
    """Return how CBOR writes a number of up to 32 bits: as short as it can."""
    if number < 24:
        return bytes([number])
    size, head = next((size, head) for size, head in ((1, 0x18), (2, 0x19), (4, 0x1A)) if number < 1 << 8 * size)
    return bytes([head]) + number.to_bytes(size, "big")


# --- base32 and hexadecimal --------------------------------------------------------------------------------

_STRKEY_LENGTHS = {6 << 3: 32, 12 << 3: 40, 2 << 3: 32}
_OTHER_STRKEYS = {19 << 3: "T", 23 << 3: "X", 15 << 3: "P", 11 << 3: "L", 1 << 3: "B"}


def _stellar(address: str) -> Form:
    if "*" in address:
        raise CannotTell("it is a federated name, which only its domain can resolve")
    version, content = strkey(address)
    if version == 18 << 3:
        raise NotAnAddress("it is the secret key of an account: anyone who has seen it may spend from that account")
    if version in _OTHER_STRKEYS:
        raise CannotTell(f"strkeys that begin with {_OTHER_STRKEYS[version]} are no accounts, and are not verified")
    if len(content) != _STRKEY_LENGTHS.get(version):
        raise NotAnAddress("it is a strkey of an unknown kind, or of a wrong length")
    return "any"


def _algorand(address: str) -> Form:
    data = base32(address)
    if len(data) != 36:
        raise NotAnAddress("it has a wrong length")
    check(algorand_digest(data[:32])[-4:] == data[32:])
    return "any"


def _cosmos(address: str) -> Form:
    prefix = bech32_prefix(address)
    data = bech32(prefix, address)
    if prefix != "cosmos":
        raise CannotTell(f"it begins with {prefix}1, as validators or other chains' addresses do")
    if len(data) not in (20, 32):
        raise CannotTell(f"it encodes {count(len(data), 'byte')}; accounts have 20 or 32")
    return "any"


def _filecoin(address: str) -> Form:
    _evm_left_open(address, "Filecoin")
    match = re.fullmatch(r"([ft])([0-4])([0-9a-z]+)", address)
    if match is None:
        raise NotAnAddress("it does not begin with f0 to f4, or has a character that does not belong there")
    network, protocol, rest = match.groups()
    form: Form = "main" if network == "f" else "common"
    if protocol == "0":
        if not rest.isdigit() or (number := read_number(rest.lstrip("0") or "0", 2**64 - 1)) is None:
            raise NotAnAddress("its number is malformed")
        if rest != str(number):
            raise CannotTell("its number begins with 0")
        return form
    head = bytes([int(protocol)])
    if protocol == "4":
        namespace, mark, rest = rest.partition("f")
        if not mark or (number := read_number(namespace.lstrip("0") or namespace[:1], 2**64 - 1)) is None:
            raise NotAnAddress("its namespace is malformed")
        head += _leb128(number)
    data = base32(rest, lower=True)
    content = data[:-4]
    check(filecoin_checksum(head + content) == data[-4:])
    lengths = {"1": (20,), "2": (20,), "3": (48,), "4": range(55)}
    if len(content) not in lengths[protocol]:
        raise NotAnAddress("it has a wrong length")
    return form


def _leb128(number: int) -> bytes:
    """Return how LEB128 writes a number: seven bits to a byte, the lowest first."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def _internet_computer(address: str) -> Form:
    if re.fullmatch(r"[0-9a-fA-F]{64}", address):
        data = bytes.fromhex(address)
        check(crc32(data[4:]) == data[:4])
        return "any"
    if address != address.lower():
        _internet_computer(address.lower())
        raise CannotTell("it is not in lower case")
    # ICRC-1: owner, checksum and subaccount.
    owner, dot, subaccount = address.partition(".")
    checksum = ""
    if dot:
        owner, _, checksum = owner.rpartition("-")
    data = base32(owner.replace("-", ""), lower=True)
    check(len(data) >= 4 and crc32(data[4:]) == data[:4])
    bare = encode_base32(data, lower=True)
    if owner != "-".join(bare[start : start + 5] for start in range(0, len(bare), 5)) or len(data) > 33:
        raise NotAnAddress("its groups are not of five characters each, or it is too long")
    if dot:
        if not re.fullmatch(r"[1-9a-f][0-9a-f]{0,63}", subaccount):
            raise NotAnAddress("its subaccount is malformed")
        whole = data[4:] + bytes.fromhex(subaccount.zfill(64))
        check(checksum == encode_base32(crc32(whole), lower=True))
    return "any"


# --- names and numbers -------------------------------------------------------------------------------------

_NEAR_NAME = re.compile(r"(?:[a-z0-9]+[-_])*[a-z0-9]+(?:\.(?:[a-z0-9]+[-_])*[a-z0-9]+)*")

_NEAR_TOP_LEVEL: Mapping[str, Form] = {"near": "main", "testnet": "test"}


def _near(address: str) -> Form:
    if not 2 <= len(address) <= 64 or not _NEAR_NAME.fullmatch(address):
        raise NotAnAddress("it is neither a name nor 64 hexadecimal digits in lower case")
    if re.fullmatch(r"[0-9a-f]{64}|0[xs][0-9a-f]{40}", address):
        return "any"
    name, _, top = address.rpartition(".")
    if not name:
        # What is left of an address that lost a character is a lawful name.
        raise CannotTell("it is a name without a dot, which hardly anyone can have, or not all of an address")
    if top not in _NEAR_TOP_LEVEL:
        raise CannotTell(
            f"names are verified only if they end in {' or '.join(f'.{each}' for each in _NEAR_TOP_LEVEL)}"
        )
    return _NEAR_TOP_LEVEL[top]


_HEDERA = re.compile(r"((?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*))(?:-([a-z]{5}))?")
_HEDERA_LEDGERS: Mapping[int, Form] = {0: "main", 1: "test", 2: "test"}


def _hedera(address: str) -> Form:
    _evm_left_open(address, "Hedera")
    if re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9a-fA-F]{40,}", address):
        raise CannotTell("it is an alias, which is not verified")
    match = _HEDERA.fullmatch(address)
    if match is None or any(read_number(each, 2**63 - 1) is None for each in match[1].split(".")):
        raise NotAnAddress("it is not three numbers, as in 0.0.123 or 0.0.123-vfmkw")
    if not match[2]:
        return "any"
    for ledger, form in _HEDERA_LEDGERS.items():
        if match[2] == hip15(match[1], ledger):
            return form
    raise OtherPrefix(WRONG_CHECKSUM)


# --- the chains --------------------------------------------------------------------------------------------

_RULES: Mapping[str, Rule] = {
    "BTC bitcoin xbt": bitcoin,
    "BCH bitcoincash": bitcoin_cash,
    "LTC litecoin": litecoin,
    "DOGE dogecoin": dogecoin,
    "ETH ethereum": _evm,
    "Polygon matic pol": _evm,
    "FTM fantom": _evm,
    "Sonic s": _evm,
    "AvalancheC avalanche avax avaxc avaxcchain avalanchecchain": _avalanche,
    "XRP xrpl ripple xrpledger": _xrp,
    "XLM stellar": _stellar,
    "XTZ tezos": _tezos,
    "ADA cardano": _cardano,
    "DOT polkadot": partial(_substrate, number=0, name="Polkadot"),
    "TAO bittensor": partial(_substrate, number=42, name="Bittensor"),
    "ALGO algorand": _algorand,
    "SOL solana": _solana,
    "Cosmos atom cosmoshub": _cosmos,
    "NEAR nearprotocol": _near,
    "ICP internetcomputer dfinity": _internet_computer,
    "Hedera hbar hederahashgraph": _hedera,
    "Mina minaprotocol": _mina,
    "Filecoin fil": _filecoin,
    "TRON trx": _tron,
}
#: By each name of a chain in lower case: what messages call it, and its rule.
RULES: Mapping[str, tuple[str, Rule]] = {
    ascii_lower(name): (names.split()[0], rule) for names, rule in _RULES.items() for name in names.split()
}
