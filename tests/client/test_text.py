from __future__ import annotations

import base64
import json
import re
import textwrap
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_forms import FORMS, forms_of, secrets

from airflow_custody.client.text import (
    Secret,
    as_list,
    count,
    count_of,
    escape,
    has_unprintable,
    redact,
    sanitize,
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


def test_one_string_is_a_list_of_one() -> None:
    assert as_list("hsm") == ["hsm"]
    assert as_list(iter(["a", "b"])) == ["a", "b"]


# --- secrets -----------------------------------------------------------------------------------------------


@given(secrets, st.sampled_from(list(FORMS)), st.sampled_from([("", ""), ("{(", ")}"), ("bad: '", "'. Try again.")]))
def test_a_secret_is_redacted_in_every_form(secret: str, form: str, around: tuple[str, str]) -> None:
    before, after = around
    shown = redact(before + FORMS[form](secret) + after, [Secret(secret)])
    assert not [each for each in forms_of(secret) if each in shown]
    # Nothing else is lost. Of base64, the end of a secret without padding may share a character with what follows.
    assert (shown.startswith(before), shown.endswith(after[-4:])) == (True, True)
    assert len(shown) < len(before + after) + 8


@given(secrets, secrets, st.sampled_from(list(FORMS)), st.data())
def test_overlapping_secrets_leave_no_tail(first: str, second: str, form: str, data: st.DataObject) -> None:
    shared = data.draw(st.integers(0, len(first)))
    other = first[shared:] + second
    text = FORMS["plain"](first[:shared] + other)
    shown = redact(f"{{({text})}}", [Secret(first), Secret(other), Secret(FORMS[form](other))])
    assert shown == "{(***)}"


@pytest.mark.parametrize(("secret", "text"), [("abcabcabc", "abcabcabcabc"), ("aaaa", "aaaaaaa"), ("abab", "abababab")])
def test_a_secret_that_overlaps_itself(secret: str, text: str) -> None:
    assert redact(f"<{text}>", [Secret(secret)]) == "<***>"


@pytest.mark.parametrize("before", ["", "u:", "u"])
@given(secret=secrets)
def test_base64_at_every_alignment(before: str, secret: str) -> None:
    # As in the header for a proxy.
    encoded = base64.b64encode(f"{before}{secret}:more".encode()).decode()
    shown = redact(encoded, [Secret(secret)])
    assert "***" in shown
    # At most one byte at each end.
    left = "".join(shown.split("***"))
    assert len(left) <= len(encoded) - len(secret.encode()) * 4 // 3 + 4


@given(secrets, st.integers(4, 39))
def test_a_truncated_secret_at_the_end_is_redacted(secret: str, kept: int) -> None:
    part = secret[:kept]
    for shown in (part, json.dumps(part)[:-1]):
        assert redact(f"{{({shown}", [Secret(secret)]).removesuffix("***") in ("{(", '{("')


@given(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=16, max_size=200),
    st.sampled_from(["plain", "base64", "base64, unpadded", "base64, URL"]),
    st.integers(1, 76),
    st.sampled_from(["\n", "\r\n", "\r\n ", "\u200b"]),
    st.booleans(),
)
def test_a_long_secret_is_redacted_across_line_breaks(
    secret: str, form: str, width: int, line_break: str, is_escaped: bool
) -> None:
    wrapped = line_break.join(textwrap.wrap(FORMS[form](secret), width, break_on_hyphens=False))
    shown = redact(f"<{json.dumps(wrapped) if is_escaped else wrapped}>", [Secret(secret)])
    assert shown == ('<"***">' if is_escaped else "<***>")


# Of each kind that is not seen, or only as room: also what is private, not assigned, or half a character.
@pytest.mark.parametrize(
    "blank", ["\n", "\r\n ", "\n\n", "\t", "\u2003", "\u206a", "\ue000", "\u0378", "\ud800", "\u0600"]
)
def test_a_secret_with_blanks_is_redacted_wherever_the_line_breaks(blank: str) -> None:
    for secret in ("correct horse ba", "blue cat 9!", f"blue{blank}cat 9!", f"blue {blank}cat"):
        for inner in (blank, " "):
            echoed = f"password {inner.join(secret.split(' ', 1))}, host x"
            assert sanitize(redact(echoed, [Secret(secret)])) == "password ***, host x"


def test_a_short_secret_is_not_found_where_words_meet() -> None:
    assert redact("is a pass word", [Secret("sapass"), Secret("password")]) == "is a pass word"


@pytest.mark.parametrize("short", ["a", "ab", "abc", ""])
def test_nothing_is_quoted_where_a_secret_is_too_short_to_be_found(short: str) -> None:
    assert redact("all of this, and cab", [Secret(short), Secret("long enough")]) == "***"
    assert redact("", [Secret(short)]) == ""


@given(st.text(max_size=300))
def test_other_text_is_left_alone(text: str) -> None:
    assert redact(text, [Secret("\u2603 snowman \u2603")]) == text


def test_many_tokens_cost_little() -> None:
    many = [Secret(f"eyJhbGciOiJIUzI1NiJ9.{number:0900}.abcdef") for number in range(200)]
    started = time.process_time()
    redact('{"message": "caf\\u00e9 &amp; %20"}\n' * 200, many)
    redact("a \n" * 10_000, many)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("letter", "\u034f\u115f\u1160\u17b4\u2800\u3164\uffa0\u200b\x1b")
def test_letters_that_cannot_be_seen_are_found(letter: str) -> None:
    assert has_unprintable(f"a{letter}b")
    assert sanitize(f"a{letter}b") == "a b"
    assert escape(f"a{letter}b") == f"a\\u{ord(letter):04x}b"
    assert not has_unprintable("Zürich é 漢字 한글 ❤")


def test_an_emoji_may_say_that_it_is_one_and_is_shown_as_it_is_written() -> None:
    assert without_emoji_style("I ❤️ ™️ ⚠️ ↔️ 🏷️") == "I ❤ ™ ⚠ ↔ 🏷"
    # Apple's keyboards write it also after what is never shown as text.
    assert without_emoji_style("⚡️ ⭐️ ✅️ 😀️") == "⚡ ⭐ ✅ 😀"
    assert escape("❤️") == "❤\\ufe0f"
    # It changes nothing of anything else.
    for each in (
        "79\ufe0f19",
        "\ufe0f",
        "❤\ufe0f\ufe0f",
        "❤\ufe0e",
        "1\ufe0f",
        "☇\ufe0f",
        "°\ufe0f",
        "☝🏽\ufe0f",
    ):
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
    assert f"\\u{ord(letter):04x}" in escape(before + letter + after)
    assert letter not in escape(before + letter + after)


def test_all_that_is_ignored_and_nothing_that_is_seen() -> None:
    assert len(IGNORABLE) == 4174
    assert all(map(has_unprintable, [*IGNORABLE, *BLANK]))
    assert {*"\u2800\ufffc\U00016fe4\U0001d159"} <= {*BLANK}
    assert all(escape(each) == f"\\u{ord(each):04x}" for each in IGNORABLE)
    # By what all can be told: letters, marks, numbers, punctuation, symbols and spaces, but for those above.
    hidden = {*IGNORABLE, *BLANK}
    seen = (chr(number) for number in range(0x110000) if unicodedata.category(chr(number))[0] in "LMNPS")
    assert not [each for each in seen if each not in hidden and has_unprintable(each)]
