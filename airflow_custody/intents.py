"""What the tries of one task instance know of each other: what they were about to send, and what came of it."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Variable, conf

from airflow_custody.client.errors import CustodyOutcomeUnknownError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_KEY = "custody_create_once"
_FORMAT = 1


class Intents:
    """What the tries of one task instance know of each other: Airflow's task state store, where there is one."""

    def __init__(self, context: Context) -> None:
        self._ti: Any = context["ti"]
        self._run: Any = context.get("dag_run")
        self._store: Any = context.get("task_state_store")
        #: Changes when a person clears the task, and not when it is retried.
        self.max_tries: int = self._ti.max_tries

    def read(self) -> dict[str, Any] | None:
        """
        Return what the last try left behind.

        :return: the record; None if nothing was ever sent. Without a store, or with one that forgets on success, a
            later try gets an intent of which nothing is known.
        """
        if self._store is not None:
            record: dict[str, Any] | None = self._store.get(_KEY)
            if record is not None:
                if record.get("format") != _FORMAT:
                    raise CustodyOutcomeUnknownError(
                        "the record of an earlier try was written by another version of airflow-provider-custody "
                        "and can not be read, so nothing is sent"
                    )
                return record
            if not conf.getboolean("state_store", "clear_on_success", fallback=False):
                return None
        if self._ti.try_number <= 1:
            return None
        record = {"format": _FORMAT, "state": "intent"}
        # A clear may change when the run started; then nothing says what is older than the run.
        if self._run is not None and not self._run.clear_number and self._run.start_date is not None:
            record["since"] = self._run.start_date.isoformat()
        return record

    def new(self, content: dict[str, str], before: list[str] | None) -> dict[str, Any]:
        """Return the record of a send that is about to happen; nothing in it is secret."""
        record: dict[str, Any] = {
            "format": _FORMAT,
            "state": "intent",
            "try": self._ti.try_number,
            "max_tries": self.max_tries,
            "content": content,
        }
        if before is not None:
            record["before"] = before
        if self._store is not None:
            record["key"] = _new_key()
        return record

    def settled(self, record: dict[str, Any], created: str) -> dict[str, Any]:
        """Return the record of an intent whose outcome is known; a person's word about the intent is spent."""
        return {**record, "state": "created", "id": created, "max_tries": self.max_tries, "key": _new_key()}

    def write(self, record: dict[str, Any]) -> None:
        """
        Keep the record, for as long as the task instance exists.

        Raises whatever Airflow raises when this process is not the task's current try any more. That must not be
        caught: in a process whose supervisor has died it is a BrokenPipeError, which looks like the network's.
        """
        if self._store is None:
            return
        from airflow.sdk.execution_time.context import NEVER_EXPIRE

        self._store.set(_KEY, record, retention=NEVER_EXPIRE)

    def variable(self, record: Mapping[str, Any], *, next_try: bool = False) -> str:
        """
        Return the name of the Airflow variable that holds a person's word about an intent.

        It is another one for each intent, or without a store for each try, so that no word is ever used twice.
        """
        ti = self._ti
        key = record.get("key") or digest([ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.try_number + next_try])
        return f"custody_create_{key[:12]}"

    def persons_word(self, record: Mapping[str, Any]) -> str | None:
        """Return what a person says about an intent: an id, ``none``, or nothing."""
        name = self.variable(record)
        try:
            said = Variable.get(name, default=None)
        except TypeError:  # Airflow 2 has another name for it.
            said = Variable.get(name, default_var=None)  # type: ignore[call-arg]
        said = str(said or "").strip()
        return "none" if said.lower() == "none" else said or None


def _new_key() -> str:
    return uuid.uuid4().hex


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
