"""The journal of webhook calls: which of them are known, and which are new. Pure, no I/O."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from airflow_custody.client.arguments import describe
from airflow_custody.client.errors import CustodyError, CustodyRequestError
from airflow_custody.client.timestamps import unix_micros
from airflow_custody.client.webhooks.digests import DIGEST_BYTES, MAX_STORED, read_digests, read_recent, write_digests
from airflow_custody.client.webhooks.models import WebhookCall

#: Seconds before the newest known call within which a call that appears late is still found.
OVERLAP_SECONDS = 300
#: Maximum number of calls that are remembered, and so the number up to which the overlap is whole. With those without
#: a time stamp, a cursor has less than 64 KiB, which is what Airflow's state store accepts from its API.
MAX_REMEMBERED = 5_000
#: Maximum number of calls without a readable time stamp that are remembered.
MAX_UNDATED = 1_000
#: Maximum difference of two clocks, in seconds.
CLOCK_DIFFERENCE_SECONDS = 300
#: Maximum difference of two measurements of the service's clock, in seconds: responses take their time, and
#: readings may be by several machines.
CLOCK_JITTER_SECONDS = 120

MICROSECONDS = 1_000_000
_VERSION = 1
_OVERLAP = OVERLAP_SECONDS * MICROSECONDS
# The last second of the year 9999: no date is later.
MAX_SECONDS = 253_402_300_799


def created_micros(call: WebhookCall) -> int | None:
    """Return the Unix time in microseconds when a call was created; None: it is not known."""
    return None if call.created_at is None else unix_micros(call.created_at)


def digest_of(call_id: str) -> int:
    """Return what a call's id is remembered by: 48 bits of its hash."""
    return int.from_bytes(hashlib.sha256(call_id.encode(errors="replace")).digest()[:DIGEST_BYTES], "big")


def whole_second(micros: int) -> int:
    """Return the beginning of the second that a time in microseconds is in, in microseconds."""
    return micros - micros % MICROSECONDS


