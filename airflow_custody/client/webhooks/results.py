"""Results of reading the journal of webhook calls: the listed calls, and the new ones. Pure, no I/O."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from airflow_custody.client.webhooks.gaps import Listed, find_gap
from airflow_custody.client.webhooks.journal import (
    CLOCK_DIFFERENCE_SECONDS,
    MAX_SECONDS,
    MICROSECONDS,
    CallCursor,
    created_micros,
    digest_of,
    whole_second,
)
from airflow_custody.client.webhooks.models import WebhookCall


class Clocks(NamedTuple):
    """
    The time of a reading.

    :param own: Unix time in seconds by this machine's clock.
    :param ahead: by how many seconds the service's clock is ahead of it; None: not known.
    """

    own: float
    ahead: float | None

    @property
    def latest(self) -> float:
        """The Unix time in seconds, by the later one of the two clocks."""
        # A date may be the last that there is: a cursor takes none beyond it.
        return min(self.own + max(0, self.ahead or 0), MAX_SECONDS)

    @property
    def latest_plausible(self) -> int:
        """The latest time, in microseconds, that a call can plausibly have."""
        return math.floor((self.latest + CLOCK_DIFFERENCE_SECONDS) * MICROSECONDS)

    def stamp(self, cursor: CallCursor, oldest: int | None, rows: int, *, more: bool = False) -> CallCursor:
        """
        Return a cursor with the time of a reading, and with what the reading shows of how calls are kept.

        :param cursor: the cursor.
        :param oldest: creation time of the oldest call that was read; None: not known.
        :param rows: the number of calls on the first page.
        :param more: whether there are calls that were not returned.
        """
        read_at = math.floor(self.latest)
        stamped = replace(
            cursor,
            read_at=read_at,
            complete_at=cursor.complete_at if more else read_at,
            ahead=None if self.ahead is None else math.floor(self.ahead),
            kept_rows=rows,
        )
        if oldest is None:
            return stamped
        # By the earlier clock: which of the two dates the calls is not known.
        age = math.floor(self.own + min(0, self.ahead or 0)) - oldest // MICROSECONDS
        return replace(stamped, kept_for=max(0, age - CLOCK_DIFFERENCE_SECONDS))


_NO_CLOCKS = Clocks(0, None)


@dataclass(frozen=True)
class NewCalls:
    """
    The new calls in the journal.

    :param calls: the calls, in the order in which they were created.
    :param cursor: the cursor after these calls.
    :param late: ids of calls that were created before one that was known already, and appeared after it.
    :param more: whether there are more new calls than were asked for.
    :param gap: in words, why calls may have been lost between what was known and these; empty: none were.
    :param known: the cursor from which they are new: the one that was given, without what cannot be
        true since the service's clock was set back. None: there was none.
    :param reading: the reading that found them: what else is to be seen in it. None: it is not kept.
    """

    calls: tuple[WebhookCall, ...]
    cursor: CallCursor
    late: frozenset[str] = frozenset()
    more: bool = False
    gap: str = ""
    known: CallCursor | None = None
    reading: Reading | None = field(default=None, repr=False, compare=False)

    @property
    def warning(self) -> str:
        """In words, what to log: that calls which appear late may not be found, as so many come; empty: nothing."""
        return self.cursor.warning


@dataclass
class Reading:
    """
    The result of reading the newest calls, down to a cursor's floor.

    :param calls: the oldest ones that are new to that cursor, the newest of them first.
    :param clocks: its time.
    :param pages: the number of pages that were read.
    :param listed: creation times of the listed calls, down to the cursor's floor, by their ids.
    :param top: creation time of the newest; None: not known.
    :param held_back: creation time of the oldest new call that is not among ``calls``; None: there is none.
    :param more: whether there are new calls that are not among ``calls``.
    :param oldest: creation time of the oldest call that was read; None: not known.
    :param goes_below: whether a call from before the floor is listed.
    :param now_dated: the known calls that had no time stamp, and have one now.
    :param rows: the number of calls on the first page.
    :param all_rows: the number of calls on all pages that were read.
    :param is_all: whether the last page was read.
    """

    calls: deque[WebhookCall]
    clocks: Clocks = _NO_CLOCKS
    pages: int = 0
    listed: dict[str, int | None] = field(default_factory=dict)
    top: int | None = None
    held_back: int | None = None
    more: bool = False
    oldest: int | None = None
    goes_below: bool = False
    now_dated: list[WebhookCall] = field(default_factory=list)
    rows: int = 0
    all_rows: int = 0
    is_all: bool = False

    def is_consistent_with(self, cursor: CallCursor) -> bool:
        """Tell whether nothing speaks against a cursor: no time in it is later than now, and no clock was set back."""
        return cursor.set_back(self.clocks.ahead).without_future_times(self.clocks.latest_plausible) is cursor

    def result_for(self, cursor: CallCursor, gap: str = "", *, not_beyond: int | None = None) -> NewCalls:
        """
        Return what is new to a cursor, and whether calls are missing to it.

        :param cursor: the one that the reading began from, or another one that covers it.
        :param gap: in words, why calls may be missing, if that is known already.
        :param not_beyond: the floor stays at or below this Unix time in microseconds. Default: no such bound.
        """
        calls = tuple(each for each in reversed(self.calls) if cursor.is_new(each))
        has_newest, meets_known, undated = self._find_known(cursor)
        kept_for = cursor.kept_for
        if not gap and not has_newest:
            listed = Listed(meets_known, self.all_rows, is_all=self.is_all)
            gap, kept_for = find_gap(cursor, listed, self.clocks.latest, self.clocks.ahead)
        newest = cursor.newest
        times = {call.id: created_micros(call) for call in calls} if newest is not None else {}
        late = {each for each, created in times.items() if created is not None and created < (newest or 0)}
        # Calls that are still listed are forgotten last.
        still = set(undated)
        gone = [each for each in cursor.undated if each not in still]
        known = replace(cursor, undated=(*gone, *reversed(undated)), kept_for=kept_for)
        stamped = self.clocks.stamp(known, self.oldest, self.rows, more=self.more)
        if self.more and self.held_back is not None and stamped.complete_at is not None:
            # It is listed late, or an earlier reading has held it back, too.
            stamped = replace(stamped, complete_at=min(stamped.complete_at, self.held_back // MICROSECONDS))
        dated = [each for each in self.calls if digest_of(each.id) in cursor.undated] if cursor.undated else []
        # A call that is held back and has no time stamp may have an implausible date.
        held_back = self.clocks.latest_plausible if self.more and self.held_back is None else self.held_back
        after = stamped.after([*self.now_dated, *dated, *calls], held_back=held_back, not_beyond=not_beyond)
        # As long as no other call is the newest that is known.
        is_missing = not has_newest and (gap or cursor.gap_reported) and after.newest == newest
        after = replace(after, gap_reported=bool(is_missing))
        return NewCalls(calls, after, frozenset(late), self.more, gap, cursor, self)

    @cached_property
    def _digests(self) -> list[tuple[int, int | None]]:
        return [(digest_of(each), created) for each, created in self.listed.items()]

    def _find_known(self, cursor: CallCursor) -> tuple[bool, bool, list[int]]:
        """
        Return if the newest known call is listed, if some known call is, and the known ones without a time stamp.

        Calls dated later than the service's clock do not count: their presence proves nothing.
        """
        has_newest, meets_known, undated = False, self.goes_below, list[int]()
        # Where no call has a time stamp, the last one is the newest.
        last = cursor.undated[-1] if cursor.newest is None and cursor.undated else None
        # By the second: the cursor may know no more, and services drop fractions.
        marker = cursor.completeness_marker
        for digest, created in self._digests:
            if (created is None or created >= cursor.floor) and not cursor.knows_digest(digest, created):
                continue
            if created is None:
                undated.append(digest)
                meets_known = meets_known or cursor.newest is None
                has_newest = has_newest or digest == last
            else:
                meets_known = meets_known or cursor.newest is None or created <= cursor.newest
                has_newest = has_newest or whole_second(created) == marker
        if marker is None and cursor.newest is not None:
            # Since the clock was set back none was known: what is dated before was there before.
            has_newest = self.oldest is not None and self.oldest < cursor.newest
        return has_newest, meets_known, undated
