"""The payload of a webhook call: other people's JSON, read so that whatever it holds can be stored and sent on."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, DecimalException
from typing import Any, NoReturn

#: Maximum length of a payload that is parsed, in characters; a longer one stays text.
MAX_PARSED_LENGTH = 1024 * 1024
#: Maximum depth of a payload that is parsed; a deeper one stays text.
MAX_DEPTH = 32

# Characters that JSON may hold, and databases and encoders refuse: half a surrogate pair, and the null character.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# Beyond these, readers differ.
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1


def payload_text(value: object) -> str | None:
    """
    Return the text of a payload as it came; None: there is none.

    :param value: the payload: text, as is published. Of something else, the response's reader has read the numbers:
        one with many digits is rounded, one that is too large is ``Infinity``.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    # Not as published.
    try:
        return json.dumps(value)
    except (ValueError, TypeError, RecursionError):
        return None


def read_payload(value: str | None) -> Any:
    """
    Return the payload of a call as plain JSON data.

    Text that is JSON is parsed, unless it is very long or deep, or readers could differ about it: a key comes twice, a
    number is not finite, has more than 64 bits or would change, a string holds a null character or half a surrogate
    pair. Then it stays text.

    :param value: the text of the payload; None: there is none.
    :return: the data, or the text; None: there is none.
    """
    if not value:
        return None
    if len(value) > MAX_PARSED_LENGTH:
        return clean_text(value)
    try:
        parsed = _DECODER.decode(value)
        _require_storable(parsed)
    except (ValueError, RecursionError):
        return clean_text(value)
    return parsed


def clean_text(text: str) -> str:
    """Return a text with a replacement character for each character that databases and encoders refuse."""
    return _UNSTORABLE.sub("\ufffd", text)


def _refuse(_: str) -> NoReturn:
    raise ValueError("not JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _float(text: str) -> float:
    """Return a number with a fraction or exponent; raises ValueError if that changes it."""
    number = float(text)
    try:
        is_same = math.isfinite(number) and Decimal(text) == Decimal(repr(number))
    except DecimalException:
        is_same = False
    if not is_same:
        raise ValueError("a number would change")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_refuse, parse_float=_float)


def _require_storable(data: Any) -> None:
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("too deep")
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += [*each, *each.values()]
            elif isinstance(each, list):
                below += each
            elif isinstance(each, str):
                if _UNSTORABLE.search(each):
                    raise ValueError("a string cannot be stored")
            elif isinstance(each, int) and not _MIN_INTEGER <= each <= _MAX_INTEGER:
                raise ValueError("a number has too many bits")
        level = below
