"""Addresses are checked against the rules of their chain; the vectors are those of the chains' own specifications."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.whitelist.encodings import base58, base58_check, x_address

from airflow_custody.client.whitelist.addresses.checks import (
    FORMS,
    are_two_networks,
    chain_name,
    check_address,
    network_name,
)

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "address_vectors.json").read_text())
# For each kind of vector, the verdicts without a network, with the main network, and with another network.
EXPECTED = {
    "valid": ("valid", "valid", "valid"),
    # Addresses of a test network.
    "test": ("unchecked", "invalid", "valid"),
    "unchecked": ("unchecked", "unchecked", "unchecked"),
    # Well-formed addresses with the prefix of another chain.
    "foreign": ("invalid", "invalid", "unchecked"),
    "invalid": ("invalid", "invalid", "invalid"),
}
BITCOIN = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"
LEGACY = "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"
BITCOIN_TEST = "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"
ETHEREUM = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


def verdicts(address: str, chain: str) -> tuple[str, ...]:
    return tuple(check_address(address, chain, network).verdict for network in (None, "mainnet", "another"))


@pytest.mark.parametrize("vectors", VECTORS, ids=lambda each: f"{each['chain']}: {each['source']}")
def test_the_specifications_vectors(vectors: dict[str, Any]) -> None:
    for kind, addresses in vectors.items():
        for address in addresses if kind in EXPECTED else ():
            assert verdicts(address, vectors["chain"]) == EXPECTED[kind], address
            check = check_address(address, vectors["chain"])
            # The reason never quotes the address.
            assert bool(check.reason) == (check.verdict == "invalid")
            assert len(address) < 20 or address[6:] not in check.reason


def test_every_chain_has_a_valid_and_an_invalid_vector() -> None:
    for kind in ("valid", "invalid"):
        assert {chain_name(each["chain"]) for each in VECTORS if each.get(kind)} == FORMS.keys() - {"hedera"}


@pytest.mark.parametrize(
    ("address", "chain", "verdict", "reason"),
    [
        ("SBGWKM3CD4IL47QN6X54N6Y33T3JDNVI6AIJ6CD5IM47HG3IG4O36XCU", "XLM", "invalid", "secret key"),
        # A chain has several names, and no punctuation in them counts.
        *((BITCOIN + "q", chain, "invalid", "") for chain in ("Bitcoin", "xbt")),
        *(("?", chain, "invalid", "") for chain in ("Avalanche C-Chain", "avalanche_c")),
        *(("x", chain, "unchecked", "") for chain in ("", "ETH2", "ЕТН")),
        # A character that no address contains is named by its position.
        (f" {ETHEREUM}", "ETH", "invalid", "character 1 is U+"),
        ("0\u0445" + ETHEREUM[2:], "ETH", "invalid", "character 2 is U+"),
        # A long text is refused before it costs time.
        ("1" * 1_000_000, "BTC", "invalid", "it has more than 256 characters"),
    ],
)
def test_names_and_reasons(address: str, chain: str, verdict: str, reason: str) -> None:
    check = check_address(address, chain)
    assert check.verdict == verdict
    assert reason in check.reason


@pytest.mark.parametrize(
    ("network", "verdict"),
    [
        *((each, "unchecked") for each in (None, " ")),
        *((each, "invalid") for each in ("MainNet", "main-net", "prod", "bitcoin", "btc-mainnet")),
        *((each, "valid") for each in ("testnet", "mainnet2", "ethereum")),
    ],
)
def test_addresses_of_test_networks_go_by_the_name_of_the_network(network: str | None, verdict: str) -> None:
    assert check_address(BITCOIN_TEST, "BTC", network).verdict == verdict
    assert check_address(BITCOIN, "BTC", network).verdict == "valid"


# --- networks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chain", "names"),
    [
        ("BTC", "mainnet testnet testnet4 signet regtest"),
        ("BCH", "mainnet testnet3 testnet4 chipnet"),
        ("Litecoin", "main testnet regtest"),
        ("ETH", "mainnet sepolia holesky hoodi goerli"),
        ("Polygon", "mainnet amoy mumbai"),
        ("AVAX", "mainnet fuji"),
        ("XRP", "livenet altnet devnet"),
        ("XLM", "pubnet testnet futurenet"),
        ("XTZ", "mainnet ghostnet shadownet"),
        ("ADA", "mainnet preprod preview"),
        ("DOT", "polkadot westend paseo"),
        ("TAO", "finney test"),
        ("ALGO", "mainnet testnet betanet"),
        ("SOL", "mainnet-beta testnet devnet"),
        ("ATOM", "cosmoshub-4 testnet"),
        ("ICP", "ic testnet"),
        ("HBAR", "mainnet testnet previewnet"),
        ("MINA", "mainnet devnet"),
        ("FIL", "mainnet calibration"),
        ("TRX", "mainnet nile shasta"),
        # The main network of a chain has the usual names, even if the chain is not in the table.
        ("BASE", "base testnet"),
    ],
)
def test_known_networks_of_a_chain_are_two(chain: str, names: str) -> None:
    known = chain_name(chain)
    found = [network_name(each.upper(), chain) for each in names.split()]
    assert found[0] == "mainnet"
    for one, other in combinations(found, 2):
        assert are_two_networks(one, other, known), (one, other)
        assert not are_two_networks(one, one, known)
    # An unknown name may mean any network.
    assert not any(are_two_networks(each, network_name("one", chain), known) for each in found)


@pytest.mark.parametrize(
    ("chain", "one", "other"),
    [
        ("BTC", "testnet", "bitcoin-testnet3"),
        ("LTC", "testnet", "testnet4"),
        ("FIL", "calibration", "calibnet"),
        ("ETH", "Ethereum Sepolia", "sepolia"),
        # The name means one of the test networks, but not which one.
        ("ETH", "testnet", "sepolia"),
        ("TRX", "test", "nile"),
        # These are networks of another chain.
        ("BTC", "mainnet", "sepolia"),
        ("BASE", "mainnet", "sepolia"),
    ],
)
def test_names_that_may_mean_one_network(chain: str, one: str, other: str) -> None:
    known = chain_name(chain)
    assert not are_two_networks(network_name(one, chain), network_name(other, chain), known)


def let_the_library_fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("airflow_custody.client.whitelist.addresses.decoders.b58decode_check", fail)


def test_an_address_is_not_wrong_because_the_library_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_library_fail(monkeypatch, IndexError("x"))
    assert check_address(LEGACY, "BTC").verdict == "unchecked"


@pytest.mark.parametrize("error", [ImportError("base58"), OSError("cannot load native module")])
def test_a_broken_installation_is_not_passed_over(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    let_the_library_fail(monkeypatch, error)
    with pytest.raises(type(error)):
        check_address(LEGACY, "BTC")


CHAINS = sorted({each["chain"] for each in VECTORS if chain_name(each["chain"]) in FORMS})
SAMPLES = [address for each in VECTORS for kind in EXPECTED for address in each.get(kind, ())]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_text_gets_a_verdict(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    cut = data.draw(st.integers(0, len(sample)))
    middle = data.draw(st.one_of(st.text(max_size=3), st.text(st.sampled_from("0123456789abcdefXYZ:.-%_"), max_size=9)))
    check = check_address(sample[:cut] + middle, data.draw(st.sampled_from(CHAINS)), data.draw(st.none() | st.text()))
    assert check.verdict in ("valid", "invalid", "unchecked")


# --- addresses that the tests make with their own encoders ---------------------------------------------------------


def base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")


def strkey(version: int, data: bytes) -> str:
    content = bytes([version]) + data
    return base32(content + binascii.crc_hqx(content, 0).to_bytes(2, "little"))


def ss58(number: int, data: bytes) -> str:
    prefix = bytes([number]) if number < 64 else bytes([(number & 0xFC) >> 2 | 0x40, number >> 8 | (number & 3) << 6])
    return base58(prefix + data + hashlib.blake2b(b"SS58PRE" + prefix + data).digest()[:2])


def algorand(data: bytes) -> str:
    return base32(data + hashlib.new("sha512_256", data).digest()[-4:])


HASH = bytes(range(28))
OSMOSIS = "osmo1qqqsyqcyq5rqwzqfpg9scrgwpugpzysntdz28t"


def byron(*, attributes: bytes = b"\xa0", kind: int = 0, damage: int = 0) -> str:
    """Return a Byron address of Cardano: CBOR with a CRC-32."""
    payload = b"\x83\x58\x1c" + HASH + attributes + bytes([kind])
    checksum = zlib.crc32(payload) ^ damage
    return base58(b"\x82\xd8\x18\x58" + bytes([len(payload)]) + payload + b"\x1a" + checksum.to_bytes(4, "big"))


# The encrypted path of a key: bytes in bytes.
PATH = b"\xa1\x01\x58\x1e\x58\x1c" + HASH


@pytest.mark.parametrize(
    ("address", "chain", "expected"),
    [
        (OSMOSIS, "Cosmos", "invalid"),
        (byron(), "ADA", "valid"),
        (byron(kind=2), "ADA", "valid"),
        (byron(attributes=PATH), "ADA", "valid"),
        # A script, a wrong CRC, and content that is not that of an address.
        (byron(kind=1), "ADA", "invalid"),
        (byron(damage=1), "ADA", "invalid"),
        (byron(attributes=b"\xa1\x03" + PATH[2:]), "ADA", "invalid"),
        (byron(attributes=b"\xa1\x01\x58\xff" + HASH + b"\0\0"), "ADA", "invalid"),
        (byron(attributes=b"\xbf\x01\x58\x1e\x58\x1c" + HASH), "ADA", "invalid"),
        (ss58(47, bytes(32)), "TAO", "invalid"),
        # A key of another Substrate network is neither valid nor invalid.
        (ss58(2, bytes(32)), "DOT", "unchecked"),
        # The hash of a contract or of several keys is not a key, but it is a valid address.
        (base58(HASH + b"\xff" * 4), "SOL", "valid"),
        (strkey(2 << 3, b"\xff" * 32), "XLM", "valid"),
        (ss58(0, bytes(31)), "DOT", "invalid"),
        (base58_check(bytes.fromhex("067c75") + HASH[:20]), "XTZ", "unchecked"),
        (strkey(19 << 3, bytes(32)), "XLM", "invalid"),
        (strkey(6 << 3, bytes(31)), "XLM", "invalid"),
        (strkey(6 << 3 | 1, bytes(32)), "XLM", "invalid"),
        (base32(b"\x30\x00\x00"), "XLM", "invalid"),
        (algorand(bytes(31)), "ALGO", "invalid"),
        (base58_check(b"\x80" + bytes(32)), "BCH", "invalid"),
        ("bc1q" + "q" * 90, "BTC", "invalid"),
        # X-addresses with and without a tag, with unknown flags, and with a tag of more than 32 bits.
        *((x_address(tag), "XRP", "valid") for tag in (None, 0, 2**32 - 1)),
        *((x_address(12, flags=flags), "XRP", "invalid") for flags in (0, 2)),
        (x_address(flags=2), "XRP", "invalid"),
        *((x_address(tag, end=1), "XRP", "invalid") for tag in (None, 12)),
        (x_address(12, key=bytes(21)), "XRP", "invalid"),
    ],
)
def test_forms_that_no_vector_covers(address: str, chain: str, expected: str) -> None:
    assert check_address(address, chain).verdict == expected, address


@pytest.mark.parametrize("name", ["≠mainnet", "mainnet\u0301"])
def test_only_separators_are_left_out_of_a_networks_name(name: str) -> None:
    assert network_name(name, "ETH") == name
    assert network_name("Main-Net (Beta)", "SOL") == "mainnet"