@dataclass(frozen=True)
class CallCursor:
    """
    A cursor in the journal: every call created before ``floor`` is known, and of the later ones those in ``recent``.

    The floor stays :data:`OVERLAP_SECONDS` behind the newest known call, and behind the clock, so that a call that is
    listed later than one that was created after it is found. A call that is listed even later is not. Where more than
    :data:`MAX_REMEMBERED` calls were created within that time, the floor is closer, but never within a second; then
    :attr:`warning` says so.

    :param floor: Unix time in microseconds, by the service's clock.
    :param recent: in which second the known calls from ``floor`` on were created, in microseconds, by the digests of
        their ids.
    :param undated: digests of the ids of the last known calls that have no readable time stamp, the last one last.
    :param newest: creation time of the newest known call, in microseconds; while ``is_set_back``, no later than the
        last reading was, by the service's clock. Default: as ``recent`` says.
    :param read_at: Unix time in seconds of the last reading, by the later one of this machine's clock and the
        service's; None: there was none.
    :param complete_at: the same of the last reading that held no call back, or when the oldest call was created that
        is held back, if that is earlier: what is not known is not older. None: there was no such reading.
    :param ahead: by how many seconds the service's clock was ahead of this machine's then; None: not known.
    :param kept_for: age in seconds of the oldest call that the last reading met that met any: so long calls were kept.
    :param kept_rows: number of calls on the first page of the last reading: so many were kept. 0: there was none.
    :param is_cut: whether the floor is closer because more calls were created than are remembered.
    :param is_set_back: whether the service's clock was set back, and known calls may still be dated later than it.
    :param gap_reported: whether it was said that the newest known call is not listed any more.
    """

    floor: int
    recent: Mapping[int, int]
    undated: tuple[int, ...] = ()
    newest: int | None = None
    read_at: int | None = None
    complete_at: int | None = None
    ahead: int | None = None
    kept_for: int = 0
    kept_rows: int = 0
    is_cut: bool = False
    is_set_back: bool = False
    gap_reported: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        # Whole seconds, as in ``recent``.
        object.__setattr__(self, "floor", whole_second(self.floor))
        if self.newest is None and self.recent:
            object.__setattr__(self, "newest", max(self.recent.values()))

    @property
    def warning(self) -> str:
        """In words, that the overlap is shorter than :data:`OVERLAP_SECONDS`; empty: it is not."""
        if not self.is_cut or self.newest is None:
            return ""
        seconds = max(0, self.newest - self.floor) / MICROSECONDS
        return (
            f"more than {MAX_REMEMBERED} webhook calls were created within {OVERLAP_SECONDS} s: one that is listed "
            f"more than {seconds:.0f} s after one that was created later is not found"
        )

    @property
    def completeness_marker(self) -> int | None:
        """
        Creation time, in microseconds, of the known calls whose presence shows that no later one was removed.

        A call that is dated later than the service's clock shows nothing: those that are written now are removed before
        it. None: there is no such call.
        """
        if self.newest is None:
            return None
        newest = whole_second(self.newest)
        return max((at for at in self.recent.values() if at <= newest), default=None) if self.is_set_back else newest

    @property
    def _read_at_service(self) -> int | None:
        """Time of the last reading by the service's clock, in microseconds; None: there was none."""
        return None if self.read_at is None else max(0, self.read_at + min(0, self.ahead or 0)) * MICROSECONDS

    @cached_property
    def _undated(self) -> frozenset[int]:
        return frozenset(self.undated)

    def knows(self, call: WebhookCall) -> bool:
        """Tell whether a call is remembered; one with a known id and another time stamp is another call."""
        return self.knows_id(call.id, created_micros(call))

    def knows_id(self, call_id: str, created: int | None) -> bool:
        """Tell whether the call with an id and a time of creation, in microseconds, is remembered."""
        return self.knows_digest(digest_of(call_id), created)

    def knows_digest(self, digest: int, created: int | None) -> bool:
        """Tell whether the call is remembered whose id has a digest; see :meth:`knows_id`."""
        if digest in self._undated:
            return True
        known = self.recent.get(digest)
        return known is not None and (created is None or known == whole_second(created))

    def is_new(self, call: WebhookCall) -> bool:
        """Tell whether a call is not known yet."""
        created = created_micros(call)
        return (created is None or created >= self.floor) and not self.knows(call)

    def covers(self, other: CallCursor) -> bool:
        """Tell whether all that another cursor knows is known here, too."""
        return (
            other.floor <= self.floor
            and all(second < self.floor or self.recent.get(each) == second for each, second in other.recent.items())
            and set(other.undated) <= set(self.undated)
        )

    def detects_gaps_like(self, other: CallCursor) -> bool:
        """Tell whether what is missing is judged alike with another cursor, if both know the same calls."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in ("newest", "complete_at", "ahead", "kept_for", "kept_rows", "is_set_back", "gap_reported")
        )

    def floor_below(self, newest: int) -> int:
        """Return the floor that belongs to a newest call, in microseconds, if all from there on are remembered."""
        # By the service's clock: a newest call that is later may be from before it was set back.
        now = self._read_at_service
        return max(self.floor, whole_second(max(0, (newest if now is None else min(newest, now)) - _OVERLAP)))

    def set_back(self, ahead: float | None) -> CallCursor:
        """
        Return the cursor for a service whose clock was set back, as if the last reading had been by the clock of now.

        Calls written since then are not below the floor, and :attr:`newest` is not later. What the clock was
        set back by adds up, as the floor does not follow it down; but not while the floor is closer.

        :param ahead: by how many seconds the service's clock is ahead of this machine's now; None: not known.
        """
        if ahead is None or self.ahead is None or self.read_at is None:
            return self
        ahead = math.floor(ahead)
        read_at = max(0, (self.read_at - max(0, self.ahead) + ahead) * MICROSECONDS)
        floor = max(0, read_at - _OVERLAP)
        back = (self.ahead - ahead) * MICROSECONDS
        if max(back, 0 if self.is_cut else self.floor - floor) <= CLOCK_JITTER_SECONDS * MICROSECONDS:
            return self
        # The times of readings are by the later one of the clocks.
        later = max(0, ahead) - max(0, self.ahead)
        return replace(
            self,
            floor=min(self.floor, floor),
            newest=None if self.newest is None else min(self.newest, read_at),
            read_at=max(0, self.read_at + later),
            complete_at=None if self.complete_at is None else max(0, self.complete_at + later),
            ahead=ahead,
            is_set_back=True,
        )

    def without_future_times(self, latest: int) -> CallCursor:
        """
        Return the cursor without time stamps that cannot be: their calls are remembered by their ids alone.

        :param latest: Unix time in microseconds: a later one cannot be. If the floor is later, it becomes a time
            before: what was read from there on is not known.
        """
        if self.floor <= latest and max(self.recent.values(), default=0) <= latest:
            return self
        # Of those of the last second, some may be later.
        last = whole_second(latest)
        recent = {each: second for each, second in self.recent.items() if second < last and self.floor <= latest}
        others = [each for each, _ in sorted(self.recent.items(), key=_by_time) if each not in recent]
        floor = self.floor
        if floor > latest:
            floor = whole_second(max(0, latest - CLOCK_DIFFERENCE_SECONDS * MICROSECONDS - _OVERLAP))
        undated = (*self.undated, *others)[-MAX_UNDATED:]
        # Where the clock was set back, what is left may be dated later than it, too.
        newest = None if self.newest is None or not self.is_set_back else min(self.newest, latest)
        return replace(self, floor=floor, recent=recent, undated=undated, newest=newest, is_cut=False)

    def after(
        self, calls: Iterable[WebhookCall], *, held_back: int | None = None, not_beyond: int | None = None
    ) -> CallCursor:
        """
        Return the cursor that knows these calls as well.

        :param calls: calls that were listed together, such as :attr:`.NewCalls.calls` or the first ones of them; and
            known ones that had no time stamp, and have one now.
        :param held_back: creation time of the oldest listed call that is not known, in microseconds. Default:
            there is none.
        :param not_beyond: Unix time in microseconds; the floor stays at or below it and ``held_back``, as the calls
            from there on are not known. Default: no such bound.
        """
        recent, undated, newest = dict(self.recent), dict.fromkeys(self.undated), self.newest
        for call in calls:
            created, digest = created_micros(call), digest_of(call.id)
            if created is None:
                undated[digest] = None
            else:
                undated.pop(digest, None)
                recent[digest] = whole_second(created)
                is_news = newest is None or digest not in self._undated
                newest = max(newest or 0, created) if is_news else newest
        now, is_set_back = self._read_at_service, self.is_set_back
        if is_set_back and newest is not None and now is not None:
            top = max(recent.values(), default=None)
            marker = now if held_back is None else min(now, held_back)
            # Where all are known by their ids alone, they were later than can be.
            newest = marker if top is None else min(top, marker)
            # Unknown calls may be later, too.
            is_set_back = held_back is not None or top is None or top > marker
        floor = self.floor if newest is None else self.floor_below(newest)
        seconds = sorted((each for each in recent.values() if each >= floor), reverse=True)
        is_cut = self.is_cut and newest is not None and floor > newest - _OVERLAP
        if len(seconds) > MAX_REMEMBERED:
            # The first that is too much, and all of its second: unless the newest is of the same.
            floor, is_cut = min(seconds[MAX_REMEMBERED] + MICROSECONDS, seconds[0]), True
        for bound in (held_back, not_beyond):
            if bound is not None:
                floor = max(self.floor, min(floor, whole_second(bound)))
        kept = {each: second for each, second in recent.items() if second >= floor}
        last = tuple(undated)[-MAX_UNDATED:]
        return replace(
            self, floor=floor, recent=kept, undated=last, newest=newest, is_cut=is_cut, is_set_back=is_set_back
        )

    def to_json(self) -> dict[str, Any]:
        """Return the cursor as plain JSON data."""
        by_second = groupby(sorted(self.recent.items(), key=_by_time), key=lambda item: item[1])
        data: dict[str, Any] = {
            "version": _VERSION,
            "floor": self.floor,
            # Compact: it is stored with each event. By their second, counted from the floor's.
            "recent": {
                str((second - self.floor) // MICROSECONDS): write_digests(each for each, _ in items)
                for second, items in by_second
            },
        }
        others = {
            "undated": write_digests(self.undated),
            "newest": self.newest,
            "read_at": self.read_at,
            "complete_at": self.complete_at,
            "ahead": self.ahead,
            "kept_for": self.kept_for,
            "kept_rows": self.kept_rows,
            "is_cut": self.is_cut,
            "is_set_back": self.is_set_back,
            "gap_reported": self.gap_reported,
        }
        return {**data, **{name: value for name, value in others.items() if value or (name == "ahead" and value == 0)}}

    @classmethod
    def from_json(cls, data: object) -> CallCursor:
        """
        Return the cursor that :meth:`to_json` returned.

        :raises CustodyRequestError: if it is none, or of a later version.
        """
        if not isinstance(data, Mapping) or not _is_number(data.get("version"), 2**31):
            raise _refused(f"it must be a mapping with a 'version', not {describe(data)}")
        if data["version"] != _VERSION:
            raise _refused(
                f"its version is {data['version']}, and this version of the package reads {_VERSION}",
                "Use the version of the package that wrote it, or a later one. ",
            )
        floor: Any = data.get("floor")
        if not _is_number(floor, MAX_SECONDS * MICROSECONDS):
            raise _refused("its 'floor' is no time in microseconds")
        try:
            undated = read_digests(data.get("undated", ""))
            seconds = read_recent(data.get("recent"), MAX_SECONDS)
        except ValueError:
            raise _refused("its 'recent' or 'undated' does not hold digests of ids") from None
        newest, read_at, complete_at = data.get("newest"), data.get("read_at"), data.get("complete_at")
        ahead, kept_for, kept_rows = data.get("ahead"), data.get("kept_for", 0), data.get("kept_rows", 0)
        if not (
            (newest is None or _is_number(newest, MAX_SECONDS * MICROSECONDS))
            and all(each is None or _is_number(each, MAX_SECONDS) for each in (read_at, complete_at))
            and (ahead is None or _is_number(ahead, MAX_SECONDS, -MAX_SECONDS))
            and _is_number(kept_for, MAX_SECONDS)
            and _is_number(kept_rows, MAX_STORED)
        ):
            raise _refused(
                "its 'newest', 'read_at', 'complete_at', 'ahead', 'kept_for' or 'kept_rows' is not what it must be"
            )
        return cls(
            floor=floor,
            recent={each: whole_second(floor) + after * MICROSECONDS for each, after in seconds.items()},
            undated=undated[-MAX_UNDATED:],
            newest=newest,
            read_at=read_at,
            complete_at=complete_at,
            ahead=ahead,
            kept_for=kept_for,
            kept_rows=kept_rows,
            is_cut=data.get("is_cut") is True,
            is_set_back=data.get("is_set_back") is True,
            gap_reported=data.get("gap_reported") is True,
        )


def _by_time(item: tuple[int, int]) -> tuple[int, int]:
    return item[1], item[0]


def _is_number(value: object, maximum: int, minimum: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _refused(why: str, advice: str = "") -> CustodyError:
    return CustodyRequestError(
        f"the cursor cannot be used: {why}; nothing was sent",
        setting="cursor",
        code="record-unreadable",
        advice=f"{advice}Without a cursor, reading starts anew: from now, or from the beginning.",
    )
