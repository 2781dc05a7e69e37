"""Whether calls may have been removed from the journal before they were read. Pure, no I/O."""

from __future__ import annotations

from typing import NamedTuple

from airflow_custody.client.webhooks.journal import CLOCK_DIFFERENCE_SECONDS, MICROSECONDS, CallCursor

#: Assumed seconds for which a service keeps calls, while its journal was always empty.
ASSUMED_KEPT_SECONDS = 2 * 86_400
#: Assumed minimum number of calls that it keeps if none was known, or the journal has become empty: one that keeps a
#: number of them never does.
ASSUMED_KEPT_ROWS = 1_000
#: Assumed minimum of seconds for which it keeps them, once a gap was reported.
MIN_KEPT_SECONDS = 360

_GAP = "the newest call that was known is not listed any more: calls may have been removed before they were read"
_REPLACED = (
    "the newest call that was known is not listed any more, although it is younger than others were that were still "
    "listed: calls may have been removed before they were read, or this is another journal (that of another tenant, or "
    "of a restored database)"
)
_GAP_AFTER_SET_BACK = (
    "the service's clock was set back, and the call that could show that nothing is missing is not listed, or there is "
    "none: calls that were written since may have been removed before those that are dated later. This is said at each "
    "reading until such a call is known, or that clock has passed the newest known call"
)
_GAP_AFTER_NONE = (
    "no call was known, and it is long ago or many are listed: calls may have been removed before they were read"
)


class Listed(NamedTuple):
    """
    Facts of a listing that does not prove by itself that no call is missing.

    :param meets_known: whether it lists some known call.
    :param rows: the number of calls.
    :param is_all: whether that is all it lists.
    """

    meets_known: bool
    rows: int
    is_all: bool


def find_gap(cursor: CallCursor, listed: Listed, now: float, ahead: float | None) -> tuple[str, int]:
    """
    Return why calls may have been removed unread, where a listing does not show that none were.

    A service is taken to remove the oldest first, by their age or their number. What the last reading met shows how old
    a call can become, and how many are kept at least. Calls that were written since the last complete reading cannot
    have become as old, so none of them was removed, if that is true. It is not if the newest known call was removed
    younger.

    A gap that was reported is not said again while known calls are listed, or within a few minutes, where no service
    removes calls. After that it may be another one.

    :param cursor: the cursor.
    :param listed: facts of the listing.
    :param now: Unix time in seconds, by the later one of this machine's clock and the service's.
    :param ahead: by how many seconds the service's clock is ahead of this machine's; None: not known.
    :return: the reason in words, empty if none can have been removed; and how long calls are kept by what is known now,
        in seconds.
    """
    known = bool(cursor.recent or cursor.undated)
    if cursor.read_at is None and not known:
        # Nothing was read before.
        return "", cursor.kept_for
    if cursor.gap_reported and listed.meets_known:
        return "", cursor.kept_for
    kept_for, kept_rows = (cursor.kept_for, cursor.kept_rows) if known else (ASSUMED_KEPT_SECONDS, 0)
    kept_rows = kept_rows or ASSUMED_KEPT_ROWS
    is_refuted = known and (cursor.newest is None or now - cursor.newest / MICROSECONDS < kept_for)
    if is_refuted:
        kept_for = 0
    since = _seconds_since_complete(cursor, now, ahead)
    enough = max(kept_for, MIN_KEPT_SECONDS) if cursor.gap_reported else kept_for
    is_recent = since is not None and -CLOCK_DIFFERENCE_SECONDS <= since < enough
    if is_recent and listed.is_all and listed.rows < kept_rows:
        return "", cursor.kept_for
    if cursor.is_set_back:
        return _GAP_AFTER_SET_BACK, 0 if is_refuted else cursor.kept_for
    gap = _REPLACED if is_refuted and cursor.newest is not None else _GAP
    return (gap if known else _GAP_AFTER_NONE), (0 if is_refuted else cursor.kept_for)


def _seconds_since_complete(cursor: CallCursor, now: float, ahead: float | None) -> float | None:
    """Return how long ago the last complete reading was, by the clock that says more; None: there was none."""
    if cursor.complete_at is None:
        return None
    # By this machine's clock, and by the service's.
    own = now - max(0, ahead or 0) - (cursor.complete_at - max(0, cursor.ahead or 0))
    return own if ahead is None or cursor.ahead is None else max(own, own + ahead - cursor.ahead)
