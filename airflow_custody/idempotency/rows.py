"""Records of rows that the tries of one task instance share, and their stored form."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError, CustodyOutcomeUnknownError
from airflow_custody.idempotency.records import Intent, digest
from airflow_custody.idempotency.store import RecordStore

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: ``sent``: it was about to be sent, and its outcome is unknown. ``found``: somebody else has asked for the same.
#: ``deleting``: it was about to be deleted, which may be repeated.
RowState = Literal["sent", "created", "refused", "found", "deleting", "deleted"]

_STATES: tuple[RowState, ...] = ("sent", "created", "refused", "found", "deleting", "deleted")
STATE_KEY = "custody_apply"
_FORMAT = 1


@dataclass(frozen=True)
class Row:
    """
    The record of one row.

    :param state: its state.
    :param detail: the id of what was created or found, why it was refused, or the operation that deletes it.
    :param known_ids: the ids of what was like it at the service before it was sent.
    """

    state: RowState
    detail: str = ""
    known_ids: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether its outcome is unknown."""
        return self.state in ("sent", "deleting")


@dataclass(frozen=True)
class Window:
    """
    Rows that are written down together, before they are sent and after.

    :param key: names the window, and with it the variables of the manual overrides of its rows.
    :param number: its number among the task instance's windows.
    :param try_number: the try that sent it.
    :param max_tries: the task's ``max_tries`` then; it changes when a person clears the task.
    :param recorded_at: time of recording, before the rows were sent.
    :param rows: the record of each row, by its key.
    :param service: a digest of the base URL of the service that they are sent to; empty: not known.
    """

    key: str
    number: int
    try_number: int
    max_tries: int
    recorded_at: datetime
    rows: Mapping[str, Row]
    service: str = ""

    def intent(self, row_key: str) -> Intent:
        """Return the intent to send one of the rows."""
        known_ids = self.rows[row_key].known_ids
        key = digest([self.key, row_key])
        return Intent(key, self.try_number, self.max_tries, {}, known_ids, self.recorded_at)


@dataclass
class RowLog:
    """
    The windows of one plan, in order.

    :param plan: names the plan.
    :param total: the number of rows that the plan is about.
    :param first: the number of the first window. Default 0.
    :param windows: the windows; :meth:`put` adds and replaces them.
    :param is_listed: whether the service has listed all that was created, at the end of a try. Default False.
    """

    plan: str
    total: int
    first: int = 0
    windows: list[Window] = field(default_factory=list)
    is_listed: bool = False
    # The index of the last window that knows a row, by the row's key; and how many rows are open. Both are asked for
    # with each row, and must not take longer the more rows there are.
    _last: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _open: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        windows, self.windows = self.windows, []
        for each in windows:
            self.put(each)

    def put(self, window: Window) -> None:
        """Add a window, or replace the one with its number."""
        index = window.number - self.first
        before: Mapping[str, Row] = {}
        if index < len(self.windows):
            before = self.windows[index].rows
        changed = before.keys() | window.rows.keys()
        self._open -= self._count_open(changed)
        if index < len(self.windows):
            self.windows[index] = window
        else:
            self.windows.append(window)
        for key in window.rows:
            self._last[key] = max(index, self._last.get(key, 0))
        for key in before.keys() - window.rows.keys():
            if self._last[key] == index:
                self._go_back(key, index)
        self._open += self._count_open(changed)

    def _go_back(self, key: str, index: int) -> None:
        """Find what was known of a row before the window that does not have it any more."""
        del self._last[key]
        for earlier in range(index - 1, -1, -1):
            if key in self.windows[earlier].rows:
                self._last[key] = earlier
                return

    def _count_open(self, keys: Iterable[str]) -> int:
        return sum(found is not None and found[1].is_open for found in map(self.row, keys))

    def row(self, key: str) -> tuple[Window, Row] | None:
        """Return what is known of a row: the last that was written down. None for nothing."""
        index = self._last.get(key)
        if index is None:
            return None
        window = self.windows[index]
        return window, window.rows[key]

    def rows(self) -> dict[str, tuple[Window, Row]]:
        """Return what is known of each row, by its key: the last that was written down."""
        return {key: (window, row) for window in self.windows for key, row in window.rows.items()}

    def with_state(self, *states: RowState) -> dict[str, Window]:
        """Return the windows of the rows in one of these states, by the row's key."""
        return {key: window for key, (window, row) in self.rows().items() if row.state in states}

    @property
    def done(self) -> int:
        """The number of rows whose outcome is known."""
        return len(self._last) - self._open


