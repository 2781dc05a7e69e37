from __future__ import annotations

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_forms import FORMS, forms_of, secrets

from airflow_custody.client.text import Secret, as_list, count, escape, has_unprintable, redact, sanitize


@given(st.text(max_size=2000), st.integers(2, 300))
def test_sanitize_returns_one_printable_line_of_that_length(text: str, limit: int) -> None:
    line = sanitize(text, limit)
    assert len(line) <= limit
    assert not has_unprintable(line)


def test_a_number_has_the_right_noun() -> None:
    assert [count(number, "byte") for number in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]


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


@pytest.mark.parametrize("short", ["a", "ab", "abc", ""])
def test_nothing_is_quoted_where_a_secret_is_too_short_to_be_found(short: str) -> None:
    assert redact("all of this, and cab", [Secret(short), Secret("long enough")]) == "***"
    assert redact("", [Secret(short)]) == ""


@given(st.text(max_size=300))
def test_other_text_is_left_alone(text: str) -> None:
    assert redact(text, [Secret("\u2603 snowman \u2603")]) == text


def test_many_tokens_cost_little() -> None:
    many = [Secret(f"eyJhbGciOiJIUzI1NiJ9.{number:0900}.abcdef") for number in range(200)]
    started = time.perf_counter()
    redact('{"message": "caf\\u00e9 &amp; %20"}' * 200, many)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize("letter", "\u034f\u115f\u1160\u17b4\u2800\u3164\uffa0\u200b\x1b")
def test_letters_that_cannot_be_seen_are_found(letter: str) -> None:
    assert has_unprintable(f"a{letter}b")
    assert sanitize(f"a{letter}b") == "a b"
    assert escape(f"a{letter}b") == f"a\\u{ord(letter):04x}b"
    assert not has_unprintable("Zürich é 漢字 한글 ❤️")
