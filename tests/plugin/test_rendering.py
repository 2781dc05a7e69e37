"""Text from outside, and times, as the pages show them."""

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
from airflow_custody.client.timestamps import describe_duration
from airflow_custody.plugin.rendering import visible, when

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
HIDDEN = re.compile(r'<span class="hidden" title="invisible character">(U\+[0-9A-F]{4,6})</span>')


def read_back(markup: str) -> str:
    """Return the text that markup shows, with numbers turned back into characters."""
    inner = markup.removeprefix('<bdi class="text">').removesuffix("</bdi>")
    inner = re.sub(r'<span class="whole">([^<>]*)</span>', r"\1", inner)
    assert not set(HIDDEN.sub("", inner)) & set("<>\"'")
    text = ""
    for position, part in enumerate(HIDDEN.split(inner)):
        is_number = position % 2 == 1
        text += chr(int(part.removeprefix("U+"), 16)) if is_number else unescape(part)
    return text


@given(st.text(max_size=10))
def test_no_character_of_a_text_is_markup_or_invisible(text: str) -> None:
    markup = str(visible(text))
    assert not has_unprintable(markup)
    assert read_back(markup) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;", id="element"),
        pytest.param('" onload="x', "&#34; onload=&#34;x", id="attribute"),
        pytest.param("a\u202eb\u200bc\nd", "a[U+202E]b[U+200B]c[U+000A]d", id="invisible"),
        pytest.param("e\u0301\u0323\u0308\u0301\u0301", "e\u0301\u0323\u0308[U+0301][U+0301]", id="piled-up-marks"),
        pytest.param("x" * 400, f"{'x' * 300}…", id="long"),
        pytest.param("7919 ", "7919[U+0020]", id="blank-at-the-end"),
        pytest.param("Treasury  cold", "Treasury  cold", id="two-blanks"),
        pytest.param("\u200b" * 12, "[U+200B]" * 10 + "\ufffd\ufffd", id="many-invisible"),
        pytest.param("by a-b@c.example.", 'by <span class="whole">a-b@c.example</span>.', id="e-mail-address"),
        pytest.param("a@b.example", '<span class="whole">a@b.example</span>', id="only-an-e-mail-address"),
        pytest.param("Treasury\ufe01 cold", "Treasury[U+FE01] cold", id="variation-selector"),
    ],
)
def test_hostile_text(text: str, shown: str) -> None:
    """In the expected texts, the number of an invisible character is in brackets."""
    assert HIDDEN.sub(r"[\1]", visible(text)) == f'<bdi class="text">{shown}</bdi>'


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (601, "10 min"),
        (7_500, "2 h 5 min"),
        (86_400 * 400, "400 d"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert describe_duration(seconds) == words


TWO_HOURS_AGO = (NOW - timedelta(hours=2)).astimezone(timezone(timedelta(hours=9)))


def test_a_moment_is_one_time_and_the_other_is_its_tooltip() -> None:
    moment, exact = '<time datetime="2026-01-02T01:04:05Z" title="', "2026-01-02 01:04:05 UTC"
    assert when(TWO_HOURS_AGO, NOW) == f'{moment}{exact}">2 h ago</time>'
    assert when(TWO_HOURS_AGO, NOW, exact=True) == f'{moment}2 h ago">{exact}</time>'


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        pytest.param(NOW + timedelta(days=3), ">in 3 d<", id="future"),
        pytest.param(NOW, ">just now<", id="now"),
        pytest.param(None, ">unknown<", id="unknown"),
    ],
)
def test_other_moments(moment: datetime | None, words: str) -> None:
    assert words in when(moment, NOW)
