"""Time stamps and durations as the service writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise

#: The beginning of Unix time.
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# No date of a service is older than the first blockchain. An earlier date is a zero value, which means that the date is
# not set.
_EARLIEST = datetime(2009, 1, 1, tzinfo=timezone.utc)
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)

# The units of Go's durations, in nanoseconds. The micro sign is U+00B5 or U+03BC.
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,
    "\u03bcs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
# The units of durations for people, in seconds.
_UNITS_FOR_PEOPLE = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|[u\u00b5\u03bc]s|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)((?:{_DURATION_PART.pattern})+|0)")
# Go writes a duration in at most 25 characters, and counts nanoseconds in 64 bits.
_MAX_DURATION_LENGTH = 100
_MAX_NANOSECONDS = 2**63 - 1


def format_unix_time(seconds: int) -> str | None:
    """
    Return a Unix time as an ISO 8601 date in UTC.

    :param seconds: the time.
    :return: the date; None if the time is out of range.
    """
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def parse_timestamp(text: str | None, *, keep_zero: bool = False) -> datetime | None:
    """
    Parse an RFC 3339 timestamp.

    :param text: date and time with an offset or ``Z``, up to nine fractional digits.
    :param keep_zero: whether to also return a time before 2009, such as Go's zero time. Default False: None is returned
        for it.
    :return: the time in UTC, with its time zone, truncated to microseconds; None if there is no text, or it has another
        form.
    """
    if not text:
        return None
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        return None
    date, clock, fraction, offset = parts.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    try:
        # Python 3.10 does not read a Z, and reads only three or six fractional digits.
        moment = datetime.fromisoformat(f"{date}T{clock}.{micros}{'+00:00' if offset in 'Zz' else offset}")
        moment = moment.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
    return moment if keep_zero or moment >= _EARLIEST else None


def parse_duration(text: str | None) -> timedelta | None:
    """
    Parse a duration in the notation of Go.

    :param text: numbers with units, such as ``1.5s``, ``850µs`` or ``1m2.5s``; or ``0``.
    :return: the duration, rounded to microseconds; None if there is no text, it has another form, or the duration does
        not fit into 64 bits of nanoseconds.
    """
    if not text or len(text) > _MAX_DURATION_LENGTH:
        return None
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    parts = _DURATION_PART.findall(found[2])
    nanoseconds = sum((Fraction(number) * _UNITS[unit] for number, unit in parts), Fraction(0))
    if nanoseconds > _MAX_NANOSECONDS:
        return None
    duration = timedelta(microseconds=round(nanoseconds / 1000))
    return -duration if found[1] == "-" else duration


def describe_duration(seconds: float) -> str:
    """
    Return a time span as text, such as ``2 h 5 min``.

    The text has the largest unit, and also the next smaller unit if the number of largest units is below ten.

    :param seconds: the time span; a negative time span counts as zero.
    """
    rest = max(0, int(seconds))
    for (size, unit), (smaller_size, smaller_unit) in pairwise(_UNITS_FOR_PEOPLE):
        if rest < size:
            continue
        amount = rest // size
        smaller_amount = rest % size // smaller_size
        if smaller_amount and amount < 10:
            return f"{amount} {unit} {smaller_amount} {smaller_unit}"
        return f"{amount} {unit}"
    return f"{rest} s"
