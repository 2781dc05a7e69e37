"""Text from other sources is printed on one line, without invisible characters."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.text import (
    escape,
    escaped,
    has_unprintable,
    hidden_difference,
    name_some,
    sanitize,
    without_emoji_style,
)


@given(st.text(max_size=500), st.integers(2, 300))
def test_sanitize_returns_one_printable_line_of_that_length(text: str, limit: int) -> None:
    line = sanitize(text, limit)
    assert len(line) <= limit
    assert not has_unprintable(line)


def test_sanitize_keeps_what_follows_many_blanks() -> None:
    assert sanitize("\n " * 5000 + "the reason") == "the reason"


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ("Cafe\u0301 A", "Caf\xe9 A", "at character 4: U+0065 U+0301 and U+00E9"),
        ("Cold", "C\u043eld", "at character 2: U+006F and U+043E"),
        ("cafe", "cafe\u0301", "at character 5: nothing and U+0301"),
        ("abcdef", "\u0430\u0431\u0432\u0433\u0434\u0435", "at character 1: U+0061 U+0062 U+0063 U+0064 ... and "),
        ("a" * 9 + "b", "a" * 9 + "c", ""),
        ("a" * 10 + "b", "a" * 10 + "c", "at character 11: U+0062 and U+0063"),
        ("a" * 10, "a" * 12, "at character 11: nothing and U+0061 U+0061"),
        ("Cold", "Warm", ""),
        ("", "\xe9", ""),
    ],
)
def test_where_texts_differ_that_look_the_same(first: str, second: str, difference: str) -> None:
    found = hidden_difference(first, second, 10)
    assert found.startswith(difference) if difference else found == ""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], "", id="none"),
        pytest.param([*"abcdefghij"], "a, b, c, d, e, f, g, h, i, j", id="ten"),
        pytest.param([*"abcdefghijkl"], "a, b, c, d, e, f, g, h, i, j and 2 more", id="twelve"),
    ],
)
def test_at_most_ten_are_named(names: list[str], expected: str) -> None:
    assert name_some(names) == expected
    assert name_some(iter(names), 10) == expected


def test_names_are_sanitized_and_shortened_if_there_is_a_limit() -> None:
    assert name_some(["a\nb", "c" * 20], 10) == f"a b, {'c' * 9}…"
    assert name_some(["a  b"]) == "a  b"


def test_an_emoji_may_say_that_it_is_one_and_is_shown_as_it_is_written() -> None:
    assert without_emoji_style("I ❤️ ™️ ⚠️ ↔️ 🏷️") == "I ❤ ™ ⚠ ↔ 🏷"
    # Apple's keyboards write it also after what is never shown as text.
    assert without_emoji_style("⚡️ ⭐️ ✅️ 😀️") == "⚡ ⭐ ✅ 😀"
    assert escape("❤️") == "❤\\ufe0f"
    # The change does not affect any other text.
    for each in ("79\ufe0f19", "\ufe0f", "❤\ufe0f\ufe0f", "❤\ufe0e", "1\ufe0f", "°\ufe0f", "☝🏽\ufe0f"):
        assert has_unprintable(without_emoji_style(each))
    assert not [each for each in "+=<>|~$^`#*" if without_emoji_style(f"{each}\ufe0f") == each]


# DerivedCoreProperties.txt of Unicode 14, Default_Ignorable_Code_Point.
_IGNORABLE = (
    "00AD 034F 061C 115F..1160 17B4..17B5 180B..180F 200B..200F 202A..202E 2060..206F 3164 FE00..FE0F FEFF FFA0 "
    "FFF0..FFF8 1BCA0..1BCA3 1D173..1D17A E0000..E0FFF"
)
# By their names: a filler that is punctuation is seen.
_BLANK = re.compile(r"BLANK$|FILLER|\bJOINER|NULL NOTEHEAD|OBJECT REPLACEMENT|LETTER SELECTOR|HIEROGLYPH MIRROR")


def test_all_that_is_ignored_and_nothing_that_is_seen() -> None:
    ranges = [each.split("..") for each in _IGNORABLE.split()]
    ignorable = {
        chr(each) for first, *last in ranges for each in range(int(first, 16), int((last or [first])[0], 16) + 1)
    }
    assert len(ignorable) == 4174
    letters = [chr(number) for number in range(0x110000)]
    # Letters, marks, numbers, punctuation, symbols and spaces are seen, but for those above.
    hidden = ignorable | {
        each
        for each in letters
        if unicodedata.category(each)[0] not in "PZ" and _BLANK.search(unicodedata.name(each, ""))
    }
    assert {*"\u2800\ufffc\U00016fe4\U0001d159"} <= hidden
    assert escape("a\x1b\ue0041\U000e0041") == "a\\u001b\\ue0041\\U000e0041"
    assert all(
        has_unprintable(each) and escape(each) == escaped(each) and each not in sanitize(each) for each in hidden
    )
    seen = (each for each in letters if each not in hidden and unicodedata.category(each)[0] in "LMNPS")
    assert not [each for each in seen if has_unprintable(each)]
