"""Common parts of the models of all areas: settings for lenient dictionaries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

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
