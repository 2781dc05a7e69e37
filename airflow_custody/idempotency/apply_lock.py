"""A lock for applying plans: at most one task at a time does so at a service, whatever starts it."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Variable

from airflow_custody.client.errors import CustodyConflictError, CustodyError
from airflow_custody.client.text import sanitize
from airflow_custody.idempotency.records import digest

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: Seconds without a sign of life after which nobody waits for the lock any longer. Airflow takes five minutes, by
#: default, to find that a task's worker has died; a task that waits for it must not give up before.
MAX_SILENCE = 900.0
#: Seconds that a write is expected to take at most. After a slower one, the next holder waits longer.
SETTLE = 1.0
_POLL_INTERVAL = 2.0
# States of a task instance that may be at work.
_AT_WORK = frozenset({"running", "restarting"})


class ApplyLock:
    """
    A task's lock on applying plans at a service.

    It is an Airflow variable that names the holder. Airflow has no operation that sets a variable only if nobody else
    has, so a task writes its name, waits until every write that was under way has come in, and holds the lock if its
    own name is still there (Fischer's algorithm).

    :param context: the task's context.
    :param service: the base URL of the service.
    :param log: the task's log.
    :param under_way: seconds for which a task that has lost the lock may still create something, or the service may not
        list it yet. Waited for after taking over a lock that was not released. Default 0.
    """

    def __init__(
        self,
        context: Context,
        service: str,
        log: logging.Logger,
        *,
        under_way: float = 0.0,
    ) -> None:
        ti: Any = context["ti"]
        self._ti = ti
        self._owner = {name: getattr(ti, name, None) for name in ("dag_id", "run_id", "task_id", "map_index")}
        self._token = uuid.uuid4().hex
        self._log = log
        self._under_way = under_way
        self._beat = 0
        #: Whether the service lists all that this task has created; set it once it does.
        self.is_settled = True
        self.variable = f"custody_apply_{digest(service)[:12]}"

    @contextmanager
    def held(self) -> Iterator[None]:
        """
        Hold the lock for a block of code.

        :raises CustodyConflictError: if the holder gives no sign of life; it is retryable.
        """
        if not _has_variables():
            self._log.warning(
                "There is no Airflow that keeps variables: nothing keeps two tasks from applying at once."
            )
            yield
            return
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def renew(self) -> None:
        """
        Give a sign of life. Call it before anything is sent.

        :raises CustodyError: if another has it.
        """
        if not _has_variables():
            return
        if self._holder().get("token") != self._token:
            raise CustodyError(
                "another task applies a plan at this service now, or the variable "
                f"{self.variable} was changed; nothing more was sent",
                code="plan-incomplete",
                retryable=True,
            )
        self._beat += 1
        self._write()
        self.is_settled = False

    def _acquire(self) -> None:
        seen, since = None, time.monotonic()
        while True:
            started = time.monotonic()
            holder = self._holder()
            if not holder or self._is_own(holder) or self._has_ended(holder):
                self._write()
                elapsed = time.monotonic() - started
                time.sleep(max(SETTLE, elapsed))
                if self._holder().get("token") != self._token:
                    continue
                if elapsed >= SETTLE or (holder and not self._is_own(holder)):
                    self._log.info(
                        "Waiting %.0f s until the service shows what another task may have created.", self._under_way
                    )
                    time.sleep(self._under_way)
                return
            if holder != seen:
                if seen is None:
                    self._log.info("Another task applies a plan at this service: %s. Taking turns.", _name(holder))
                seen, since = holder, time.monotonic()
            if time.monotonic() - since >= MAX_SILENCE:
                raise CustodyConflictError(
                    f"another task applies a plan at this service, {_name(holder)}, and has given no sign of life for "
                    f"{MAX_SILENCE:g} s; nothing was sent",
                    code="plan-incomplete",
                    retryable=True,
                    advice=f"If it no longer runs: airflow variables delete {self.variable}. Then clear this task.",
                )
            time.sleep(_POLL_INTERVAL)

    def _release(self) -> None:
        """Release the lock: at once, or after the time for which something may be under way."""
        try:
            if self._holder().get("token") != self._token:
                return
            if self.is_settled:
                Variable.delete(self.variable)
            else:
                self._write(ended=True)
        except Exception as error:
            # The next one sees that this task has ended.
            self._log.warning("The variable %s could not be given back: %s", self.variable, type(error).__name__)

    def _holder(self) -> dict[str, Any]:
        try:
            text = Variable.get(self.variable, default=None)
        except TypeError:  # Airflow 2 has another name for it.
            text = Variable.get(self.variable, default_var=None)  # type: ignore[call-arg]
        try:
            holder = json.loads(text or "{}")
        except ValueError:
            holder = None
        # Not written by this class, so somebody holds it.
        return holder if isinstance(holder, dict) else {"unreadable": True}

    def _write(self, *, ended: bool = False) -> None:
        more = {"ended": True} if ended else {}
        Variable.set(self.variable, json.dumps({**self._owner, "token": self._token, "beat": self._beat, **more}))

    def _is_own(self, holder: dict[str, Any]) -> bool:
        return {name: holder.get(name) for name in self._owner} == self._owner

    def _has_ended(self, holder: dict[str, Any]) -> bool:
        """Tell whether the holder has ended; False if that cannot be known."""
        if holder.get("ended") is True:
            return True
        get_states = getattr(self._ti, "get_task_states", None)
        dag_id, task_id, run_id = (holder.get(name) for name in ("dag_id", "task_id", "run_id"))
        if get_states is None or not (dag_id and task_id and run_id):
            return False
        map_index = holder.get("map_index")
        only = {"map_index": map_index} if isinstance(map_index, int) and map_index >= 0 else {}
        states = get_states(dag_id=dag_id, task_ids=[task_id], run_ids=[run_id], **only)
        # A deleted run has none.
        return not any(str(state) in _AT_WORK for each in states.values() for state in _values(each))


def _values(states: Any) -> list[Any]:
    return list(states.values()) if isinstance(states, dict) else [states]


def _name(holder: dict[str, Any]) -> str:
    if "unreadable" in holder:
        return "of which the variable's text cannot be read"
    return ", ".join(f"{name} {sanitize(holder.get(name), 80)}" for name in ("dag_id", "run_id", "task_id"))


def _has_variables() -> bool:
    """Tell whether variables can be set: not where Airflow 3's operators run outside of a task."""
    try:
        from airflow.sdk.execution_time import task_runner
    except ImportError:
        return True
    return hasattr(task_runner, "SUPERVISOR_COMMS")
