"""Text of other people on a page, and times as people read them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.airflow.airflow_runs import AIRFLOW

if AIRFLOW < (3, 1):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client.text import has_unprintable
from airflow_custody.plugin.cards import duration
from airflow_custody.plugin.rendering import visible, when

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
HIDDEN = re.compile(r'<span class="hidden" title="cannot be seen">((?:U\+[0-9A-F]{4,6} ?)+)</span>')


def read_back(markup: str) -> str:
    """Return the text that markup shows, what is shown as a number included."""
    inner = markup.removeprefix('<bdi class="text">').removesuffix("</bdi>")
    parts = HIDDEN.split(inner)
    assert not set("".join(parts[::2])) & set("<>\"'")
    return "".join(
        "".join(chr(int(each[2:], 16)) for each in part.split()) if number % 2 else unescape(part)
        for number, part in enumerate(parts)
    )


@given(st.text(max_size=10))
def test_nothing_of_a_text_is_markup_or_hidden(text: str) -> None:
    markup = str(visible(text))
    assert not has_unprintable(markup)
    assert read_back(markup) == text


@given(st.text(st.characters() | st.sampled_from('a\u200b\u0301\u202e<&"\n'), max_size=300), st.integers(1, 300))
def test_markup_is_not_much_longer_than_its_text(text: str, limit: int) -> None:
    markup = str(visible(text, limit))
    assert not has_unprintable(markup)
    assert len(markup) <= 5 * min(limit, len(text)) + 700


def test_many_characters_that_cannot_be_seen() -> None:
    assert visible("\u200b" * 4000, 4000).count("U+200B") == 10
    assert visible("a\u200b" * 12).endswith("</span>a\ufffda\ufffd</bdi>"), "each stands where it was"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # A character that cannot be seen is shown as its number, here in brackets.
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ('" onload="x', "&#34; onload=&#34;x"),
        ("a\u202eb\u200bc\nd", "a[U+202E]b[U+200B]c[U+000A]d"),
        ("e\u0301\u0323\u0308\u0301\u0301", "e\u0301\u0323\u0308[U+0301][U+0301]"),
        ("x" * 400, f"{'x' * 300}…"),
        # No two texts look alike by what is blank.
        ("7919 ", "7919[U+0020]"),
        ("Treasury  cold", "Treasury  cold"),
        ("Treasury\ufe01 cold", "Treasury[U+FE01] cold"),
    ],
)
def test_hostile_text(text: str, shown: str) -> None:
    assert HIDDEN.sub(r"[\1]", visible(text)) == f'<bdi class="text">{shown}</bdi>'


def test_durations() -> None:
    spans = (-5, 0.4, 59, 60, 61, 599, 601, 7_500, 90_000, 86_400 * 400)
    assert [*map(duration, spans)] == (
        ["0 s", "0 s", "59 s", "1 min", "1 min 1 s", "9 min 59 s", "10 min", "2 h 5 min", "1 d 1 h", "400 d"]
    )


def test_moments() -> None:
    before = NOW - timedelta(hours=2)
    exact = 'datetime="2026-01-02T01:04:05Z" title="2026-01-02 01:04:05 UTC"'
    assert when(before, NOW) == f'<time {exact}>2 h ago <span class="at">2026-01-02 01:04 UTC</span></time>'
    assert when(before.astimezone(timezone(timedelta(hours=9))), NOW) == when(before, NOW)
    assert ">in 3 d <" in when(NOW + timedelta(days=3), NOW)
    assert ">just now <" in when(NOW, NOW)
    assert ">unknown<" in when(None, NOW)
