"""The scenarios, one for each fault; read by the DAG file and by the runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ADDRESS = "0x" + "ab" * 20
OTHER = "0x" + "00" * 20
ROWS = 300
RENAMED = 30
Fault = dict[str, Any]

#: What happens to the processes of the first try.
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
    :param existing: number of requests with the same content that exist in advance, a month old.
    :param requests: number of new requests that may exist afterwards.
    :param explained: number of tasks that may fail with an explanation instead of succeeding.
    :param settings: the service's behaviour, as ``SandboxControl.configure`` takes it.
    :param first: whether the user has created nothing before, so that the absence of a request proves nothing.
    :param operator: further arguments of the operator.
    :param mapped: number of mapped task instances; 0: the task is not mapped.
    :param rows: number of rows of a file that is planned and applied; 0: one request is created instead.
    :param renames: whether the plan renames each row, so that a second task completes it. That task is killed.
    :param supervisor_kills: how often of the ten times that it is killed it is the supervisor.
    :param attack: how the service lies about an address that is really signed, as ``attacks`` names it; "" if it does
        not, and None if nobody asks whether an address is verified.
    """

    name: str
    fault: str
    sandbox_faults: tuple[Fault, ...] = ()
    disruption: Disruption | None = None
    moment: Moment | None = None
    procedure: str = "trigger"
    existing: int = 0
    requests: int = 1
    explained: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    first: bool = False
    operator: dict[str, Any] = field(default_factory=dict)
    mapped: int = 0
    rows: int = 0
    renames: bool = False
    supervisor_kills: int = 0
    attack: str | None = None


_NOT_SENT = {"method": "POST", "kind": "drop"}
_LOST = {**_NOT_SENT, "work": True}
#: Delays the response until after the process is killed.
_LATE = {"method": "POST", "kind": "normal", "delay_after": 50}
_DELETE = {"method": "POST", "path": "/whitelists/addresses/delete"}
_LISTING = {"method": "GET", "path": "/whitelists/addresses"}
_NO_LISTING = {**_LISTING, "kind": "status", "status": 404, "times": None}


def _status(status: int, **more: Any) -> Fault:
    """Return a response with another status, after the request is processed."""
    return {**_LOST, "kind": "status", "status": status, **more}


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
    # A fault that is used does not count for those after it.
    lost = tuple({**_LOST, "skip": skip} for skip in range(9, ROWS, 9))
    slow = {"method": "POST", "kind": "normal", "delay": 0.1, "times": None}
    options = {"rows": ROWS, "requests": ROWS, **more}
    return Scenario(f"applied_{number}", fault, (*lost, slow), procedure="kill at random", **options)


def _renamed(number: int, fault: str, **more: Any) -> Scenario:
    """Return a scenario in which a plan is completed, every third response is lost, and the task is killed."""
    lost = tuple({**_DELETE, "kind": "drop", "work": True, "skip": skip} for skip in range(2, RENAMED, 2))
    slow = {**_DELETE, "kind": "normal", "delay": 0.2, "times": None}
    options = {"rows": RENAMED, "renames": True, **more}
    return Scenario(f"renamed_{number}", fault, (*lost, slow), **options)


#: What the service makes of an address that is signed by pinned keys: one attack of each kind. The client's tests and
#: those of the tasks try all in tests/support/keys/attacks.py.
_LIES = {
    "": "the service shows an address that is really signed, by pinned keys",
    "text and hash": "the service lies: another address in the text, with a hash of its own",
    "own rules": "the service lies: rules and signatures by keys of its own",
    "one user under several names": "the service lies: one user's signature under several names",
}
_CLEAR, _TWO_RUNS = "clear the task", "trigger two runs"
_RESUMED = "stopped right before the request is sent, resumed after the next try"

