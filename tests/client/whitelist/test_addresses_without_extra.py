"""Without the extra ``addresses``, nothing is checked and nothing fails; with it, the first address imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_custody.client.whitelist import addresses
from airflow_custody.client.whitelist.file import WhitelistFile, parse_whitelist

HEAD = "label,address,blockchain\n"
ROW = f"a,0x{1:040x},ETH\n"
UNKNOWN = [f"{each},{each}{index},{each}\n" for index, each in enumerate(("XYZ", "xyz", "B", "C", "D", "E", "G"))]


def read(*rows: str, check_addresses: bool = True) -> WhitelistFile:
    return parse_whitelist((HEAD + "".join(rows)).encode(), "csv", check_addresses=check_addresses)


def test_nothing_of_the_extra_is_imported_before_the_first_address() -> None:
    code = (
        "import sys\n"
        "from airflow_custody.client.whitelist import addresses\n"
        "addresses.is_installed(); addresses.check_address('x', 'no chain')\n"
        "assert not [name for name in sys.modules if name.startswith(('bip_utils', 'Crypto', 'coincurve'))]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_a_file_says_which_addresses_could_not_be_checked() -> None:
    pytest.importorskip("bip_utils")
    assert (read(ROW).unchecked, read(ROW).unchecked_text) == (0, "")
    file = read(ROW, *UNKNOWN[:3])
    assert (file.unchecked, file.unchecked_chains) == (3, ("XYZ", "B"))
    assert file.unchecked_text == "addresses: 3 of 4 could not be checked (XYZ, B)"
    assert read(*UNKNOWN, check_addresses=False).unchecked_text == ""


def test_without_the_extra_nothing_is_checked_and_the_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "is_installed", lambda: False)
    for address, chain in (("0x", "ETH"), ("", ""), ("?", "BTC"), ("a", "no chain")):
        assert addresses.check_address(address, chain).verdict == "unchecked"
    file = read(ROW, *UNKNOWN)
    assert file.unchecked == len(file.rows) == 8
    assert file.unchecked_text == f"addresses were not checked: {addresses.MISSING_LIBRARY}"
