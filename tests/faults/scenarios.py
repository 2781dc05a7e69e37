"""
The scenarios, one for each fault; read by the DAG file and by the runner.

They show what real processes make of it. All forms of lost responses, odd services and false signatures are tried in
tests/idempotency and tests/client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ADDRESS = "0x" + "ab" * 20
OTHER = "0x" + "00" * 20
ROWS = 300
RENAMED = 30
Fault = dict[str, Any]

#: What is done to the processes of the first try.
Disruption = Literal[
    "kill the task",
    "kill the supervisor",
    "kill the worker",
    "orphan the task",
    "pause both",
]
#: The moments of the first try at which a process is killed or stopped. The task state store is written when the task
#: begins, with the intent before the request is sent, and with the id after the response.
Moment = Literal[
    "before the intent is stored",
    "before the request is sent",
    "before the response",
    "before the id is stored",
    "after the id is stored",
]


@dataclass(frozen=True)
class Scenario:
    """
    One fault, and what it may result in.

    :param name: short name; also the id of the DAG and of the connection.
    :param fault: description of the fault, as it is printed in the table.
    :param sandbox_faults: arguments of the faults that are added to the sandbox in advance.
    :param disruption: what happens to the processes of the first try. ``kill the task`` and ``kill the worker`` (of
        Celery) are what they say. ``kill the supervisor``: the task goes on after the next try is done. ``orphan the
        task``: its supervisor is killed and it is stopped until the next try has sent its request. ``pause both``:
        task and supervisor are stopped until then, as when a whole machine is paused.
    :param moment: when the disruption happens.
    :param procedure: what the runner does, if it is more than to trigger the DAG and wait.
    :param requests: number of new requests that may exist afterwards.
    :param settings: the service's behaviour, as ``SandboxControl.configure`` takes it.
    :param operator: further arguments of the operator.
    :param mapped: number of mapped task instances; 0: the task is not mapped.
    :param rows: number of rows of a file that is planned and applied; 0: one request is created instead.
    :param renames: whether the plan renames each row, so that a second task completes it. That task is killed.
    :param supervisor_kills: how often of the ten times that it is killed it is the supervisor.
    """

    name: str
    fault: str
    sandbox_faults: tuple[Fault, ...] = ()
    disruption: Disruption | None = None
    moment: Moment | None = None
    procedure: str = "trigger"
    requests: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    operator: dict[str, Any] = field(default_factory=dict)
    mapped: int = 0
    rows: int = 0
    renames: bool = False
    supervisor_kills: int = 0


_LOST = {"method": "POST", "kind": "drop", "work": True}
#: This delay keeps the response until the process has been killed.
_LATE = {"method": "POST", "kind": "normal", "delay_after": 50}
_DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}
_LISTING = {"method": "GET", "path": "/whitelists/addresses"}
_NO_LISTING = {**_LISTING, "kind": "status", "status": 404, "times": None}


def _at_each_moment(name: str, fault: str, disruption: Disruption) -> list[Scenario]:
    """Return scenarios of one disruption; ``{}`` in the description is the moment."""
    moments: tuple[Moment, ...] = Moment.__args__  # type: ignore[attr-defined]
    return [
        Scenario(
            f"{name}_{number}",
            fault.format(moment),
            (_LATE,) if moment == "before the response" else (),
            disruption,
            moment,
        )
        for number, moment in enumerate(moments, start=1)
    ]


def _applied(number: int, fault: str, **more: Any) -> Scenario:
    """Return a scenario in which a plan is applied, every tenth response is lost, and the task is killed."""
    # A fault that is used up does not affect the creates after it.
    lost = tuple({**_LOST, "skip": skip} for skip in range(9, ROWS, 9))
    slow = {"method": "POST", "kind": "normal", "delay": 0.1, "times": None}
    options = {"rows": ROWS, "requests": ROWS, **more}
    return Scenario(f"applied_{number}", fault, (*lost, slow), procedure="kill at random", **options)


def _renamed() -> Scenario:
    """Return a scenario in which a plan is completed, every third response is lost, and the task is killed."""
    lost = tuple({**_DELETE, "kind": "drop", "work": True, "skip": skip} for skip in range(2, RENAMED, 2))
    slow = {**_DELETE, "kind": "normal", "delay": 0.2, "times": None}
    fault = "30 rows renamed, every third response to a deletion lost, the completing task killed at ten random moments"
    return Scenario("renamed", fault, (*lost, slow), procedure="kill while completing", rows=RENAMED, renames=True)


_CLEAR = "clear the task"
_RESUMED = "stopped right before the request is sent, resumed after the next try"

SCENARIOS = [
    # The slowest scenario comes first.
    _applied(
        1,
        "300 rows applied, every tenth response lost, task or once its supervisor killed at ten random moments",
        supervisor_kills=1,
    ),
    _applied(2, "the same, and the service lists requests after two seconds", settings={"whitelist_lag": 2.0}),
    _renamed(),
    Scenario("nothing", "none"),
    *_at_each_moment("task", "task killed {}", "kill the task"),
    *_at_each_moment("supervisor", "supervisor killed {}, task continues later", "kill the supervisor"),
    Scenario("stopped", f"supervisor killed, task {_RESUMED}", (), "orphan the task", "before the request is sent"),
    Scenario("paused", f"task and supervisor {_RESUMED}", (), "pause both", "before the request is sent"),
    Scenario("refused", "connection refused, then accepted", procedure="start the service late"),
    Scenario("dropped_after", "connection dropped after the request is processed", (_LOST,)),
    Scenario("slow", "response slower than the time-out", ({**_LATE, "delay_after": 8},)),
    Scenario(
        "gateway",
        "a gateway's 404 after the request is processed, then cleared by a person",
        ({**_LOST, "kind": "status", "status": 404, "body": {"message": "no route matched"}},),
        procedure=_CLEAR,
    ),
    Scenario(
        "lag", "response lost, lookup finds the request after two seconds", (_LOST,), settings={"whitelist_lag": 2.0}
    ),
    Scenario(
        "person",
        "response lost, lookup not available, then a person gives the id",
        (_LOST, _NO_LISTING),
        procedure="a person gives the id",
    ),
    # Scenarios with a cleared task, a deleted request, or several tasks.
    Scenario("clear_reuse", "cleared by a person, on_clear='reuse'", procedure=_CLEAR),
    Scenario(
        "clear_create",
        "cleared by a person, on_clear='create'",
        procedure=_CLEAR,
        requests=2,
        operator={"on_clear": "create"},
    ),
    Scenario("deleted", "run deleted, triggered again with the same run id", procedure="delete the run", requests=2),
    Scenario(
        "mapped",
        "twenty mapped tasks, every third response lost",
        tuple({**_LOST, "skip": skip} for skip in range(2, 20, 3)),
        requests=20,
        mapped=20,
    ),
    Scenario("twice", "two runs at the same time, same content", procedure="trigger two runs", requests=2),
]

#: For Celery only. They kill a worker with all of its tasks, so they run one at a time.
WORKER_SCENARIOS = _at_each_moment("worker", "Celery worker killed {}", "kill the worker")