SCENARIOS = [
    # The slowest first.
    _applied(
        1,
        "300 rows applied, every tenth response lost, task or once its supervisor killed at ten random moments",
        supervisor_kills=1,
    ),
    _applied(2, "the same, and the service lists requests after two seconds", settings={"whitelist_lag": 2.0}),
    _applied(3, "the same, with 32 requests at once", operator={"max_parallel": 32}),
    _renamed(
        1,
        "30 rows renamed, every third response to a deletion lost, the completing task killed at ten random moments",
        procedure="kill while completing",
    ),
    _renamed(2, "the same, and a successor is revoked meanwhile", procedure="revoke while completing"),
    *(
        Scenario(f"lie_{number}", fault, procedure="let the service lie", requests=3, first=True, attack=attack)
        for number, (attack, fault) in enumerate(_LIES.items(), start=1)
    ),
    Scenario("nothing", "none"),
    *_at_each_moment("task", "task killed {}", "kill the task"),
    *_at_each_moment("supervisor", "supervisor killed {}, task continues later", "kill the supervisor"),
    Scenario("stopped", f"supervisor killed, task {_RESUMED}", (), "orphan the task", "before the request is sent"),
    Scenario("paused", f"task and supervisor {_RESUMED}", (), "pause both", "before the request is sent"),
    Scenario("refused", "connection refused, then accepted", procedure="start the service late"),
    # Not sent, or sent and lost; tests/idempotency has all forms of a lost response.
    Scenario("dropped_before", "connection dropped before the request is processed", (_NOT_SENT,)),
    Scenario(
        "dropped_first",
        "the same, and it is this user's first request",
        (_NOT_SENT,),
        first=True,
        requests=0,
        explained=1,
    ),
    Scenario("dropped_after", "connection dropped after the request is processed", (_LOST,)),
    Scenario("status_503", "503 after the request is processed", (_status(503, retry_after=2),)),
    Scenario("busy", "503 with Retry-After, request not processed", (_status(503, retry_after=2, work=False),)),
    Scenario("slow", "response slower than the time-out", ({**_LATE, "delay_after": 8},)),
    Scenario("cut", "response truncated", ({"method": "POST", "kind": "truncate_body", "keep": 8},)),
    Scenario(
        "gateway",
        "a gateway's 404 after the request is processed, then cleared by a person",
        (_status(404, body={"message": "no route matched"}),),
        procedure=_CLEAR,
    ),
    Scenario(
        "restart", "service killed after the request is processed, restarted later", procedure="restart the service"
    ),
    # Found again, or not; tests/idempotency/test_odd_services.py has stranger services.
    Scenario(
        "lag", "response lost, lookup finds the request after two seconds", (_LOST,), settings={"whitelist_lag": 2.0}
    ),
    Scenario(
        "lookup_500",
        "response lost, lookup fails for a while",
        (_LOST, {**_LISTING, "kind": "status", "status": 500, "skip": 1, "times": 6}),
    ),
    Scenario("lookup_404", "response lost, lookup not available", (_LOST, _NO_LISTING), explained=1),
    Scenario(
        "person_id", "the same, then a person gives the id", (_LOST, _NO_LISTING), procedure="a person gives the id"
    ),
    Scenario(
        "person_none",
        "request lost, a person says that none was created",
        (_NOT_SENT, _NO_LISTING),
        procedure="a person says none",
    ),
    Scenario(
        "hanging",
        "task killed before the id is stored, the service hangs for longer than lookups wait",
        ({**_LISTING, "delay": 30, "skip": 1, "times": 5},),
        "kill the task",
        "before the id is stored",
        settings={"whitelist_lag": 16.0},
    ),
    Scenario("last_month", "same content whitelisted last month, response lost", (_LOST,), existing=1),
    # Cleared, deleted, several.
    Scenario(
        "clear_soon",
        "cleared by a person before the service lists the request",
        procedure=_CLEAR,
        settings={"whitelist_lag": 8.0},
        operator={"lookup_wait": 20.0},
    ),
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
    Scenario("twice", "two runs at the same time, same content", procedure=_TWO_RUNS, requests=2),
    Scenario("twice_lost", "the same, and one response lost", (_LOST,), procedure=_TWO_RUNS, requests=2, explained=1),
]

#: For Celery only. They kill a worker with all of its tasks, so they run one at a time.
WORKER_SCENARIOS = _at_each_moment("worker", "Celery worker killed {}", "kill the worker")
