"""Read JSON from outside, in limited memory, and only if all JSON readers would read it in the same way."""

from __future__ import annotations

import json
from typing import Any, NoReturn

# JSON may have one value for each 64 bytes of its size limit. The service's own responses have one value in about 70
# bytes, because most of their text is hashes, keys and signatures.
_BYTES_PER_VALUE = 64
# Number of values that JSON may always have, so that a small size limit does not refuse many small values.
_MIN_VALUES = 10_000


class UnusableJsonError(ValueError):
    """Raised for JSON text that is refused for its structure."""


def check_structure(text: str | bytes, max_bytes: int) -> None:
    """
    Refuse JSON text that would need much more memory than its bytes.

    An empty object takes three bytes of text, but 72 bytes of memory, so a limit on the text's bytes does not limit the
    memory. The text may have one value for each 64 bytes of the limit, and 10,000 values in any case.

    :param text: the text, which is not parsed for this. Values are counted by their separators, so separators within
        strings count, too.
    :param max_bytes: maximum size of such a text in bytes.
    :raises UnusableJsonError: if the text may have more values.
    """
    separators: tuple[Any, ...] = (",", ":", "[", "{") if isinstance(text, str) else (b",", b":", b"[", b"{")
    maximum = max(_MIN_VALUES, max_bytes // _BYTES_PER_VALUE)
    if sum(map(text.count, separators)) > maximum:
        raise UnusableJsonError(f"it has more than {maximum} values")


def read_json(data: bytes, max_bytes: int) -> Any:
    """
    Return the data in JSON text from outside.

    A repeated key is refused, because Python would keep its last value, and other parsers may keep another one.

    :param data: the text, in UTF-8.
    :param max_bytes: maximum size of such a text in bytes; the caller has checked it. It also limits the number of
        values: see :func:`check_structure`.
    :raises UnusableJsonError: if it has too many values, is nested too deeply, or repeats a key in one object.
    :raises ValueError: if the text is not JSON, or contains half a surrogate pair.
    """
    check_structure(data, max_bytes)
    try:
        found = json.loads(data.decode(), object_pairs_hook=_each_once, parse_constant=_refuse)
    except RecursionError:
        found = _TOO_DEEP
    if found is _TOO_DEEP:
        raise UnusableJsonError("it is nested too deeply")
    # Let another parser refuse half a surrogate pair, which Python accepts, but cannot encode again.
    if b"\\u" in data:
        from pydantic_core import from_json

        from_json(data)
    return found


_TOO_DEEP = object()


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnusableJsonError("it repeats a key in one object")
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
