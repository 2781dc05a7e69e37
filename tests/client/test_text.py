from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.text import (
    as_list,
    count,
    count_of,
    escape,
    escaped,
    has_unprintable,
    sanitize,
    sentences,
    without_emoji_style,
)


@given(st.text(max_size=2000), st.integers(2, 300))
def test_sanitize_returns_one_printable_line_of_that_length(text: str, limit: int) -> None:
    line = sanitize(text, limit)
    assert len(line) <= limit
    assert not has_unprintable(line)


def test_a_number_has_the_right_noun() -> None:
    assert [count(number, "byte") for number in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]
    assert [count_of(number, 1, "row") for number in (0, 1)] == ["0 of 1 row is", "1 of 1 row is"]
    assert [count_of(number, 3, "batch", "batches") for number in (0, 1, 2)] == [
        "0 of 3 batches are",
        "1 of 3 batches is",
        "2 of 3 batches are",
    ]


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["It failed", "Try again."], "It failed. Try again."),
        (["It failed.", None, "", "Try again."], "It failed. Try again."),
        (["Do you mean 'a'?", "It is in 'b'."], "Do you mean 'a'? It is in 'b'."),
        (["It failed", None], "It failed"),
        ([None], ""),
    ],
)
def test_sentences_have_one_mark_each(texts: list[str | None], joined: str) -> None:
    assert sentences(*texts) == joined


def test_one_string_is_a_list_of_one() -> None:
    assert as_list("hsm") == ["hsm"]
    assert as_list(iter(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("letter", "\u034f\u115f\u1160\u17b4\u2800\u3164\uffa0\u200b\x1b")
def test_letters_that_cannot_be_seen_are_found(letter: str) -> None:
    assert has_unprintable(f"a{letter}b")
    assert sanitize(f"a{letter}b") == "a b"
    assert escape(f"a{letter}b") == f"a\\u{ord(letter):04x}b"
    assert escape("\ue0041\U000e0041") == "\\ue0041\\U000e0041"
    assert not has_unprintable("Zürich é 漢字 한글 ❤")


def test_an_emoji_may_say_that_it_is_one_and_is_shown_as_it_is_written() -> None:
    assert without_emoji_style("I ❤️ ™️ ⚠️ ↔️ 🏷️") == "I ❤ ™ ⚠ ↔ 🏷"
    # Apple's keyboards write it also after what is never shown as text.
    assert without_emoji_style("⚡️ ⭐️ ✅️ 😀️") == "⚡ ⭐ ✅ 😀"
    assert escape("❤️") == "❤\\ufe0f"
    # It changes nothing of anything else.
    for each in ("79\ufe0f19", "\ufe0f", "❤\ufe0f\ufe0f", "❤\ufe0e", "1\ufe0f", "°\ufe0f", "☝🏽\ufe0f"):
        assert has_unprintable(without_emoji_style(each))
    assert not [each for each in "+=<>|~$^`#*" if without_emoji_style(f"{each}\ufe0f") == each]


# DerivedCoreProperties.txt of Unicode 14, Default_Ignorable_Code_Point.
_IGNORABLE = (
    "00AD 034F 061C 115F..1160 17B4..17B5 180B..180F 200B..200F 202A..202E 2060..206F 3164 FE00..FE0F FEFF FFA0 "
    "FFF0..FFF8 1BCA0..1BCA3 1D173..1D17A E0000..E0FFF"
)
IGNORABLE = [
    chr(number)
    for each in _IGNORABLE.split()
    for number in range(int(each.split("..")[0], 16), int(each.split("..")[-1], 16) + 1)
]


# What nobody sees, by its name: a filler that is punctuation is seen.
BLANK = [
    chr(number)
    for number in range(0x110000)
    if unicodedata.category(chr(number))[0] not in "PZ"
    and re.search(
        r"BLANK$|FILLER|\bJOINER|NULL NOTEHEAD|OBJECT REPLACEMENT|LETTER SELECTOR|HIEROGLYPH MIRROR",
        unicodedata.name(chr(number), ""),
    )
]


@given(st.sampled_from([*IGNORABLE, *BLANK]), st.text(max_size=20), st.text(max_size=20))
def test_what_unicode_says_is_ignored_is_never_shown(letter: str, before: str, after: str) -> None:
    assert has_unprintable(before + letter + after)
    assert letter not in sanitize(before + letter + after)
    assert escaped(letter) in escape(before + letter + after)
    assert letter not in escape(before + letter + after)


def test_all_that_is_ignored_and_nothing_that_is_seen() -> None:
    assert len(IGNORABLE) == 4174
    assert all(map(has_unprintable, [*IGNORABLE, *BLANK]))
    assert {*"\u2800\ufffc\U00016fe4\U0001d159"} <= {*BLANK}
    assert all(escape(each) == escaped(each) for each in IGNORABLE)
    # By what all can be told: letters, marks, numbers, punctuation, symbols and spaces, but for those above.
    hidden = {*IGNORABLE, *BLANK}
    seen = (chr(number) for number in range(0x110000) if unicodedata.category(chr(number))[0] in "LMNPS")
    assert not [each for each in seen if each not in hidden and has_unprintable(each)]
