"""
The common base of the models of all subjects.

It has lenient dictionaries, and objects without repeated keys.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic import ConfigDict

if sys.version_info >= (3, 12):
    from typing import TypedDict as TypedDict
else:
    # pydantic needs this one before Python 3.12.
    from typing_extensions import TypedDict as TypedDict

#: For every model that has strings: the service may send a number where a string is expected.
LENIENT = ConfigDict(coerce_numbers_to_str=True)
#: For a model whose other fields matter, whatever they are.
KEEPING_OTHERS = ConfigDict(coerce_numbers_to_str=True, extra="allow")


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """
    Return a JSON object, as the ``object_pairs_hook`` of :func:`json.loads`.

    :raises ValueError: if a key comes twice: the last one would count, and hide what the others say.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it repeats a key in one object")
    return found
