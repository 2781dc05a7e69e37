"""The common base of the models of all subjects: lenient dictionaries of the data on the wire."""

from __future__ import annotations

import sys

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
