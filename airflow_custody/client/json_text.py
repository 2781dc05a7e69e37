"""Reads JSON from outside, in bounded memory."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from airflow_custody.client.wire import each_once

# The service's own answers have one value in about 70 bytes: most of their text is hashes, keys and signatures.
_BYTES_PER_VALUE = 64
# So that a small limit of bytes still admits small values.
_MIN_VALUES = 10_000


class TooManyValuesError(ValueError):
    """Raised for JSON text with more values than its limit of bytes allows."""


def check_structure(text: str | bytes, max_bytes: int) -> None:
    """
    Refuse JSON text that would need much more memory than its bytes.

    An empty object takes three bytes of text, but 72 bytes of memory, so a limit of bytes does not limit memory. The
    text may have one value for each 64 bytes of the limit, and 10,000 values in any case.

    :param text: the text, not parsed yet. Separators within strings count, too.
    :param max_bytes: maximum size of such a text in bytes.
    :raises TooManyValuesError: if it may have more values.
    """
    separators: tuple[Any, ...] = (",", ":", "[", "{") if isinstance(text, str) else (b",", b":", b"[", b"{")
    maximum = max(_MIN_VALUES, max_bytes // _BYTES_PER_VALUE)
    if sum(map(text.count, separators)) > maximum:
        raise TooManyValuesError(f"it has more than {maximum} values")


def read_json(data: bytes, max_bytes: int, *, unique_keys: bool = False) -> Any:
    """
    Return the data in JSON text from outside.

    :param data: the text, in UTF-8.
    :param max_bytes: maximum size of such a text in bytes; the caller has checked it. It also limits the number of
        values: see :func:`check_structure`.
    :param unique_keys: whether to refuse a repeated key. Otherwise, its last value counts. Default False.
    :raises ValueError: if it is not JSON, has too many values, or is nested too deeply, or if a key is repeated.
    """
    check_structure(data, max_bytes)
    if not unique_keys:
        from pydantic_core import from_json

        return from_json(data, allow_inf_nan=False)
    try:
        return json.loads(data.decode(), object_pairs_hook=each_once, parse_constant=_refuse)
    except RecursionError:
        pass
    raise ValueError("it is nested too deeply")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
