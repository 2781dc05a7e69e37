"""
Listings in pages.

Each listing is complete, or ends with an error that gives the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from airflow_custody.client.arguments import MAX_PAGE_SIZE, describe
from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.text import count, sanitize

Row = TypeVar("Row")

#: Maximum number of rows that are read from one listing, so that no response makes reading endless.
MAX_LISTED_ROWS = 1_000_000
# The maximum number of calls for a listing is the maximum number of rows, divided by this number. Full pages have a
# hundred rows, but services may return fewer.
_MIN_ROWS_PER_CALL = 50


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


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """
    A complete listing.

    :param rows: the rows, in the service's order, each once.
    :param hidden: number of rows that the service counts but does not return.
    """

    rows: list[Row]
    hidden: int = 0


def read_all(rows: Generator[Row, None, int]) -> Listing[Row]:
    """Read all rows of :func:`read_offset_listing`."""
    found: list[Row] = []
    while True:
        try:
            found.append(next(rows))
        except StopIteration as end:
            return Listing(found, end.value)


def read_offset_listing(
    operation: Operation, fetch: Callable[[int], OffsetPage[Row]], limit: int
) -> Generator[Row, None, int]:
    """
    Read a listing by offset.

    Pages are fetched when they are needed. If fewer rows come than the service counts, the listing is read a second
    time. If both readings have the same ids and the same total, the missing rows are hidden: the service counts them,
    but does not return them.

    :param operation: the listing, for errors.
    :param fetch: fetches the page that begins at an offset.
    :param limit: the requested number of rows per page.
    :return: the rows, each once; at the end, the number of hidden rows.
    :raises CustodyResponseError: if the listing changes while it is read, or its pages are inconsistent (a retryable
        error); or if the end of the listing is unknown, or the listing is too long.
    """
    ids, total = set[str](), 0
    for page in _read_offset_pages(operation, fetch, limit):
        ids.update(identifier for identifier, _ in page.rows)
        total = page.total or 0
        yield from (row for _, row in page.rows)
    if len(ids) >= total:
        return 0
    ids_again, total_again = set[str](), 0
    for page in _read_offset_pages(operation, fetch, limit):
        ids_again.update(identifier for identifier, _ in page.rows)
        total_again = page.total or 0
    if ids_again != ids or total_again != total:
        raise listing_changed(operation, "a second reading did not list the same rows")
    return total - len(ids)


def _read_offset_pages(
    operation: Operation, fetch: Callable[[int], OffsetPage[Row]], limit: int
) -> Iterator[OffsetPage[Row]]:
    """
    Yield the pages of one reading, each with only its new rows.

    The service may leave rows out of a page, and it is not known whether a left-out row counts in the offsets.
    Therefore each page begins at the last row of the previous page, as if left-out rows did not count. If they do
    count, some rows are read twice, but none is missed. If a page has at most one row, all of its other rows may have
    been left out, so the next page begins a whole page later.
    """
    # Number of rows in which pages overlap. Pages of one row cannot overlap.
    overlap = 1 if limit > 1 else 0
    ids: set[str] = set()
    offset, calls, follows = 0, 0, False
    total: int | None = None
    while True:
        page = fetch(offset)
        calls += 1
        if calls > 1 and page.total != total:
            raise listing_changed(operation, f"its total changed from {total} to {page.total}")
        total = page.total
        check_length(operation, total or len(page.rows), calls)
        new = [each for each in page.rows if each[0] not in ids]
        ids |= _unique_ids(operation, new)
        _check_page(operation, page, new, len(ids), offset=offset, is_full=len(page.rows) >= limit, follows=follows)
        yield OffsetPage(new, total)
        step = len(page.rows) - overlap
        if total is None or len(ids) == total or (offset + limit >= total and (step <= 0 or not new)):
            return
        follows = step > 0 and overlap > 0
        offset += step if step > 0 else limit


def _check_page(
    operation: Operation,
    page: OffsetPage[Row],
    new: list[tuple[str, Row]],
    listed: int,
    *,
    offset: int,
    is_full: bool,
    follows: bool,
) -> None:
    """
    Check that a page continues the listing.

    :param operation: the listing, for errors.
    :param page: the page.
    :param new: its rows that no earlier page has.
    :param listed: the number of different rows of this page and all earlier ones.
    :param offset: its offset.
    :param is_full: whether it has as many rows as were requested.
    :param follows: whether it must overlap with the previous page.
    :raises CustodyResponseError: if it does not (retryable), or if it does not tell whether more rows follow.
    """
    if follows and new[:1] == page.rows[:1]:
        # Pages overlap by one row. A page that begins with a new row shows that rows have moved up, whether rows are
        # left out or not.
        raise listing_changed(operation, f"the page at {offset} does not begin with a row of an earlier page")
    if follows and is_full and not new:
        # A full page ends after the end of all earlier pages, so its last row must be new.
        raise listing_changed(operation, f"the page at {offset} is full, but has no new row")
    if page.total is None and is_full:
        # The service leaves out a total of zero. Here, a missing total means that the service does not count these
        # rows, so no total tells where the listing ends.
        why = f"a page has {count(len(page.rows), 'row')} and no total, so whether more rows follow is unknown"
        raise _unreadable(operation, why)
    if page.total is not None and listed > page.total:
        rows = count(listed, "row was", "rows were")
        raise listing_changed(operation, f"{rows} listed, but the total is {page.total}")


def check_length(operation: Operation, rows: int, calls: int) -> None:
    """
    Check that a listing is not too long.

    :param operation: the listing, for errors.
    :param rows: the number of rows that are listed, or that the service counts.
    :param calls: the number of calls for one reading.
    :raises CustodyResponseError: if it is too long.
    """
    if rows > MAX_LISTED_ROWS:
        why = f"it has {rows:,} rows"
    elif calls > MAX_LISTED_ROWS // _MIN_ROWS_PER_CALL:
        why = f"its end was not reached with {calls - 1:,} calls"
    else:
        return
    raise _unreadable(operation, f"{why}, but at most {MAX_LISTED_ROWS:,} rows are read")


def check_page_size(operation: Operation, size: object) -> int:
    """
    Return the number of rows to request per page.

    :raises CustodyRequestError: if it is not a whole number from 1 to 100; nothing is sent.
    """
    if type(size) is not int or not 1 <= size <= MAX_PAGE_SIZE:
        raise operation.refused(f"page_size must be a whole number from 1 to {MAX_PAGE_SIZE}, not {describe(size)}")
    return size


def read_twice(operation: Operation, fetch: Callable[[str | None], CursorPage[Row]]) -> Iterator[Row]:
    """
    Read a listing with a cursor, twice, to find changes.

    If the listing changes during the first reading, the second reading differs. A listing of one page is read only
    once. Pages are fetched when they are needed.

    :param operation: the listing, for errors.
    :param fetch: fetches the first page (None), or the page that follows the page with this name.
    :return: the rows of the first reading, each once.
    :raises CustodyResponseError: if the readings differ, a row is repeated, or a page is empty but not the last. The
        error is retryable.
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
    :param fetch: same as for :func:`read_twice`.
    :return: the rows, each once.
    :raises CustodyResponseError: if the listing no longer begins with the same row, a row is repeated, or a page is
        empty but not the last. The error is retryable.
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
    calls = 0
    while True:
        page = fetch(name)
        calls += 1
        check_length(operation, len(seen) + len(page.rows), calls)
        ids = _unique_ids(operation, page.rows)
        if repeated := seen & ids:
            raise _listed_twice(operation, min(repeated))
        seen |= ids
        yield page.rows
        name = page.next
        if name is None:
            return
        if not page.rows:
            raise listing_changed(operation, "a page is empty but not the last")


def _unique_ids(operation: Operation, rows: list[tuple[str, Row]]) -> set[str]:
    """
    Return the ids of rows.

    :raises CustodyResponseError: if an id is repeated. The error is retryable.
    """
    ids = {identifier for identifier, _ in rows}
    if len(ids) < len(rows):
        raise _listed_twice(operation, Counter(identifier for identifier, _ in rows).most_common(1)[0][0])
    return ids


def listing_changed(operation: Operation, why: str) -> CustodyError:
    """Return the retryable error for inconsistent pages."""
    return operation.failed(
        CustodyResponseError,
        f"the listing changed while it was read, or its pages are inconsistent: {sanitize(why, 160)}",
        code="listing-changed",
        retryable=True,
        advice="The listing may be incomplete.",
    )


def _listed_twice(operation: Operation, identifier: str) -> CustodyError:
    return listing_changed(operation, f"the id {identifier} is listed twice")


def _unreadable(operation: Operation, why: str) -> CustodyError:
    """Return the error for a listing that can never be read."""
    return operation.failed(CustodyResponseError, f"the listing cannot be read: {why}", code="response-unusable")
