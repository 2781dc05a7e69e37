"""Addresses are checked against the rules of their chain; the vectors are those of the chains' own specifications."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_custody.client.whitelist.addresses import FORMS, chain_name, check_address, is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="the extra 'addresses' is not installed")

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "address_vectors.json").read_text())
# For each kind of vectors, the verdict where no network is named, where it is the main one, and where it is another.
EXPECTED = {
    "valid": ("valid", "valid", "valid"),
    # Of a test network.
    "test": ("unchecked", "invalid", "valid"),
    "unchecked": ("unchecked", "unchecked", "unchecked"),
    # Well-formed, with the prefix of another chain.
    "foreign": ("invalid", "invalid", "unchecked"),
    "invalid": ("invalid", "invalid", "invalid"),
}
BITCOIN = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"
BITCOIN_TEST = "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"
ETHEREUM = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


def verdicts(address: str, chain: str) -> tuple[str, ...]:
    return tuple(check_address(address, chain, network).verdict for network in (None, "mainnet", "another"))


@pytest.mark.parametrize("vectors", VECTORS, ids=lambda each: f"{each['chain']}: {each['source']}")
def test_the_specifications_vectors(vectors: dict[str, Any]) -> None:
    assert set(vectors) - {"source", "chain"} <= set(EXPECTED)
    for kind, expected in EXPECTED.items():
        for address in vectors.get(kind, ()):
            assert verdicts(address, vectors["chain"]) == expected, address


def test_every_chain_has_a_valid_and_an_invalid_vector() -> None:
    for kind in ("valid", "invalid"):
        assert {chain_name(each["chain"]) for each in VECTORS if each.get(kind)} == FORMS.keys() - {"hedera"}


def test_a_reason_is_given_unless_it_is_valid_and_never_quotes_the_address() -> None:
    for vectors in VECTORS:
        for kind in EXPECTED:
            for address in vectors.get(kind, ()):
                check = check_address(address, vectors["chain"])
                assert bool(check.reason) == (check.verdict != "valid")
                assert len(address) < 20 or address[6:] not in check.reason


def test_a_secret_key_is_called_one() -> None:
    check = check_address("SBGWKM3CD4IL47QN6X54N6Y33T3JDNVI6AIJ6CD5IM47HG3IG4O36XCU", "XLM")
    assert check.verdict == "invalid"
    assert "secret key" in check.reason


@pytest.mark.parametrize("chain", ["BTC", "btc", "Bitcoin", "BITCOIN", "xbt"])
def test_a_chain_has_several_names_in_any_case(chain: str) -> None:
    assert verdicts(BITCOIN, chain) == ("valid",) * 3
    assert check_address(BITCOIN + "q", chain).verdict == "invalid"


@pytest.mark.parametrize("chain", ["Avalanche C-Chain", "avalanche_c", "Bitcoin Cash", "BITCOIN-CASH", "cosmos hub"])
def test_punctuation_in_the_name_of_a_chain_does_not_count(chain: str) -> None:
    assert check_address("?", chain).verdict == "invalid"


@pytest.mark.parametrize("chain", ["", "Canton", "ETH2", "USDC", "BT\u212a", "ЕТН"])
def test_a_chain_that_is_not_known_is_never_refused(chain: str) -> None:
    check = check_address("anything", chain)
    assert check.verdict == "unchecked"
    assert "not known" in check.reason


@pytest.mark.parametrize(
    ("network", "verdict"),
    [(each, "unchecked") for each in (None, "", " ")]
    + [
        (each, "invalid")
        for each in ("mainnet", "MainNet", "main-net", "main", "livenet", "prod", "bitcoin", "btc-mainnet")
    ]
    + [(each, "valid") for each in ("testnet", "testnet3", "signet", "regtest", "mainnet2", "anything", "ethereum")],
)
def test_addresses_of_test_networks_go_by_the_name_of_the_network(network: str | None, verdict: str) -> None:
    assert check_address(BITCOIN_TEST, "BTC", network).verdict == verdict
    assert check_address(BITCOIN, "BTC", network).verdict == "valid"


@pytest.mark.parametrize(
    ("address", "position"),
    [
        (f" {ETHEREUM}", 1),
        (f"{ETHEREUM}\n", 43),
        ("0\u0445" + ETHEREUM[2:], 2),
        (ETHEREUM[:5] + "\u200b" + ETHEREUM[5:], 6),
    ],
)
def test_what_no_address_has_is_named_by_its_place(address: str, position: int) -> None:
    check = check_address(address, "ETH")
    assert check.verdict == "invalid"
    assert f"character {position} is U+" in check.reason


def test_long_text_is_refused_before_it_costs_time() -> None:
    assert check_address("1" * 1_000_000, "BTC").reason == "it has more than 256 characters"


@pytest.mark.parametrize("error", [IndexError("x"), TypeError("x"), KeyError("x"), ImportError("x"), RecursionError()])
def test_an_address_is_not_wrong_because_the_library_fails(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("bip_utils.bech32.SegwitBech32Decoder.Decode", fail)
    check = check_address(BITCOIN, "BTC")
    assert check.verdict == "unchecked"
    assert type(error).__name__ in check.reason


CHAINS = sorted({each["chain"] for each in VECTORS if chain_name(each["chain"]) in FORMS})
SAMPLES = [address for each in VECTORS for kind in EXPECTED for address in each.get(kind, ())]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_is_given_gets_a_verdict(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    cut = data.draw(st.integers(0, len(sample)))
    middle = data.draw(st.one_of(st.text(max_size=3), st.text(st.sampled_from("0123456789abcdefXYZ:.-%_"), max_size=9)))
    check = check_address(sample[:cut] + middle, data.draw(st.sampled_from(CHAINS)), data.draw(st.none() | st.text()))
    assert check.verdict in ("valid", "invalid", "unchecked")
    # No input makes the library or a rule fail.
    assert "check itself" not in check.reason


@pytest.mark.parametrize("chain", CHAINS)
def test_an_address_of_another_chain_is_valid_only_where_chains_share_their_form(chain: str) -> None:
    evm = {"ETH", "Polygon", "FTM", "Sonic", "AvalancheC"}
    shared = [evm, {"BTC", "BCH"}, {"BTC", "LTC"}, {"BCH", "LTC"}]
    for vectors in VECTORS:
        for address in vectors.get("valid", ()):
            if check_address(address, chain).verdict == "valid" and vectors["chain"] != chain:
                assert any({chain, vectors["chain"]} <= each for each in shared), (address, vectors["chain"])


# --- addresses that are made here, by encoders of the tests' own ---------------------------------------------------

BITCOIN_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
RIPPLE_ALPHABET = "rpshnaf39wBUDNEGHJKLM4PQRST7VWXYZ2bcdeCg65jkm8oFqi1tuvAxyz"


def base58(data: bytes, alphabet: str = BITCOIN_ALPHABET) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = alphabet[digit] + text
    return alphabet[0] * (len(data) - len(data.lstrip(b"\0"))) + text


def base58_check(data: bytes, alphabet: str = BITCOIN_ALPHABET) -> str:
    return base58(data + hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4], alphabet)


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


def filecoin(head: str, content: bytes) -> str:
    checksum = hashlib.blake2b(bytes([int(head[1])]) + content, digest_size=4).digest()
    return head + base32(content + checksum).lower()


def icp_account(data: bytes) -> str:
    return (zlib.crc32(data).to_bytes(4, "big") + data).hex()


def x_address(account: bytes, flag: int, tag: bytes) -> str:
    return base58_check(b"\x05\x44" + account + bytes([flag]) + tag, RIPPLE_ALPHABET)


# Most of these are the key of nobody: multisignature, program and contract accounts are hashes.
MADE: list[tuple[str, int, Callable[[bytes], str]]] = [
    ("BTC", 20, lambda data: base58_check(b"\x00" + data)),
    ("BTC", 20, lambda data: base58_check(b"\x05" + data)),
    ("LTC", 20, lambda data: base58_check(b"\x30" + data)),
    ("LTC", 20, lambda data: base58_check(b"\x32" + data)),
    ("DOGE", 20, lambda data: base58_check(b"\x1e" + data)),
    ("DOGE", 20, lambda data: base58_check(b"\x16" + data)),
    ("TRON", 20, lambda data: base58_check(b"\x41" + data)),
    ("XTZ", 20, lambda data: base58_check(bytes.fromhex("025a79") + data)),
    ("XRP", 20, lambda data: base58_check(b"\x00" + data, RIPPLE_ALPHABET)),
    ("XRP", 20, lambda data: x_address(data, 1, data[:4] + bytes(4))),
    ("SOL", 32, base58),
    ("DOT", 32, lambda data: ss58(0, data)),
    ("TAO", 32, lambda data: ss58(42, data)),
    ("ALGO", 32, algorand),
    ("XLM", 32, lambda data: strkey(6 << 3, data)),
    ("XLM", 40, lambda data: strkey(12 << 3, data)),
    ("XLM", 32, lambda data: strkey(2 << 3, data)),
    ("ICP", 28, icp_account),
    ("Filecoin", 20, lambda data: filecoin("f1", data)),
    ("Filecoin", 20, lambda data: filecoin("f2", data)),
    ("Filecoin", 48, lambda data: filecoin("f3", data)),
    ("Mina", 32, lambda data: base58_check(b"\xcb\x01\x01" + data + b"\x01")),
    ("ETH", 20, lambda data: "0x" + data.hex()),
]


@settings(max_examples=20, deadline=None)
@given(data=st.binary(min_size=48, max_size=48))
def test_every_account_is_valid_with_or_without_a_key(data: bytes) -> None:
    for chain, size, encode in MADE:
        address = encode(data[:size])
        assert verdicts(address, chain) == ("valid",) * 3, (chain, address)


@settings(max_examples=20, deadline=None)
@given(data=st.binary(min_size=32, max_size=32), number=st.sampled_from([1, 2, 7, 63, 64, 255, 16383]))
def test_a_key_of_another_substrate_network_is_left_open(data: bytes, number: int) -> None:
    assert verdicts(ss58(number, data), "DOT") == ("unchecked",) * 3
    assert verdicts(ss58(number, data), "TAO") == ("unchecked",) * 3


ACCOUNT = bytes(range(100, 120))
HASH = bytes(range(28))


def shelley(prefix: str, header: int, content: bytes) -> str:
    from bip_utils.bech32 import Bech32Encoder

    address: str = Bech32Encoder.Encode(prefix, bytes([header]) + content)
    return address


def bitcoin_cash(version: int, content: bytes) -> str:
    from bip_utils.bech32 import BchBech32Encoder

    address: str = BchBech32Encoder.Encode("bitcoincash", bytes([version]), content)
    return address


@pytest.mark.parametrize(
    ("make", "chain", "expected"),
    [
        (lambda: x_address(ACCOUNT, 0, bytes(8)), "XRP", "valid"),
        (lambda: x_address(ACCOUNT, 1, b"\xff" * 4 + bytes(4)), "XRP", "valid"),
        (lambda: shelley("addr", 0x62, HASH), "ADA", "unchecked"),
        (lambda: shelley("addr", 0x91, HASH), "ADA", "unchecked"),
        (lambda: shelley("stake", 0x61, HASH), "ADA", "unchecked"),
        (lambda: shelley("addr", 0x61, HASH[1:]), "ADA", "unchecked"),
        (lambda: shelley("addr", 0x01, HASH), "ADA", "unchecked"),
        (lambda: shelley("addr", 0x41, HASH + b"\x81\x00\x01\x02"), "ADA", "unchecked"),
        (lambda: shelley("cosmos", 1, HASH + bytes(3)), "Cosmos", "valid"),
        (lambda: shelley("cosmos", 1, HASH), "Cosmos", "unchecked"),
        (lambda: base58_check(bytes.fromhex("067c75") + ACCOUNT), "XTZ", "unchecked"),
        (lambda: strkey(19 << 3, bytes(32)), "XLM", "unchecked"),
        (lambda: strkey(6 << 3, bytes(31)), "XLM", "invalid"),
        (lambda: strkey(6 << 3 | 1, bytes(32)), "XLM", "invalid"),
        (lambda: base32(b"\x30\x00\x00"), "XLM", "invalid"),
        (lambda: algorand(bytes(31)), "ALGO", "invalid"),
        (lambda: bitcoin_cash(0x0B, bytes(32)), "BCH", "valid"),
        (lambda: base58_check(b"\xc4" + bytes(32)), "BCH", "unchecked"),
        (lambda: base58_check(b"\x00" + bytes(32)), "BCH", "invalid"),
        (lambda: bitcoin_cash(0x08, bytes(32)), "BCH", "unchecked"),
        (lambda: bitcoin_cash(0x03, bytes(32)), "BCH", "unchecked"),
        (lambda: "bc1q" + "q" * 90, "BTC", "invalid"),
        (lambda: filecoin("f1", bytes(21)), "Filecoin", "invalid"),
    ],
)
def test_forms_that_no_vector_covers(make: Callable[[], str], chain: str, expected: str) -> None:
    address = make()
    assert check_address(address, chain).verdict == expected, address
