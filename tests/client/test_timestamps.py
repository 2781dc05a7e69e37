from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_custody.client.timestamps import parse_duration, parse_timestamp

FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "2026-01-02T03:04:05.1234567890Z",
        # Python's datetime stops reading at a NUL.
        "2030-02-28T10:20:30.Z\x00Z",
    ],
)
def test_malformed_timestamps_are_not_parsed(text: str) -> None:
    assert parse_timestamp(text) is None


@given(st.data())
def test_only_rfc_3339_is_parsed(data: st.DataObject) -> None:
    # A few changes to what the service writes: there a quick check and a thorough one would differ.
    text = list(data.draw(st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z"]) | st.text()))
    for _ in range(data.draw(st.integers(0, 3)) if text else 0):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.sampled_from("0129-+:.,TtZzW ١\x00"))
    parsed = parse_timestamp("".join(text))
    assert parsed is None or (FORM.fullmatch("".join(text)) and parsed.tzinfo is not None)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2008-12-31T23:59:59.999999999Z"])
def test_a_time_before_2009_is_a_zero_value(text: str) -> None:
    assert parse_timestamp(text) is None
    assert parse_timestamp(text, keep_zero=True) is not None


@given(
    st.datetimes(datetime(2009, 1, 1)),
    st.sampled_from(["Z", "z", "+00:00", "-00:00"]),
    st.sampled_from("Tt"),
    st.integers(0, 9),
)
@example(datetime(2009, 1, 1), "z", "t", 0)
def test_every_spelling_of_a_time_in_utc_means_the_same(moment: datetime, end: str, middle: str, digits: int) -> None:
    fraction = f"{moment.microsecond:06d}000"[:digits]
    text = moment.replace(microsecond=0).isoformat().replace("T", middle) + (f".{fraction}" if fraction else "") + end
    expected = moment.replace(microsecond=int(fraction.ljust(6, "0")[:6] or 0), tzinfo=timezone.utc)
    assert parse_timestamp(text) == expected


# --- durations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("12.3ms", 12_300),
        ("850\u00b5s", 850),
        ("850\u03bcs", 850),
        ("1.5s", 1_500_000),
        ("1m2.5s", 62_500_000),
        ("2h45m0s", 9_900_000_000),
        ("-1m30s", -90_000_000),
        ("+2s", 2_000_000),
        ("0", 0),
        # Rounded to microseconds.
        ("930ns", 1),
        ("1.000000499s", 1_000_000),
        (".5s", 500_000),
        ("2562047h47m16.854775807s", 2**63 // 1000 + 1),
    ],
)
def test_a_duration_of_go(text: str, microseconds: int) -> None:
    assert parse_duration(text) == timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    "text",
    [
        *(
            None,
            "",
            " ",
            "1",
            "s",
            "-",
            ".",
            ".s",
            "1.5",
            "1s\n",
            "--1s",
            "1s-2s",
            "1,5s",
            "1e3s",
            "1d",
        ),
        *(
            "1.5.5s",
            "\u0661s",
            "1\u00b5",
            "PT1S",
            "nan",
            "2562047h47m16.854775808s",
            "9" * 5000 + "s",
            "1s" * 60,
        ),
    ],
    ids=lambda text: repr(text)[:30],
)
def test_anything_else_is_no_duration(text: str | None) -> None:
    assert parse_duration(text) is None
