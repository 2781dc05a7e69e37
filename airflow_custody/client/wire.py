"""
Common parts of the models of all areas.

Settings for lenient dictionaries, and a JSON hook that refuses repeated keys.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Only code that reads data into such a dictionary needs pydantic itself.
    from pydantic import ConfigDict

if sys.version_info >= (3, 12):
    from typing import TypedDict as TypedDict
else:
    # Before Python 3.12, pydantic needs this TypedDict.
    from typing_extensions import TypedDict as TypedDict

#: For every model with strings, because the service may send a number instead of a string.
LENIENT: ConfigDict = {"coerce_numbers_to_str": True}
#: For a model that keeps unknown fields.
KEEPING_OTHERS: ConfigDict = {"coerce_numbers_to_str": True, "extra": "allow"}


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """
    Return a JSON object, as the ``object_pairs_hook`` of :func:`json.loads`.

    :raises ValueError: if a key is repeated. Python would keep only its last value, and other parsers may keep another.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it repeats a key in one object")
    return found