class RowStore:
    """
    The record of each row that all tries of one task instance share, in the task state store of Airflow 3.3.

    One key holds the plan, the progress, and the window that is open; each closed window has a key of its own. Without
    a store everything is kept in memory, and a later try knows nothing.

    :param context: the task's context.
    :param base_url: the service's base URL.
    """

    def __init__(self, context: Context, base_url: str) -> None:
        self.task = RecordStore(context)
        self._service = digest(base_url)
        self._log: RowLog | None = None
        #: The window of an earlier try that was never closed.
        self._open: Window | None = None

    @property
    def log(self) -> RowLog:
        """The record of the plan that is carried out."""
        if self._log is None:
            raise RuntimeError("no plan has begun")
        return self._log

    def read(self) -> RowLog | None:
        """
        Return what earlier tries left behind.

        :return: the record; None if there is none.
        :raises CustodyOutcomeUnknownError: if it cannot be read.
        """
        if (head := self.task.get(STATE_KEY)) is None:
            return None
        try:
            if head["format"] != _FORMAT:
                raise ValueError(head["format"])
            found = RowLog(str(head["plan"]), int(head["total"]), int(head["first"]))
            found.is_listed = head.get("listed") is True
            for number in range(found.first, int(head["windows"])):
                stored = self.task.get(f"{STATE_KEY}_{number:04d}")
                # Only the last one can be open still.
                is_open = stored is None and number == int(head["windows"]) - 1
                window = _window(head["window"] if is_open else stored, number)
                self._open = window if is_open else None
                found.put(window)
        except (KeyError, TypeError, ValueError):
            raise CustodyOutcomeUnknownError(
                "the record of an earlier try cannot be read, so nothing is sent: another version of "
                "airflow-provider-custody wrote it, or a part of it is missing",
                code="record-unreadable",
                advice=f"Plan again, see that nothing is asked for twice, delete the keys {STATE_KEY!r} of the task's "
                "state, and clear the task.",
            ) from None
        return found

    def created_before(self) -> dict[str, str]:
        """Return the ids of what this task instance has created under earlier plans, by the row's key."""
        found: dict[str, str] = {}
        for number in range(self.log.first):
            stored = self.task.get(f"{STATE_KEY}_{number:04d}")
            rows = stored.get("rows") if isinstance(stored, dict) else None
            for key, (state, detail, *_) in (rows or {}).items():
                if state == "created":
                    found[key] = detail
        return found

    def begin(self, plan: str, total: int, earlier: RowLog | None) -> None:
        """
        Begin or go on with a plan.

        :param plan: names the plan.
        :param total: the number of rows that it is about.
        :param earlier: the result of :meth:`read`. Records of another plan are left behind.
        """
        if earlier is not None and earlier.plan == plan:
            self._log = earlier
            if self._open is not None:
                # The next window takes its place.
                self._set(f"{STATE_KEY}_{self._open.number:04d}", _stored(self._open))
                self._open = None
            return
        self._log = RowLog(plan, total, earlier.first + len(earlier.windows) if earlier else 0)
        self._write_head(None)

    def open(self, rows: Mapping[str, Row], recorded_at: datetime) -> Window:
        """
        Write down rows that are about to be sent.

        :param rows: the record of each row, by its key.
        :param recorded_at: the time.
        :return: the window.
        :raises CustodyError: if it is not there when it is read again: another try has taken over.
        """
        window = Window(
            uuid.uuid4().hex,
            self.log.first + len(self.log.windows),
            self.task.try_number,
            self.task.max_tries,
            recorded_at,
            rows,
            self._service,
        )
        self.log.put(window)
        self._write_head(window)
        return window

    def renew(self, window: Window) -> None:
        """Write an open window down once more: a try that was superseded fails here."""
        self._write_head(window)

    def record(self, outcomes: Iterable[tuple[Window, str, Row | None]]) -> None:
        """
        Write down what became of rows.

        :param outcomes: window, key and outcome of each; also those of an earlier try. None: it came to nothing, and
            may be sent again.
        """
        changed: dict[int, dict[str, Row]] = {}
        for window, key, row in outcomes:
            rows = changed.setdefault(window.number, dict(self.log.windows[window.number - self.log.first].rows))
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        for number, rows in changed.items():
            window = replace(self.log.windows[number - self.log.first], rows=rows)
            self.log.put(window)
            self._set(f"{STATE_KEY}_{number:04d}", _stored(window))

    def finish(self) -> None:
        """Write the progress down, once nothing more is done."""
        self._write_head(None, state="applied")

    def _write_head(self, window: Window | None, state: str = "applying") -> None:
        log = self.log
        head: dict[str, Any] = {
            "format": _FORMAT,
            "state": state,
            "plan": log.plan,
            "total": log.total,
            "done": log.done,
            "first": log.first,
            "windows": log.first + len(log.windows),
        }
        if log.is_listed:
            head["listed"] = True
        if window is not None:
            head["window"] = _stored(window)
        self._set(STATE_KEY, head)

    def _set(self, key: str, value: Mapping[str, Any]) -> None:
        if not self.task.set(key, value):
            raise CustodyError(
                "another try of this task has taken over: what this one wrote to the task's state is not there; "
                "nothing more was sent",
                code="task-stopped",
                retryable=True,
            )


def _stored(window: Window) -> dict[str, Any]:
    sent = [frozenset(row.known_ids) for row in window.rows.values() if row.state == "sent"]
    # Requests that may belong to any of them are recorded once.
    known = frozenset.intersection(*sent) if sent else frozenset()
    return {
        "state": "window",
        "key": window.key,
        "try": window.try_number,
        "max_tries": window.max_tries,
        "at": window.recorded_at.isoformat(),
        "known": sorted(known),
        **({"service": window.service} if window.service else {}),
        "rows": {
            key: [row.state, row.detail, *(each for each in row.known_ids if each not in known)]
            for key, row in window.rows.items()
        },
    }


def _window(stored: Mapping[str, Any], number: int) -> Window:
    recorded_at = datetime.fromisoformat(stored["at"])
    if recorded_at.tzinfo is None:
        raise ValueError(stored["at"])
    common = tuple(stored["known"])
    rows = {}
    for key, (state, detail, *known_ids) in stored["rows"].items():
        ids = tuple(sorted({*known_ids, *common})) if state == "sent" else tuple(known_ids)
        if state not in _STATES or not all(isinstance(each, str) for each in (detail, *ids)):
            raise ValueError(key)
        rows[str(key)] = Row(state, detail, ids)
    service = str(stored.get("service", ""))
    return Window(str(stored["key"]), number, int(stored["try"]), int(stored["max_tries"]), recorded_at, rows, service)
