"""How many mistyped addresses the check catches: the figures of the documentation."""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_custody.client.whitelist.addresses import FORMS, chain_name, check_address, is_installed
from airflow_custody.client.whitelist.file import read_whitelist_file

EXAMPLE = Path(__file__).parents[3] / "example_dags" / "custody_whitelist.yaml"

BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l1"
BASE32 = string.ascii_uppercase + "234567"
HEX = "0123456789abcdef"
EVM = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

#: A valid address of each form, and the characters that such addresses are written in.
SAMPLES: dict[str, tuple[str, str, str]] = {
    "BTC legacy": ("BTC", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", BASE58),
    "BTC SegWit": ("BTC", "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4", BECH32),
    "BTC Taproot": ("BTC", "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0", BECH32),
    "BCH": ("BCH", "bitcoincash:qr6m7j9njldwwzlg9v7v53unlr4jkmx6eylep8ekg2", BECH32),
    "LTC legacy": ("LTC", "LMHEFMwRsQ3nHDfb9zZqynLHxjuJ2hgyyW", BASE58),
    "LTC SegWit": ("LTC", "ltc1qhzjptwpym9afcdjhs7jcz6fd0jma0l0rc0e5yr", BECH32),
    "DOGE": ("DOGE", "D7wbmbjBWG5HPkT6d4gh6SdQPp6z25vcF2", BASE58),
    "ETH, with EIP-55": ("ETH", EVM, string.hexdigits),
    "ETH, lower case": ("ETH", EVM.lower(), HEX),
    "ETH, upper case": ("ETH", f"0x{EVM[2:].upper()}", HEX.upper()),
    "XRP": ("XRP", "rGWrZyQqhTp9Xu7G5Pkayo7bXjH4k4QYpf", BASE58),
    "XRP X-address": ("XRP", "XVLhHMPHU98es4dbozjVtdWzVrDjtV8xvjGQTYPiAx6gwDC", BASE58),
    "XLM": ("XLM", "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ", BASE32),
    "XLM muxed": ("XLM", "MA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJUAAAAAAAAAAAACJUQ", BASE32),
    "XTZ": ("XTZ", "tz1KqTpEZ7Yob7QbPE4Hy4Wo8fHG8LhKxZSx", BASE58),
    "ADA Shelley": ("ADA", "addr1vx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzers66hrl8", BECH32),
    "ADA Byron": ("ADA", "Ae2tdPwUPEZFRbyhz3cpfC2CumGzNkFBN2L42rcUc2yjQpEkxDbkPodpMAi", BASE58),
    "DOT": ("DOT", "15oF4uVJwmo4TdGW7VfQxNLavjCXviqxT9S1MgbjMNHr6Sp5", BASE58),
    "TAO": ("TAO", "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY", BASE58),
    "ALGO": ("ALGO", "VQD6TBRL6BH6NAGIPEUG6JZUCPJVXB3GPTHEU5WTKX5DDGSR3AXNKBN5FQ", BASE32),
    "SOL": ("SOL", "7VH1XhBY1DmFk98fBdLqEbDsKpr41whdM8EzipizyVCJ", BASE58),
    "Cosmos": ("Cosmos", "cosmos1depk54cuajgkzea6zpgkq36tnjwdzv4afc3d27", BECH32),
    "ICP account": ("ICP", "a7218db708c35689495871c3c6860504503ab2a545630809dd8609130331b0c2", HEX),
    "ICP principal": ("ICP", "k2t6j-2nvnp-4zjm3-25dtz-6xhaa-c7boj-5gayf-oj3xs-i43lp-teztq-6ae", BASE32.lower()),
    "Mina": ("Mina", "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy", BASE58),
    "Filecoin": ("Filecoin", "f17uoq6tp427uzv7fztkbsnn64iwotfrristwpryy", BASE32.lower()),
    "TRON": ("TRON", "TJCnKsPa7y5okkXvQAidZBzqx3QyQ6sxMW", BASE58),
}
#: Per cent of the sample's typos that are ``invalid``, cut to one decimal: one character is another one of those that
#: such addresses are written in; two neighbours change places; one letter is in the other case. ICP's are not wrong in
#: the other case. Polygon, FTM, Sonic and AvalancheC are as ETH.
TYPOS_CAUGHT: dict[str, tuple[float, float, float]] = {
    "BTC legacy": (100.0, 100.0, 100.0),
    "BTC SegWit": (100.0, 100.0, 100.0),
    "BTC Taproot": (100.0, 100.0, 100.0),
    "BCH": (100.0, 100.0, 100.0),
    "LTC legacy": (100.0, 100.0, 100.0),
    "LTC SegWit": (100.0, 100.0, 100.0),
    "DOGE": (100.0, 100.0, 100.0),
    "ETH, with EIP-55": (100.0, 100.0, 94.7),
    "ETH, lower case": (4.9, 5.2, 94.7),
    "ETH, upper case": (4.9, 5.2, 94.7),
    "XRP": (100.0, 100.0, 100.0),
    "XRP X-address": (100.0, 100.0, 100.0),
    "XLM": (100.0, 100.0, 100.0),
    "XLM muxed": (100.0, 100.0, 100.0),
    "XTZ": (100.0, 100.0, 100.0),
    "ADA Shelley": (100.0, 100.0, 100.0),
    "ADA Byron": (94.9, 94.8, 96.1),
    "DOT": (100.0, 100.0, 100.0),
    "TAO": (100.0, 100.0, 100.0),
    "ALGO": (100.0, 100.0, 100.0),
    "SOL": (1.6, 2.3, 8.3),
    "Cosmos": (100.0, 100.0, 100.0),
    "ICP account": (100.0, 100.0, 0.0),
    "ICP principal": (100.0, 100.0, 0.0),
    "Mina": (100.0, 100.0, 100.0),
    "Filecoin": (99.9, 100.0, 100.0),
    "TRON": (100.0, 100.0, 100.0),
}


def replacements(address: str, alphabet: str) -> Iterator[str]:
    """Yield the address with each character replaced by each other one."""
    for index, old in enumerate(address):
        yield from (address[:index] + new + address[index + 1 :] for new in alphabet if new != old)


def transpositions(address: str, _: str) -> Iterator[str]:
    """Yield the address with each two neighbours in the other order."""
    for index, (first, second) in enumerate(itertools.pairwise(address)):
        if first != second:
            yield address[:index] + second + first + address[index + 2 :]


def case_flips(address: str, _: str) -> Iterator[str]:
    """Yield the address with each letter in the other case."""
    for index, old in enumerate(address):
        if old.isalpha():
            yield address[:index] + old.swapcase() + address[index + 1 :]


def per_cent_caught(chain: str, typos: Iterator[str]) -> float:
    verdicts = [check_address(typo, chain).verdict == "invalid" for typo in typos]
    # Cut, not rounded: 100 means all of them.
    return math.floor(1000 * sum(verdicts) / len(verdicts)) / 10 if verdicts else 100.0


@pytest.mark.skipif(not is_installed(), reason="the extra 'addresses' is not installed")
@pytest.mark.parametrize("form", SAMPLES)
def test_so_many_typos_are_caught(form: str) -> None:
    chain, address, alphabet = SAMPLES[form]
    assert check_address(address, chain).verdict == "valid"
    found = tuple(
        per_cent_caught(chain, typos(address, alphabet)) for typos in (replacements, transpositions, case_flips)
    )
    assert found == TYPOS_CAUGHT[form]


@pytest.mark.skipif(not is_installed(), reason="the extra 'addresses' is not installed")
def test_every_typo_in_the_example_is_caught() -> None:
    rows = read_whitelist_file(EXAMPLE).rows
    assert len(rows) == 4
    for row in rows:
        address = row.request.address
        typos = replacements(address, "".join(sorted(set(address))))
        assert per_cent_caught(row.request.chain, typos) == 100, address


def test_every_chain_with_rules_has_figures() -> None:
    assert SAMPLES.keys() == TYPOS_CAUGHT.keys()
    chains = {chain_name(chain) for chain, _, _ in SAMPLES.values()}
    assert chains == FORMS.keys() - {"polygon", "ftm", "sonic", "avalanchec", "hedera"}
