"""Time stamps as the service writes them."""

from __future__ import annotations

import re
from datetime import datetime, timezone

#: The beginning of Unix time.
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

# No date of a service is older than the first blockchain. An earlier date is a program's zero value: not set.
_EARLIEST = datetime(2009, 1, 1, tzinfo=timezone.utc)
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def format_unix_time(seconds: int) -> str | None:
    """
    Return a Unix time as an ISO 8601 date in UTC.

    :param seconds: the time.
    :return: the date; None if it is out of range.
    """
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def parse_timestamp(text: str | None, *, keep_zero: bool = False) -> datetime | None:
    """
    Parse an RFC 3339 timestamp.

    :param text: date and time with an offset or ``Z``, up to nine fractional digits.
    :param keep_zero: whether to return a time before 2009, too, such as Go's zero time. Default False: None.
    :return: the aware time in UTC, truncated to microseconds; None if there is none, or it has another form.
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
