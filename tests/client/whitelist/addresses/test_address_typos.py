"""Where addresses have a checksum, each typo of one character is found; where they have none, few are."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_custody.client.whitelist.addresses.checks import check_address
from airflow_custody.client.whitelist.files.reading import read_whitelist_file

EXAMPLE = Path(__file__).parents[4] / "example_dags" / "custody_whitelist.yaml"
VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "address_vectors.json").read_text())
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
CHECKED = ["BTC", "BCH", "LTC", "DOGE", "XRP", "XLM", "XTZ", "DOT", "TAO", "ALGO", "Cosmos", "Mina", "TRON"]
#: An address of each form with a checksum. The forms of a chain begin in their own ways.
ADDRESSES = {
    (each["chain"], address[:3]): address
    for each in VECTORS
    for address in each.get("valid", ())
    if each["chain"] in CHECKED or address.startswith("addr")
}
ADDRESSES["ETH", "0x5"] = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
ADDRESSES["ICP", "a72"] = "a7218db708c35689495871c3c6860504503ab2a545630809dd8609130331b0c2"


def typos(address: str, alphabet: str = "") -> Iterator[str]:
    """Yield the address with each character replaced by every other one; default: by those of the address."""
    for index, old in enumerate(address):
        yield from (address[:index] + new + address[index + 1 :] for new in {*(alphabet or address)} if new != old)


@pytest.mark.parametrize(("chain", "address"), [(chain, each) for (chain, _), each in ADDRESSES.items()])
def test_every_typo_is_found(chain: str, address: str) -> None:
    assert check_address(address, chain).verdict == "valid"
    assert [each for each in typos(address) if check_address(each, chain).verdict != "invalid"] == []


@pytest.mark.parametrize(
    ("chain", "address", "alphabet", "per_cent"),
    [
        ("ETH", "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", string.hexdigits[:16], 5),
        ("SOL", "7VH1XhBY1DmFk98fBdLqEbDsKpr41whdM8EzipizyVCJ", BASE58, 2),
    ],
)
def test_without_a_checksum_few_are_found(chain: str, address: str, alphabet: str, per_cent: int) -> None:
    verdicts = [check_address(each, chain).verdict for each in typos(address, alphabet)]
    assert round(100 * verdicts.count("invalid") / len(verdicts)) == per_cent


def test_every_typo_in_the_example_is_found() -> None:
    for row in read_whitelist_file(EXAMPLE).rows:
        verdicts = {check_address(each, row.request.chain).verdict for each in typos(row.request.address)}
        assert verdicts == {"invalid"}
