"""
Listings in pages.

Each listing is complete, or ends with an error that gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.responses import Reply
from airflow_custody.client.text import count, has_unprintable, read_number, sanitize

Row = TypeVar("Row")

#: Maximum number of characters of an id.
MAX_ID_LENGTH = 200


@dataclass(frozen=True)
class OffsetPage(Generic[Row]):
    """
    A page of a listing that is read by offset.

    :param rows: the rows, each with its id.
    :param total: number of rows in the listing; None: the page does not give it.
    """

    rows: list[tuple[str, Row]]
    total: int | None


@dataclass(frozen=True)
class CursorPage(Generic[Row]):
    """
    A page of a listing that is read with a cursor.

    :param rows: the rows, each with its id.
    :param next: the name of this page, which is sent to request the next page; None: this is the last page.
    :param date: time of sending by the service's clock; None: not known.
    """

    rows: list[tuple[str, Row]]
    next: str | None
    date: datetime | None = None


def read_offset_listing(operation: Operation, fetch: Callable[[int], OffsetPage[Row]]) -> Iterator[Row]:
    """
    Read a listing by offset.

    A page is fetched when it is needed. Each page begins with the last row of the previous page. As long as that row is
    in its place and rows keep their order, every row that stays in the listing is found, even if other rows come or go.
    The total and the ids reveal most of the remaining changes.

    :param operation: the listing, for errors.
    :param fetch: fetches the page that begins at an offset.
    :return: the rows, each once.
    :raises CustodyResponseError: if the pages are inconsistent. It is retryable.
    """
    page = fetch(0)
    total, widest = page.total, len(page.rows)
    seen: dict[str, None] = {}
    fresh = page.rows
    while True:
        for identifier, row in fresh:
            if identifier in seen:
                raise listing_changed(operation, f"the id {identifier} is listed twice")
            seen[identifier] = None
            yield row
        if total is not None and len(seen) >= total:
            break
        if not fresh:
            if widest == 1 and fetch(len(seen)).rows:
                # Each page has only one row, the last row of the previous page, so no new row can be read.
                raise listing_changed(operation, "a page had one row, although there are more")
            break
        page = fetch(len(seen) - 1)
        widest = max(widest, len(page.rows))
        _check_follows(operation, page, total, seen)
        fresh = page.rows[1:]
    if total is not None and len(seen) != total:
        raise listing_changed(operation, f"{count(len(seen), 'row was', 'rows were')} listed, but the total is {total}")


def _check_follows(operation: Operation, page: OffsetPage[Row], total: int | None, seen: dict[str, None]) -> None:
    """
    Check that a page follows the pages before.

    :param operation: the listing, for errors.
    :param page: the page.
    :param total: the total of the pages before.
    :param seen: the ids of their rows, in order.
    :raises CustodyResponseError: if it has another total, or does not begin with the last row of the previous page.
    """
    if page.total != total:
        raise listing_changed(operation, f"its total changed from {total} to {page.total}")
    if not page.rows or page.rows[0][0] != next(reversed(seen)):
        raise listing_changed(
            operation, f"the page at {len(seen) - 1} does not begin with the last row of the previous page"
        )


def read_twice(operation: Operation, fetch: Callable[[str | None], CursorPage[Row]]) -> Iterator[Row]:
    """
    Read a listing with a cursor, twice, to find changes.

    A listing of one page is read once. Changes during the first reading cause differences in the second. A page is
    fetched when it is needed.

    :param operation: the listing, for errors.
    :param fetch: fetches the first page (None), or the page that follows the page with this name.
    :return: the rows of the first reading, each once.
    :raises CustodyResponseError: if the readings differ, a row is repeated, or a page is empty but not the last. It is
        retryable.
    """
    number = 0
    ids: list[str] = []
    for page in _read_pages(operation, fetch):
        number += 1
        for identifier, row in page:
            ids.append(identifier)
            yield row
    if number > 1:
        ids_again: list[str] = []
        for page in _read_pages(operation, fetch):
            ids_again += [identifier for identifier, _ in page]
        if ids_again != ids:
            raise listing_changed(operation, "a second reading did not list the same rows in the same order")


def read_journal(operation: Operation, fetch: Callable[[str | None], CursorPage[Row]]) -> Iterator[Row]:
    """
    Read a listing with a cursor whose new rows come last.

    If the listing has more than one page, the first page is read again at the end, and must still begin with the same
    row. This ensures that no row is missed, as long as only the oldest rows are removed.

    :param operation: the listing, for errors.
    :param fetch: as for :func:`read_twice`.
    :return: the rows, each once.
    :raises CustodyResponseError: if it begins with another row; or as for :func:`read_twice`. It is retryable.
    """
    firsts: list[list[str]] = []
    for page in _read_pages(operation, fetch):
        firsts.append([identifier for identifier, _ in page[:1]])
        yield from (row for _, row in page)
    if len(firsts) > 1 and [identifier for identifier, _ in fetch(None).rows[:1]] != firsts[0]:
        raise listing_changed(operation, "it no longer begins with the same row")


def _read_pages(
    operation: Operation, fetch: Callable[[str | None], CursorPage[Row]]
) -> Iterator[list[tuple[str, Row]]]:
    """Yield the rows of each page, with their ids."""
    seen: set[str] = set()
    name: str | None = None
    while True:
        page = fetch(name)
        for identifier, _ in page.rows:
            if identifier in seen:
                raise listing_changed(operation, f"the id {identifier} is listed twice")
            seen.add(identifier)
        yield page.rows
        name = page.next
        if name is None:
            return
        if not page.rows:
            raise listing_changed(operation, "a page is empty but not the last")


def require_ids(reply: Reply[Any], ids: list[object]) -> list[str]:
    """
    Return the ids of a page's rows.

    :raises CustodyResponseError: if an id is missing or unusable.
    """
    found = ["" if each is None or isinstance(each, (bool, dict, list)) else str(each) for each in ids]
    if not all(is_readable_id(each) for each in found):
        raise reply.unexpected("a row has no usable 'id'")
    return found


def is_readable_id(text: str) -> bool:
    """
    Tell whether a text can be an id.

    An id is not empty or very long, and has no invisible characters.
    """
    return 0 < len(text) <= MAX_ID_LENGTH and text == text.strip() and not has_unprintable(text)


def require_total(reply: Reply[Any], total: str | None) -> int | None:
    """
    Return the total of a listing; None: there is none.

    :raises CustodyResponseError: if it is not a number.
    """
    number = read_number(total, MAX_ID) if total else None
    if total and number is None:
        raise reply.unexpected("its total is not a number")
    return number


def listing_changed(operation: Operation, why: str) -> CustodyError:
    """Return the retryable error for inconsistent pages."""
    return operation.failed(
        CustodyResponseError,
        f"the listing changed while it was read, or its pages are inconsistent: {sanitize(why, 160)}",
        code="listing-changed",
        retryable=True,
        advice="The listing may be incomplete.",
    )
