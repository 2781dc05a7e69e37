from __future__ import annotations

import pytest

from airflow_custody.sandbox.whitelist.addresses import is_valid_address

GOOD = [
    ("ETH", "0x" + "ab" * 20),
    ("ETH", "0x" + "AB" * 20),
    ("ETH", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
    ("eth", "0x" + "0" * 40),
    ("BTC", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"),
    ("BTC", "3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy"),
    ("BTC", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq"),
    ("BTC", "BC1QAR0SRRR7XFKVY5L643LYDNW9RE59GTZZWF5MDQ"),
    ("BTC", "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"),
    ("BTC", "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"),
    ("XRP", "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh"),
    ("SOL", "11111111111111111111111111111111"),
    ("SOL", "So11111111111111111111111111111111111111112"),
    ("XLM", "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVN"),
    ("ADA", "addr1vx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzers66hrl8"),
    ("ADA", "Ae2tdPwUPEZFRbyhz3cpfC2CumGzNkFBN2L42rcUc2yjQpEkxDbkPodpMAi"),
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
    ("XLM", "G" + "\u0391" * 55),
    ("ADA", "anything at all"),
    ("ADA", "1" * 40),
    ("ADA", ""),
    ("Unheard", " "),
    # Each is one above with one character changed, or with the checksum of another version of SegWit.
    ("ETH", "0x" + "aB" * 20),
    ("ETH", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD"),
    ("BTC", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN3"),
    ("BTC", "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdz"),
    ("BTC", "bc1p38j9r5y49hruaue7wxjce0updqjuyyx0kh56v8s25huc6995vvpql3jow4"),
    ("XRP", "rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTi"),
    ("XLM", "GA5ZSEJYB37JRC5AVCIA5MOP4RHTM335X2KGX3IHOJAPP5RE34K4KZVM"),
    ("ADA", "addr1vx2fxv2umyhttkxyxp8x0dlpdt3k6cwng5pxj3jhsydzers66hrl9"),
    ("ADA", "Ae2tdPwUPEZFRbyhz3cpfC2CumGzNkFBN2L42rcUc2yjQpEkxDbkPodpMAj"),
]


@pytest.mark.parametrize(("chain", "address"), GOOD)
def test_valid_addresses(chain: str, address: str) -> None:
    assert is_valid_address(chain, address)


@pytest.mark.parametrize(("chain", "address"), BAD)
def test_invalid_addresses(chain: str, address: str) -> None:
    assert not is_valid_address(chain, address)


def test_where_nothing_decodes_them_only_a_blank_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_custody.sandbox.whitelist.addresses._can_decode", lambda: False)
    assert is_valid_address("BTC", "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN3")
    assert not is_valid_address("BTC", " ")
