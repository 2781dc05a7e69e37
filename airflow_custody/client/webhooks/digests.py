"""Digests of the ids of calls as text, as a cursor is stored. Pure, no I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping

from airflow_custody.client.text import read_number

#: 48 bits: among the calls of one second, or those without a time stamp, no two are equal.
DIGEST_BYTES = 6
#: More than any cursor holds: calls of one second are all remembered.
MAX_STORED = 1_000_000


def write_digests(digests: Iterable[int]) -> str:
    """Return digests as text."""
    return base64.b64encode(b"".join(each.to_bytes(DIGEST_BYTES, "big") for each in digests)).decode()


def read_digests(text: object) -> tuple[int, ...]:
    """Return digests; raises ValueError if there are none in the text, or too many."""
    if not isinstance(text, str):
        raise ValueError("no text")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if len(data) % DIGEST_BYTES or len(data) > MAX_STORED * DIGEST_BYTES:
        raise ValueError("no digests")
    return tuple(int.from_bytes(data[at : at + DIGEST_BYTES], "big") for at in range(0, len(data), DIGEST_BYTES))


def read_recent(data: object, maximum: int) -> dict[int, int]:
    """
    Return numbers of seconds by the digests; raises ValueError as :func:`read_digests` does.

    :param data: the digests by the numbers of seconds, as text.
    :param maximum: the greatest number of seconds.
    """
    if not isinstance(data, Mapping):
        raise ValueError("no mapping")
    recent: dict[int, int] = {}
    for name, text in data.items():
        after = read_number(name, maximum) if isinstance(name, str) else None
        if after is None:
            raise ValueError("no number of seconds")
        recent.update(dict.fromkeys(read_digests(text), after))
        if len(recent) > MAX_STORED:
            raise ValueError("too many")
    return recent
