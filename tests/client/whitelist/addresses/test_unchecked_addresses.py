"""Addresses that cannot be checked are counted and named; the decoders are imported for the first address."""

from __future__ import annotations

import subprocess
import sys

from airflow_custody.client.whitelist.files.reading import WhitelistFile, parse_whitelist

HEAD = "label,address,blockchain\n"
ROW = f"a,0x{1:040x},ETH\n"
UNKNOWN = [f"{each},{each}{index},{each}\n" for index, each in enumerate(("XYZ", "xyz", "B", "C", "D", "E", "G"))]


def read(*rows: str, check_addresses: bool = True) -> WhitelistFile:
    return parse_whitelist((HEAD + "".join(rows)).encode(), "csv", check_addresses=check_addresses)


def test_a_library_is_imported_with_the_first_address_that_needs_it() -> None:
    code = (
        "import sys\n"
        "from airflow_custody.client.whitelist.addresses.checks import check_address\n"
        "imported = lambda: 'Crypto' in sys.modules\n"
        "check_address('x', 'no chain'); check_address('bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4', 'BTC')\n"
        "assert not imported()\n"
        "assert check_address('1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa', 'BTC').verdict == 'valid'\n"
        "assert not imported()\n"
        "assert check_address('0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed', 'ETH').verdict == 'valid'\n"
        "assert imported()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_a_file_says_which_addresses_could_not_be_checked() -> None:
    assert read(ROW).unchecked == 0
    assert read(ROW).unchecked_text == ""
    file = read(ROW, *UNKNOWN[:3])
    assert file.unchecked == 3
    assert file.unchecked_chains == ("XYZ", "B")
    assert file.unchecked_text == "addresses: 3 of 4 could not be checked (XYZ, B)"
    assert read(*UNKNOWN, check_addresses=False).unchecked_text == ""
