"""Secrets in text from elsewhere: they are found in whatever form they stand there."""

from __future__ import annotations

import base64
import json
import textwrap
import time
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_forms import FORMS, forms_of, secrets

from airflow_custody.client.redaction import Secret, redact
from airflow_custody.client.text import sanitize


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


ESCAPED = [form for form in FORMS if "base64" not in form and form != "read as Latin-1"]


@given(secrets, st.sampled_from(ESCAPED), st.data())
def test_a_text_that_ends_within_an_escape_ends_before_it(secret: str, form: str, data: st.DataObject) -> None:
    kept = data.draw(st.integers(4, len(secret)))
    whole, more = (FORMS[form](secret[:length]) for length in (kept, kept + 1))
    end = data.draw(st.integers(len(whole), len(more)))
    shown = redact(f"{{({more[:end]}", [Secret(secret)])
    # A secret may begin as what is before it ends.
    assert shown.endswith("***")
    assert "{(".startswith(shown.removesuffix("***"))


TWICE = ["JSON, Go", "JSON, upper case", "HTML, decimal", "URL", "URL, form"]


@pytest.mark.parametrize("inner", TWICE)
@pytest.mark.parametrize("outer", TWICE)
def test_a_text_that_ends_within_an_escape_in_an_escape(inner: str, outer: str) -> None:
    secret = 'abcd"\u00e9\U0001f600e'
    text, part = (FORMS[outer](FORMS[inner](each)) for each in (secret, "abcd"))
    for end in range(len(part), len(text)):
        assert redact(f"{{({text[:end]}", [Secret(secret)]) == "{(***"


@pytest.mark.parametrize("end", ["", "%", "%3", "\\", "\\u", "\\u003", "\\x3", "&", "&e", "&#6", "&#x3", "\ufffd"])
def test_what_is_before_the_beginning_of_an_escape_is_the_end(end: str) -> None:
    assert redact(f"denied: /api?access_token=t0ken-t0ken-t0ken{end}", [Secret("t0ken-t0ken-t0ken=")]).endswith("=***")
    assert redact(f"cut {end}", [Secret("t0ken-t0ken-t0ken=")]) == f"cut {end}"


# Unescaped by itself, a secret may be shorter, and too short to be joined.
wrapped_secrets = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="\\&%"), min_size=16, max_size=60
)


@given(wrapped_secrets, st.sampled_from(ESCAPED), st.integers(1, 76), st.sampled_from(["\n", "\r\n ", "\u200b"]))
def test_a_line_may_break_within_an_escape(secret: str, form: str, width: int, line_break: str) -> None:
    escaped = FORMS[form](secret)
    wrapped = line_break.join(escaped[start : start + width] for start in range(0, len(escaped), width))
    assert redact(f"<{wrapped}>", [Secret(secret)]) == "<***>"
    assert redact(f"<{json.dumps(wrapped)}>", [Secret(secret)]) == '<"***">'


@given(wrapped_secrets, st.integers(4, 76), st.sampled_from(["\n ", "\r\n "]))
def test_a_folded_header_in_a_form(secret: str, width: int, line_break: str) -> None:
    folded = line_break.join(secret[start : start + width] for start in range(0, len(secret), width))
    assert redact(f"a=1&b={quote_plus(folded)}&c=2", [Secret(secret)]) == "a=1&b=***&c=2"


@given(secrets, st.sampled_from(["JSON", "JSON, raw", "JSON, slashes", "URL, form"]), st.sampled_from(["", "u", "u:"]))
def test_base64_of_a_whole_body(secret: str, form: str, before: str) -> None:
    inner = f"{before}{FORMS[form](secret)}"
    encoded = base64.b64encode(f"{inner}, more".encode()).decode()
    left = "".join(redact(encoded, [Secret(secret)]).split("***"))
    # At most one byte at each end.
    assert len(left) <= len(encoded) - len(FORMS[form](secret).encode()) * 4 // 3 + 4


def test_a_long_secret_in_a_long_text_costs_little() -> None:
    started = time.process_time()
    assert redact("a" * 1_000_000, [Secret("a" * 4000)]) == "***"
    assert redact("ab" * 500_000 + "!", [Secret("ab" * 2000)]) == "***!"
    assert time.process_time() - started < 3


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
