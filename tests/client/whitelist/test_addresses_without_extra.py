"""Without the extra ``addresses``, nothing is checked and nothing fails; with it, the first address imports it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from airflow_custody.client.whitelist import addresses
from airflow_custody.client.whitelist.file import WhitelistFile, parse_whitelist


@pytest.mark.parametrize(("address", "chain"), [("0x", "ETH"), ("", ""), ("?", "BTC"), ("a", "no chain")])
def test_without_the_extra_every_address_is_unchecked(
    address: str, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "is_installed", lambda: False)
    check = addresses.check_address(address, chain)
    assert check.verdict == "unchecked"
    assert "airflow-provider-custody[addresses]" in check.reason


def test_nothing_of_the_extra_is_imported_before_the_first_address() -> None:
    code = (
        "import sys\n"
        "from airflow_custody.client.whitelist import addresses\n"
        "addresses.is_installed(); addresses.check_address('x', 'no chain')\n"
        "assert not [name for name in sys.modules if name.startswith(('bip_utils', 'Crypto', 'coincurve'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


ROWS = [("label", "address", "blockchain", "network"), ("a", f"0x{1:040x}", "ETH", "")]
UNKNOWN = [(each, f"{each}{index}", each, "") for index, each in enumerate(("XYZ", "xyz", "B", "C", "D", "E"))]


def read(rows: Sequence[tuple[str, ...]], *, check_addresses: bool = True) -> WhitelistFile:
    text = "".join(f"{','.join(row)}\n" for row in rows)
    return parse_whitelist(text.encode(), "csv", check_addresses=check_addresses)


def test_a_file_counts_the_addresses_that_could_not_be_checked() -> None:
    pytest.importorskip("bip_utils")
    assert (read(ROWS).unchecked, read(ROWS).unchecked_text) == (0, "")
    file = read(ROWS + UNKNOWN[:3])
    assert (file.unchecked, file.unchecked_chains) == (3, ("XYZ", "B"))
    assert file.unchecked_text == "addresses: 3 of 4 could not be checked (XYZ, B)"
    many = read(ROWS + UNKNOWN + [("g", "G", "G", "")])
    assert many.unchecked_text == "addresses: 7 of 8 could not be checked (XYZ, B, C, D, E, ...)"


def test_without_the_extra_a_file_says_that_nothing_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "is_installed", lambda: False)
    file = read(ROWS + UNKNOWN)
    assert file.unchecked == len(file.rows) == 7
    assert file.unchecked_text == f"addresses were not checked: {addresses.MISSING_LIBRARY}"
    unchecked = read(ROWS + UNKNOWN, check_addresses=False)
    assert (unchecked.unchecked, unchecked.unchecked_text) == (0, "")
