"""Listings: configurable behaviour, and paging with a cursor."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.settings import ListingName, ListingSettings
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.wire import decode_base64, is_decimal, omit_empty

Row = TypeVar("Row")
Query = TypeVar("Query", bound=BaseModel)

DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100
# This prefix makes each cursor contain "+", "/" and "=", which clients must encode in URLs.
_CURSOR_PREFIX = b"\xfb\xef\xff"


class Listing:
    """
    The behaviour of a listing. A test may make it faulty.

    :param state: the sandbox's state.
    :param name: name of the listing.
    """

    def __init__(self, state: State, name: ListingName) -> None:
        self._state = state
        self._name = name

    @property
    def _settings(self) -> ListingSettings:
        return self._state.settings.listings.get(self._name) or ListingSettings()

    def understood(self, query: Query) -> Query:
        """Return a query without the parameters that the listing ignores."""
        given, ignored = query.model_dump(by_alias=True, exclude_unset=True), {*self._settings.ignored}
        kept = {name: value for name, value in given.items() if not ignored & {name, name.partition(".")[0]}}
        return type(query).model_validate(kept)

    def page_size(self, size: int) -> int:
        """Return the page size for a requested size."""
        return min(size, self._settings.page_size or size)

    @property
    def is_arranged(self) -> bool:
        """Whether a test has set the order of the rows, or drops some of them."""
        return bool(self._settings.orders or self._settings.dropped)

    def arrange(self, rows: list[Row], identify: Callable[[Row], str]) -> list[Row]:
        """Return the rows in the next configured order; repeat the last order."""
        if not self._settings.orders:
            return rows
        by_id = {identify(row): row for row in rows}
        return [by_id[each] for each in _take(self._settings.orders) if each in by_id]

    def cut(self, rows: list[Row], identify: Callable[[Row], str], offset: int, size: int) -> list[Row]:
        """Return the rows of the page of this size at an offset, without dropped rows."""
        dropped, size = self._settings.dropped, self.page_size(size)
        if self._settings.dropped_keep_place:
            return [row for row in rows[offset : offset + size] if identify(row) not in dropped]
        return [row for row in rows if identify(row) not in dropped][offset : offset + size]

    def total(self, number: int) -> str | int | None:
        """Return the next total that a test has set (the last one is repeated), or else the actual total."""
        if self._settings.totals:
            return _take(self._settings.totals)
        return str(number) if number else None


class Paging(BaseModel):
    """The parameters that select a page of a listing."""

    request: Literal["FIRST", "NEXT"] = Field(default="FIRST", alias="cursor.pageRequest")
    size: int = Field(default=DEFAULT_PAGE_SIZE, alias="cursor.pageSize", ge=1, le=MAX_PAGE_SIZE)
    current: str | None = Field(default=None, alias="cursor.currentPage")

    def cut(self, rows: list[dict[str, Any]], listing: Listing) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the rows of the page, and its cursor."""
        rows = listing.arrange(rows, lambda row: str(row.get("id")))
        size = listing.page_size(self.size)
        start, cursor = self.place(size, len(rows))
        return rows[start : start + size], cursor

    def place(self, size: int, total: int) -> tuple[int, dict[str, Any]]:
        """
        Return the position of the page's first row, and the page's cursor.

        The content of `currentPage` is an assumption. Clients should not interpret it.
        """
        start = self._current_start() + size if self.request == "NEXT" else 0
        page = base64.b64encode(_CURSOR_PREFIX + f"{start:011}".encode()).decode()
        return start, omit_empty(currentPage=page, hasPrevious=start > 0, hasNext=start + size < total)

    def _current_start(self) -> int:
        start = decode_base64(self.current or "").removeprefix(_CURSOR_PREFIX).decode("ascii", errors="replace")
        if not is_decimal(start) or len(start) > 12:
            raise invalid("cursor.currentPage: not a cursor of this listing")
        return int(start)


def _take(values: list[Row]) -> Row:
    return values.pop(0) if len(values) > 1 else values[0]
