"""How many mistyped addresses the check catches: the figures of the documentation."""

from __future__ import annotations

import itertools
import json
import math
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_custody.client.whitelist.addresses.checks import check_address
from airflow_custody.client.whitelist.files.reading import read_whitelist_file

EXAMPLE = Path(__file__).parents[4] / "example_dags" / "custody_whitelist.yaml"
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "address_vectors.json").read_text())
ETHEREUM = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BASE32 = string.ascii_lowercase + "234567"
HEX = "0123456789abcdef"
#: Addresses of forms of which not every typo is found, the characters that they are written in, and per cent of the
#: typos that are ``invalid``, cut to one decimal: one character is another one of those; two neighbours change places;
#: one letter is in the other case. ICP's are not wrong in the other case. Polygon, FTM, Sonic, AvalancheC are as ETH.
SOME_TYPOS: list[tuple[str, str, str, tuple[float, float, float]]] = [
    ("ETH", ETHEREUM, string.hexdigits, (100.0, 100.0, 94.7)),
    ("ETH", ETHEREUM.lower(), HEX, (4.9, 5.2, 94.7)),
    ("ETH", f"0x{ETHEREUM[2:].upper()}", HEX.upper(), (4.9, 5.2, 94.7)),
    ("ADA", "Ae2tdPwUPEZFRbyhz3cpfC2CumGzNkFBN2L42rcUc2yjQpEkxDbkPodpMAi", BASE58, (94.9, 94.8, 96.1)),
    ("SOL", "7VH1XhBY1DmFk98fBdLqEbDsKpr41whdM8EzipizyVCJ", BASE58, (1.6, 2.3, 8.3)),
    ("ICP", "a7218db708c35689495871c3c6860504503ab2a545630809dd8609130331b0c2", HEX, (100.0, 100.0, 0.0)),
    ("ICP", "k2t6j-2nvnp-4zjm3-25dtz-6xhaa-c7boj-5gayf-oj3xs-i43lp-teztq-6ae", BASE32, (100.0, 100.0, 0.0)),
    ("Filecoin", "f17uoq6tp427uzv7fztkbsnn64iwotfrristwpryy", BASE32, (99.9, 100.0, 100.0)),
]
#: Of all other forms: every typo. The forms of a chain begin in their own ways.
ALL_TYPOS = {
    (each["chain"], address[:3]): address
    for each in VECTORS
    for address in each.get("valid", ())
    if each["chain"]
    in ("BTC", "BCH", "LTC", "DOGE", "XRP", "XLM", "XTZ", "DOT", "TAO", "ALGO", "Cosmos", "Mina", "TRON")
    or address.startswith("addr")
}


def replacements(address: str, alphabet: str) -> Iterator[str]:
    """Yield the address with each character replaced by each other one."""
    for index, old in enumerate(address):
        yield from (address[:index] + new + address[index + 1 :] for new in alphabet if new != old)


def transpositions(address: str) -> Iterator[str]:
    """Yield the address with each two neighbours in the other order."""
    for index, (first, second) in enumerate(itertools.pairwise(address)):
        if first != second:
            yield address[:index] + second + first + address[index + 2 :]


def per_cent_caught(chain: str, typos: Iterable[str]) -> float:
    verdicts = [check_address(typo, chain).verdict == "invalid" for typo in typos]
    # Cut, not rounded: 100 means all of them.
    return math.floor(1000 * sum(verdicts) / len(verdicts)) / 10 if verdicts else 100.0


@pytest.mark.parametrize(
    ("chain", "address", "alphabet", "figures"),
    [
        *SOME_TYPOS,
        *((chain, each, "".join(sorted({*each})), (100.0,) * 3) for (chain, _), each in ALL_TYPOS.items()),
    ],
)
def test_so_many_typos_are_caught(chain: str, address: str, alphabet: str, figures: tuple[float, float, float]) -> None:
    assert check_address(address, chain).verdict == "valid"
    in_another_case = (
        address[:index] + old.swapcase() + address[index + 1 :] for index, old in enumerate(address) if old.isalpha()
    )
    typos = replacements(address, alphabet), transpositions(address), in_another_case
    assert tuple(per_cent_caught(chain, each) for each in typos) == figures


def test_every_typo_in_the_example_is_caught() -> None:
    for row in read_whitelist_file(EXAMPLE).rows:
        address = row.request.address
        typos = replacements(address, "".join(sorted(set(address))))
        assert per_cent_caught(row.request.chain, typos) == 100, address
