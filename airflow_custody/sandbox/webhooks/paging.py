"""The pages of the listings of webhooks and of their calls."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Literal

from pydantic import BaseModel

from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.listings import Listing
from airflow_custody.sandbox.wire import is_decimal, omit_empty

DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 100


class Paging(BaseModel):
    """Which page of a listing to return."""

    request: Literal["FIRST", "NEXT", "PREVIOUS", "LAST"] = "FIRST"
    size: int = 0
    current: str | None = None

    def cut(self, rows: list[dict[str, Any]], listing: Listing) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the rows of the page, and its cursor."""
        rows = listing.arrange(rows, lambda row: str(row.get("id")))
        total, size = len(rows), listing.page_size(self.size or DEFAULT_PAGE_SIZE)
        start = self.start(total, size)
        return rows[start : start + size], self.cursor(start, size, total)

    def start(self, total: int, size: int) -> int:
        """Return the place of the page's first row."""
        if self.request == "FIRST":
            return 0
        if self.request == "LAST":
            return max(0, (total - 1) // size * size)
        start = _page_start(self.current)
        return start + size if self.request == "NEXT" else max(0, start - size)

    def cursor(self, start: int, size: int, total: int) -> dict[str, Any]:
        """
        Return the cursor of the page that begins at a place.

        The content of `currentPage` is an assumption: clients are not meant to read it.
        """
        return omit_empty(currentPage=_page_name(start), hasPrevious=start > 0, hasNext=start + size < total)


def _page_name(start: int) -> str:
    return base64.urlsafe_b64encode(str(start).encode()).decode()


def _page_start(page: str | None) -> int:
    if page is None:
        raise invalid("cursor.currentPage: Field required with NEXT and PREVIOUS")
    try:
        start = base64.urlsafe_b64decode(page).decode("ascii")
    except (binascii.Error, ValueError):
        start = ""
    if not is_decimal(start) or len(start) > 12:
        raise invalid("cursor.currentPage: not a page of this listing")
    return int(start)
