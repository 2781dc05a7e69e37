"""The rules of Bitcoin and of the chains that took over its addresses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from airflow_custody.client.text import ascii_lower, count
from airflow_custody.client.whitelist.address_codecs import (
    OTHER_PREFIX,
    CannotTell,
    Form,
    NotAnAddress,
    OtherPrefix,
    Rule,
    base58_check,
    bech32_prefix,
    cashaddr,
    segwit,
)


def versioned(address: str, versions: Mapping[int, Form]) -> Form:
    """Judge a base58 address by its version byte."""
    data = base58_check(address)
    if len(data) != 21 or data[0] not in versions:
        raise OtherPrefix(OTHER_PREFIX)
    return versions[data[0]]


def _utxo(address: str, *, versions: Mapping[int, Form], prefixes: Mapping[str, Form], open_: tuple[str, ...]) -> Form:
    prefix = bech32_prefix(address)
    if prefix in open_:
        raise CannotTell(f"addresses that begin with {prefix}1 are not verified")
    if prefix not in prefixes:
        return versioned(address, versions)
    version, program = segwit(prefix, address)
    if version == 0 or (version == 1 and len(program) == 32):
        return prefixes[prefix]
    raise CannotTell(
        f"it is a SegWit address of version {version} with {count(len(program), 'byte')}, which is not in use yet"
    )


_BITCOIN_VERSIONS: Mapping[int, Form] = {0x00: "main", 0x05: "main", 0x6F: "test", 0xC4: "test"}
_LITECOIN_VERSIONS: Mapping[int, Form] = {
    0x30: "main",
    0x32: "main",
    0x05: "main",  # as Bitcoin's, from before there was 0x32
    0x6F: "test",
    0x3A: "test",
    0xC4: "test",
}
_DOGECOIN_VERSIONS: Mapping[int, Form] = {0x1E: "main", 0x16: "main", 0x71: "test", 0x6F: "test", 0xC4: "test"}
_CASHADDR_PREFIXES: Mapping[str, Form] = {"bitcoincash": "main", "bchtest": "test", "bchreg": "test"}
# Hash and script, each also for those who take tokens; with 20 bytes, scripts also with 32.
_CASHADDR_VERSIONS = {0x00: 20, 0x08: 20, 0x10: 20, 0x18: 20, 0x0B: 32, 0x1B: 32}


def bitcoin_cash(address: str) -> Form:
    prefix, colon, _ = ascii_lower(address).rpartition(":")
    if colon:
        if prefix not in _CASHADDR_PREFIXES:
            raise OtherPrefix("its prefix is none of Bitcoin Cash's")
        return _cashaddr(prefix, address)
    # Legacy addresses are in mixed case; and the length of these is never theirs.
    if len(address) < 40:
        return versioned(address, _BITCOIN_VERSIONS)
    fault = NotAnAddress("")
    for each in _CASHADDR_PREFIXES:
        try:
            return _cashaddr(each, f"{each.upper() if address.isupper() else each}:{address}")
        except NotAnAddress as error:
            fault = error
    raise fault


def _cashaddr(prefix: str, address: str) -> Form:
    version, data = cashaddr(prefix, address)
    if version not in _CASHADDR_VERSIONS:
        raise CannotTell(f"it is a cashaddr address of version {version}, which is not in use yet")
    if len(data) != _CASHADDR_VERSIONS[version]:
        raise NotAnAddress("its length is not the one that it states")
    return _CASHADDR_PREFIXES[prefix]


bitcoin: Rule = partial(
    _utxo,
    versions=_BITCOIN_VERSIONS,
    prefixes={"bc": "main", "tb": "test", "bcrt": "test"},
    open_=("sp", "tsp"),  # silent payments
)
litecoin: Rule = partial(
    _utxo,
    versions=_LITECOIN_VERSIONS,
    prefixes={"ltc": "main", "tltc": "test", "rltc": "test"},
    open_=("ltcmweb", "tmweb", "tltcmweb"),
)
dogecoin: Rule = partial(versioned, versions=_DOGECOIN_VERSIONS)
