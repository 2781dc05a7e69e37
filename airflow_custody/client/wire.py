"""Common parts of the models of all areas: how leniently pydantic reads dictionaries."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Import pydantic only for type checkers, because only code that reads data into a dictionary needs it.
    from pydantic import ConfigDict

if sys.version_info >= (3, 12):
    from typing import TypedDict as TypedDict
else:
    # Before Python 3.12, pydantic needs this TypedDict.
    from typing_extensions import TypedDict as TypedDict

#: The configuration of every model with strings, because the service may send a number instead of a string.
LENIENT: ConfigDict = {"coerce_numbers_to_str": True}
#: The configuration of a model that keeps unknown fields.
KEEPING_OTHERS: ConfigDict = {"coerce_numbers_to_str": True, "extra": "allow"}
