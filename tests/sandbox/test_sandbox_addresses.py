from __future__ import annotations

import pytest

from airflow_custody.sandbox.whitelist.addresses import is_valid_address

GOOD = [
    ("ETH", "0x" + "aB" * 20),
    ("eth", "0x" + "0" * 40),
    ("BTC", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"),
    ("BTC", "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy"),
    ("BTC", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"),
    ("BTC", "BC1QAR0SRRR7XFKVY5L643LYDNW9RE59GTZZWF5MDQ"),
    ("BTC", "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"),
    ("XRP", "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh"),
    ("SOL", "11111111111111111111111111111111"),
    ("SOL", "So11111111111111111111111111111111111111112"),
    ("XLM", "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN"),
    ("ADA", "anything at all"),
    ("Unheard", "x"),
]
BAD = [
    ("ETH", "0x" + "a" * 39),
    ("ETH", "0x" + "a" * 41),
    ("ETH", "a" * 42),
    ("ETH", "0x" + "g" * 40),
    ("ETH", "0x" + "a" * 40 + "\n"),
    ("BTC", "0BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"),
    ("BTC", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVNI"),
    ("BTC", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdb"),
    ("BTC", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdQ"),
    ("XRP", "xHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh"),
    ("XRP", "r0b9CJAWyB4rj91VRWn96DkukG4bwdtyTh"),
    ("SOL", "1" * 31),
    ("SOL", "1" * 33),
    ("SOL", "0o11111111111111111111111111111111111111112"),
    ("SOL", "z" * 10_000),
    ("SOL", ""),
    ("XLM", "SA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN"),
    ("XLM", "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZV"),
    ("ADA", " "),
    ("ADA", ""),
]


@pytest.mark.parametrize(("chain", "address"), GOOD)
def test_valid_addresses(chain: str, address: str) -> None:
    assert is_valid_address(chain, address)


@pytest.mark.parametrize(("chain", "address"), BAD)
def test_invalid_addresses(chain: str, address: str) -> None:
    assert not is_valid_address(chain, address)
