"""A world in which situations are made, and the situations in which docstrings say that an error is raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.airflow.airflow_runs import FakeTaskInstance, execute
from support.airflow.apply_tries import write_rows
from support.airflow.connections import connection_json
from support.keys.pinned_keys import pinned
from support.service.people import Person
from support.service.refusals import OTHER_REFUSAL

from airflow_custody.sandbox import Sandbox

ROW: dict[str, Any] = {"label": "Treasury", "address": "0x" + "ab" * 20, "blockchain": "ETH"}
TYPE, URL = "requestStatus.updated", "https://hooks.example.com/custody"
NO_ID, NO_UUID = "999999", "00000000-0000-4000-8000-000000000000"
ROWS = "/whitelists/addresses"
APPROVE, REJECT, DELETE, FOR_APPROVAL = (f"{ROWS}/{each}" for each in ("approve", "reject", "delete", "for-approval"))
#: Refusals of the service itself, by status.
OWN: dict[int, dict[str, Any]] = {
    400: {"error": "InvalidArgument", "message": "wrong", "code": 3},
    403: OTHER_REFUSAL,
    404: {"error": "NotFound", "message": "no such object", "code": 5},
}


class World:
    """A sandbox, connections to it, and ways to disturb it."""

    def __init__(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.control, self.folder, self.sandbox = sandbox.control, folder, sandbox
        self.person = Person(sandbox, "ann", "approvers")
        self.ti = FakeTaskInstance()
        keys = {"conn_type": "generic", "extra": {"private_key": self.person.pem}}
        monkeypatch.setenv("AIRFLOW_CONN_KEY", json.dumps(keys))
        for name, changes in {
            "custody_default": {},
            "ann": {"password": self.person.token},
            "unknown_host": {"host": "https://custody.invalid"},
        }.items():
            connection = json.loads(connection_json(sandbox)) | changes
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
        for name, pins in (("pinned", self.control.pins()), ("other_pins", pinned(1))):
            connection = json.loads(connection_json(sandbox, **pins)) | {"password": self.person.token}
            monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))

    def fault(self, method: str, path: str, status: int | None = None, *, own: bool = True, **options: Any) -> None:
        """Let calls fail: with a refusal of the service, or of a gateway; without a status, the response is lost."""
        given = {"method": method, "path": path, "times": None, **options}
        if status is None:
            self.control.add_fault("drop", **given)
        elif own and status in OWN:
            self.control.add_fault("status", status=status, body=OWN[status], **given)
        else:
            self.control.add_fault("html", status=status, **given)

    def run(self, operator: type, **arguments: Any) -> Any:
        """Execute a task that has retries."""
        given = {"task_id": "task", "retries": 2, **arguments}
        if hasattr(operator, "poke"):
            given = {"timeout": 0.1, "poke_interval": 0.02, "deferrable": False, **given}
        return execute(lambda: operator(**given), ti=self.ti)

    def request(self, status: str = "pending", **fields: Any) -> str:
        (made,) = self.control.add_whitelist_requests([{**ROW, **fields}], status=status)
        return made

    def webhook(self) -> str:
        return str(self.control.add_webhook()["id"])

    def file(self, *numbers: int, **fields: Any) -> str:
        return write_rows(self.folder / "whitelist.yaml", numbers, **fields)


Work = Callable[[World], Any]


class Case(NamedTuple):
    """
    A situation, and the part of a docstring that describes it.

    :param entry: the class or method.
    :param error: the error's name in the docstring.
    :param says: the part of the docstring's text.
    :param work: makes the situation and the call.
    """

    entry: str
    error: str
    says: str
    work: Work


def cases(entry: type | str, error: str, parts: dict[str, Work]) -> list[Case]:
    """Return the situations for an error in a docstring, by the parts of its text."""
    name = entry if isinstance(entry, str) else entry.__name__
    return [Case(name, error, says, work) for says, work in parts.items()]


def after(*steps: Work) -> Work:
    """Return a function that prepares a situation, and then makes the call, which is the last step."""

    def work(world: World) -> Any:
        for each in steps[:-1]:
            each(world)
        return steps[-1](world)

    return work


def failing(method: str, path: str, status: int | None = None, **options: Any) -> Work:
    return lambda world: world.fault(method, path, status, **options)
