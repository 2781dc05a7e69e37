from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyRequestError, WhitelistRequest
from airflow_custody.client.models import parse_duration, parse_timestamp
from airflow_custody.client.text import has_unprintable, readable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5s", timedelta(seconds=1.5)),
        ("12.3ms", timedelta(milliseconds=12.3)),
        ("850\u00b5s", timedelta(microseconds=850)),
        ("850\u03bcs", timedelta(microseconds=850)),
        ("75us", timedelta(microseconds=75)),
        ("1m2.5s", timedelta(seconds=62.5)),
        ("-1h30m", -timedelta(hours=1.5)),
        ("0", timedelta(0)),
        ("", None),
        ("5", None),
        ("s", None),
        ("1.5 s", None),
        ("9" * 400 + "h", None),
    ],
)
def test_durations(text, expected):
    assert parse_duration(text) == expected


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9000)))
def test_a_go_duration_comes_back(duration):
    whole, micros = divmod(duration // timedelta(microseconds=1), 1_000_000)
    hours, rest = divmod(whole, 3600)
    text = f"{hours}h{rest // 60}m{rest % 60}.{micros:06d}s"
    assert abs(parse_duration(text) - duration) <= timedelta(microseconds=1)


@given(st.datetimes(timezones=st.just(timezone.utc)), st.integers(0, 999))
def test_a_timestamp_comes_back(moment: datetime, nanos: int):
    text = f"{moment:%Y}".zfill(4) + f"-{moment:%m-%dT%H:%M:%S}.{moment.microsecond:06d}{nanos:03d}Z"
    assert parse_timestamp(text) == moment


@given(st.text())
def test_no_text_breaks_the_readers(text):
    parse_duration(text)
    read = parse_timestamp(text)
    assert read is None or read.tzinfo is not None


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02",
        "2026-01-02T03:04:05",
        "1700000000",
        "2026-W01-1T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_timestamps_that_are_none(text):
    assert parse_timestamp(text) is None


@given(st.text(max_size=2000), st.integers(2, 300))
def test_readable_is_one_printable_line_of_that_length(text, limit):
    shown = readable(text, limit)
    assert len(shown) <= limit
    assert not has_unprintable(shown)


@given(st.text())
def test_an_address_is_taken_exactly_or_refused(address):
    if address != address.strip() or not address or has_unprintable(address):
        with pytest.raises(CustodyRequestError, match="address"):
            WhitelistRequest(label="a", address=address, blockchain="ETH")
    else:
        assert WhitelistRequest(label="a", address=address, blockchain="ETH").to_wire()["address"] == address


def test_wire_names_and_what_was_not_given():
    request = WhitelistRequest(label="a", address="x", blockchain="ETH", currency="ETH", visibility_group_id=7)
    assert request.to_wire() == {
        "label": "a",
        "address": "x",
        "blockchain": "ETH",
        "currency": "ETH",
        "visibilityGroupID": "7",
    }
