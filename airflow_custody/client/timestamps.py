"""Time stamps as the service writes them."""

from __future__ import annotations

import re
import sys
from datetime import datetime, timedelta, timezone

#: The beginning of Unix time.
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
# From Python 3.11 on, datetime reads nine digits and "Z" itself. It also reads much else: the form is checked before.
_READS_ANY_FRACTION = sys.version_info >= (3, 11)
# Makes a 0 of every digit, so that what is left is the form. There are two time stamps in each health check, and this
# is three times as fast as the expression.
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_USUAL_FORMS = frozenset(
    b"0000-00-00T00:00:00" + fraction + b"Z" for fraction in (b"", *(b"." + b"0" * digits for digits in range(1, 10)))
)


def unix_micros(moment: datetime) -> int:
    """Return the Unix time of a moment, which must have a time zone, in microseconds."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def format_unix_time(seconds: int) -> str | None:
    """
    Return a Unix time as an ISO 8601 date in UTC.

    :param seconds: the time.
    :return: the date; None if it is one that no date can have.
    """
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def parse_timestamp(text: str | None) -> datetime | None:
    """
    Parse an RFC 3339 timestamp.

    :param text: date and time with an offset or ``Z``, up to nine fractional digits.
    :return: the aware time in UTC, truncated to microseconds; None if there is none or it is not of this form.
    """
    if not text:
        return None
    try:
        if _READS_ANY_FRACTION and text.encode("ascii").translate(_DIGITS_TO_ZERO) in _USUAL_FORMS:
            return datetime.fromisoformat(text)
        if (parts := _TIMESTAMP.fullmatch(text)) is None:
            return None
        date, clock, fraction, offset = parts.groups()
        micros = fraction[:6].ljust(6, "0") if fraction else "000000"
        offset = "+00:00" if offset in "Zz" else offset
        return datetime.fromisoformat(f"{date}T{clock}.{micros}{offset}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None
