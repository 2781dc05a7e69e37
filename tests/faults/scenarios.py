"""What goes wrong: one entry for each fault, read by the DAG file and by the runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ADDRESS = "0x" + "ab" * 20
LOST = {"method": "POST", "answer": "drop", "work": True}
LISTING = {"method": "GET", "path": "/whitelists/addresses"}

#: Where in its first try a task is struck. The store is written to twice: the intent, the id.
Moment = Literal["before the intent", "before the send", "before the answer", "before the record", "after the record"]
MOMENTS: tuple[Moment, ...] = (
    "before the intent",
    "before the send",
    "before the answer",
    "before the record",
    "after the record",
)


@dataclass(frozen=True)
class Scenario:
    """
    Describe one fault and what must come of it.

    :param name: short name; also of the DAG and the connection.
    :param fault: what goes wrong, for people.
    :param strike: what happens to the first try: its process is killed, its supervisor is killed and the process
        goes on when the next try is done, or the process is stopped as well and woken then, or both are stopped, as
        when a whole machine is paused; or a whole Celery worker is killed.
    :param moment: when it is struck.
    :param orders: faults that the sandbox is given before.
    :param play: what the runner does, if it is more than to trigger the DAG and wait.
    :param before: requests of the same content that are there before, a month old.
    :param requests: how many requests there may be afterwards that were not there before.
    :param explained: how many tasks may fail with an explanation instead of succeeding.
    :param operator: further arguments of the operator.
    """

    name: str
    fault: str
    strike: Literal["kill", "kill the supervisor", "kill the worker", "stop", "pause"] | None = None
    moment: Moment | None = None
    orders: tuple[dict[str, Any], ...] = ()
    play: str = "plain"
    before: int = 0
    requests: int = 1
    explained: int = 0
    lag: float = 0.0
    operator: dict[str, Any] = field(default_factory=dict)
    mapped: int = 0


def _kills() -> list[Scenario]:
    made = []
    # The answer that is awaited when the strike comes.
    late = ({"method": "POST", "answer": "normal", "delay_after": 50},)
    for number, moment in enumerate(MOMENTS, start=1):
        orders = late if moment == "before the answer" else ()
        made.append(Scenario(f"task_{number}", f"task killed {moment}", "kill", moment, orders))
    for number, moment in enumerate(MOMENTS, start=1):
        fault = f"supervisor killed {moment}, task goes on later"
        orders = late if moment == "before the answer" else ()
        made.append(Scenario(f"supervisor_{number}", fault, "kill the supervisor", moment, orders))
    woken = "stopped right before the send, woken after the next try"
    return [
        *made,
        Scenario("stopped", f"supervisor killed, task {woken}", "stop", "before the send"),
        Scenario("paused", f"task and supervisor {woken}", "pause", "before the send"),
    ]


def _worker_kills() -> list[Scenario]:
    late = ({"method": "POST", "answer": "normal", "delay_after": 50},)
    return [
        Scenario(
            f"worker_{number}",
            f"Celery worker killed {moment}",
            "kill the worker",
            moment,
            late if moment == "before the answer" else (),
        )
        for number, moment in enumerate(MOMENTS, start=1)
    ]


SCENARIOS = [
    Scenario("nothing", "none"),
    *_kills(),
    Scenario("refused", "connection refused, then accepted", play="start the service late"),
    Scenario("dropped_before", "connection dropped before the work", orders=({"method": "POST", "answer": "drop"},)),
    Scenario("dropped_after", "connection dropped after the work", orders=(LOST,)),
    Scenario("status_500", "500 after the work", orders=({**LOST, "answer": "status", "status": 500},)),
    Scenario(
        "status_503", "503 after the work", orders=({**LOST, "answer": "status", "status": 503, "retry_after": 2},)
    ),
    Scenario(
        "busy",
        "503 without work, Retry-After",
        orders=({"method": "POST", "answer": "status", "status": 503, "retry_after": 2},),
    ),
    Scenario(
        "slow", "answer slower than the time-out", orders=({"method": "POST", "answer": "normal", "delay_after": 8},)
    ),
    Scenario("cut", "answer cut in the middle", orders=({"method": "POST", "answer": "cut_body", "keep": 8},)),
    Scenario("html", "HTML instead of the answer", orders=({**LOST, "answer": "html"},)),
    Scenario(
        "lookup_500",
        "answer lost, look-up fails for a while",
        orders=(LOST, {**LISTING, "answer": "status", "status": 500, "skip": 1, "times": 6}),
    ),
    Scenario(
        "lookup_404",
        "answer lost, look-up not offered",
        orders=(LOST, {**LISTING, "answer": "status", "status": 404, "times": None}),
        explained=1,
    ),
    Scenario(
        "person_id",
        "the same, then a person gives the id",
        orders=(LOST, {**LISTING, "answer": "status", "status": 404, "times": None}),
        play="a person gives the id",
    ),
    Scenario(
        "person_none",
        "lost before the work, a person says there is none",
        orders=({"method": "POST", "answer": "drop"}, {**LISTING, "answer": "status", "status": 404, "times": None}),
        play="a person says there is none",
    ),
    Scenario("lag", "answer lost, look-up shows it after two seconds", orders=(LOST,), lag=2.0),
    Scenario("restart", "service killed after the work, started again later", play="restart the service"),
    Scenario("clear_reuse", "cleared by a person, on_clear='reuse'", play="clear"),
    Scenario(
        "clear_create",
        "cleared by a person, on_clear='create'",
        play="clear",
        requests=2,
        operator={"on_clear": "create"},
    ),
    Scenario("deleted", "run deleted, triggered again with its id", play="delete the run", requests=2),
    Scenario(
        "mapped",
        "twenty mapped tasks, one answer in three lost",
        orders=tuple({**LOST, "skip": skip} for skip in range(2, 20, 3)),
        requests=20,
        mapped=20,
    ),
    Scenario("last_month", "same content whitelisted last month, answer lost", orders=(LOST,), before=1),
    Scenario("twice", "two DAGs, same content, same moment", play="two runs", requests=2),
    Scenario("twice_lost", "the same, and one answer lost", play="two runs", orders=(LOST,), requests=2, explained=1),
]

#: Only where there are workers; each takes a worker down, so they are played one at a time.
WORKER_SCENARIOS = _worker_kills()
