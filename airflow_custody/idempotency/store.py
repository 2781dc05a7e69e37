"""The store of the record that the tries of one task instance share: Airflow's task state store, if there is one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Variable

from airflow_custody.idempotency.records import (
    Begun,
    Created,
    Intent,
    Record,
    Refused,
    Untracked,
    digest,
    from_stored,
    to_stored,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

STATE_KEY = "custody_create_once"


class RecordStore:
    """
    The record that all tries of one task instance share.

    :param context: the task's context.
    """

    def __init__(self, context: Context) -> None:
        self._ti: Any = context["ti"]
        self._run: Any = context.get("dag_run")
        self._task: Any = context.get("task")
        self._store: Any = context.get("task_state_store")
        self.try_number: int = self._ti.try_number
        #: Changes when a person clears the task, and not when it is retried.
        self.max_tries: int = self._ti.max_tries

    def begin(self) -> None:
        """
        Record that a try of this task began, unless something is recorded already.

        Without this, a task that was cleared could not tell whether an earlier try sent nothing, or whether the store
        forgets what succeeded (``[state_store] clear_on_success``, which is set on the server and not known here).
        """
        if self._store is not None and self._store.get(STATE_KEY) is None and not self._may_have_forgotten:
            self.write(Begun())

    def read(self) -> Record | None:
        """
        Return what the last try left behind.

        :return: the record; None if nothing was ever sent. Where the record may be lost, a later try gets an
            :class:`Untracked` one.
        """
        if self._store is not None and (stored := self._store.get(STATE_KEY)) is not None:
            return from_stored(stored)
        if not self._may_have_forgotten:
            return None
        # A clear may change when the run started; then nothing says what is older than the run.
        cleared = self._store is not None or self._run is None or self._run.clear_number
        return Untracked(None if cleared else self._run.start_date)

    @property
    def _may_have_forgotten(self) -> bool:
        """Whether an earlier try may have sent although nothing is recorded."""
        if self.try_number <= 1:
            return False
        # A retry finds what was recorded. After a clear, the store may have been cleared when the task succeeded.
        return self._store is None or self.max_tries != getattr(self._task, "retries", None)

    def new_key(self) -> str | None:
        """Return a key for an intent; None without a store."""
        return None if self._store is None else uuid.uuid4().hex

    def created(self, attempt: Intent | Untracked, identifier: str) -> Created:
        """Return the record of an attempt whose outcome is known. A manual override of the attempt is spent."""
        return Created(identifier, uuid.uuid4().hex, self.max_tries, attempt)

    def write(self, record: Begun | Intent | Refused | Created) -> bool:
        """
        Keep the record for as long as the task instance exists.

        Raises whatever Airflow raises when this process is no longer the task's current try. That must not be
        caught: in a process whose supervisor has died it is a BrokenPipeError, which looks like the network's.

        :return: whether the record is there when it is read again. It is not if another try has taken over while the
            write was under way, or if such a try's own late write came after this one.
        """
        return self.set(STATE_KEY, to_stored(record))

    @property
    def is_kept(self) -> bool:
        """Whether there is a store, so that a later try finds what was written."""
        return self._store is not None

    def get(self, key: str) -> Any:
        """Return what the task's state holds under a key; None for nothing, or without a store."""
        return None if self._store is None else self._store.get(key)

    def set(self, key: str, value: Any) -> bool:
        """
        Keep JSON data under a key of the task's state for as long as the task instance exists.

        Raises as :meth:`write` does.

        :return: whether it is there when it is read again; True without a store.
        """
        if self._store is None:
            return True
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        self._store.set(key, value, retention=NEVER_EXPIRE)
        # Airflow checks that a try is current before it writes, and not while it writes.
        return bool(self._store.get(key) == value)

    def override_variable(self, record: Intent | Untracked | Created, *, next_try: bool = False) -> str:
        """
        Return the name of the Airflow variable that holds a manual override of a record.

        It is another one for each intent, or without a store for each try, so that no override is ever used twice.
        """
        ti = self._ti
        key = None if isinstance(record, Untracked) else record.key
        key = key or digest([ti.dag_id, ti.run_id, ti.task_id, ti.map_index, self.try_number + next_try])
        return f"custody_create_{key[:12]}"

    def manual_override(self, record: Intent | Untracked | Created) -> str | None:
        """
        Return what a person has said about a record.

        :return: an id; or ``none``, and maybe after it the ids of things that are not it; None for nothing.
        """
        name = self.override_variable(record)
        try:
            value = Variable.get(name, default=None)
        except TypeError:  # Airflow 2 has another name for it.
            value = Variable.get(name, default_var=None)  # type: ignore[call-arg]
        words = str(value or "").split()
        if words and words[0].lower() == "none":
            words[0] = "none"
        return " ".join(words) or None
