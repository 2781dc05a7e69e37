"""The scenarios, one for each fault; read by the DAG file and by the runner."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

ADDRESS = "0x" + "ab" * 20
OTHER = "0x" + "00" * 20
ROWS = 300
LOST_RESPONSE = {"method": "POST", "kind": "drop", "work": True}
LISTING = {"method": "GET", "path": "/whitelists/addresses"}

#: What happens to the processes of the first try.
Disruption = Literal[
    "kill the task",
    "kill the supervisor",
    "kill the worker",
    "orphan the task",
    "pause both",
    "cut the network",
    "hold the store",
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
MOMENTS: tuple[Moment, ...] = (
    "before the intent is stored",
    "before the request is sent",
    "before the response",
    "before the id is stored",
    "after the id is stored",
)
#: Delays the response until after the process is killed.
LATE_RESPONSE = {"method": "POST", "kind": "normal", "delay_after": 50}


@dataclass(frozen=True)
class Scenario:
    """
    One fault, and what it may result in.

    :param name: short name; also the id of the DAG and of the connection.
    :param fault: description of the fault, as it is printed in the table.
    :param disruption: what happens to the processes of the first try. ``kill the task`` and ``kill the worker`` (of
        Celery) are what they say. ``kill the supervisor``: the task goes on after the next try is done. ``orphan the
        task``: its supervisor is killed and it is stopped until the next try has sent its request. ``pause both``:
        task and supervisor are stopped until then, as when a whole machine is paused. ``cut the network``: between the
        task and the service, until the kernel would send the request again. ``hold the store``: the task's next write
        waits in the database until the task was failed and cleared.
    :param moment: when the disruption happens.
    :param sandbox_faults: arguments of the faults that are added to the sandbox in advance.
    :param procedure: what the runner does, if it is more than to trigger the DAG and wait.
    :param existing: number of requests with the same content that exist in advance, a month old.
    :param requests: number of new requests that may exist afterwards.
    :param explained: number of tasks that may fail with an explanation instead of succeeding.
    :param lag: seconds until the service lists a request that it has created.
    :param behaviour: what the service makes of requests, as ``SandboxControl.set_whitelist_behaviour`` takes it.
    :param first: whether the user has created nothing before, so that the absence of a request proves nothing.
    :param operator: further arguments of the operator.
    :param mapped: number of mapped task instances; 0: the task is not mapped.
    :param rows: number of rows of a file that is planned and applied; 0: one request is created instead.
    :param kills: how often that is killed, at random moments.
    :param supervisor_kills: how often of these it is the supervisor.
    :param attack: how the service lies about an address that is really signed, as the sandbox names it; "" if it does
        not, and None if nobody asks whether an address is verified.
    """

    name: str
    fault: str
    disruption: Disruption | None = None
    moment: Moment | None = None
    sandbox_faults: tuple[dict[str, Any], ...] = ()
    procedure: str = "trigger"
    existing: int = 0
    requests: int = 1
    explained: int = 0
    lag: float = 0.0
    behaviour: dict[str, Any] = field(default_factory=dict)
    first: bool = False
    operator: dict[str, Any] = field(default_factory=dict)
    mapped: int = 0
    rows: int = 0
    kills: int = 0
    supervisor_kills: int = 0
    attack: str | None = None


def _sandbox_faults(moment: Moment) -> tuple[dict[str, Any], ...]:
    return (LATE_RESPONSE,) if moment == "before the response" else ()


def _process_scenarios() -> list[Scenario]:
    resumed = "stopped right before the request is sent, resumed after the next try"
    return [
        *(
            Scenario(f"task_{number}", f"task killed {moment}", "kill the task", moment, _sandbox_faults(moment))
            for number, moment in enumerate(MOMENTS, start=1)
        ),
        *(
            Scenario(
                f"supervisor_{number}",
                f"supervisor killed {moment}, task continues later",
                "kill the supervisor",
                moment,
                _sandbox_faults(moment),
            )
            for number, moment in enumerate(MOMENTS, start=1)
        ),
        Scenario("stopped", f"supervisor killed, task {resumed}", "orphan the task", "before the request is sent"),
        Scenario("paused", f"task and supervisor {resumed}", "pause both", "before the request is sent"),
    ]


def _worker_scenarios() -> list[Scenario]:
    return [
        Scenario(
            f"worker_{number}",
            f"Celery worker killed {moment}",
            "kill the worker",
            moment,
            _sandbox_faults(moment),
        )
        for number, moment in enumerate(MOMENTS, start=1)
    ]


def _odd_service_scenarios() -> list[Scenario]:
    lost = (LOST_RESPONSE,)
    page = {"body": {"message": "no route matched"}}
    return [
        *(
            Scenario(
                f"gateway_{status}",
                f"a gateway's {status} after the request is processed, then cleared by a person",
                sandbox_faults=({**LOST_RESPONSE, "kind": "status", "status": status, **page},),
                procedure="clear the task",
            )
            for status in (403, 404)
        ),
        Scenario(
            "redirect",
            "a redirect after the request is processed, then cleared by a person",
            sandbox_faults=({**LOST_RESPONSE, "kind": "redirect", "location": "https://example.com/"},),
            procedure="clear the task",
        ),
        Scenario(
            "spelling",
            "response lost, the service spells the address differently",
            sandbox_faults=lost,
            behaviour={"address_form": "upper"},
        ),
        Scenario(
            "label",
            "response lost, the service shortens the label",
            sandbox_faults=lost,
            behaviour={"label_length": 4},
            explained=1,
        ),
        Scenario(
            "hidden",
            "response lost, the service does not list a user's own requests",
            sandbox_faults=lost,
            behaviour={"creator_sees_own": False},
            explained=1,
        ),
        Scenario(
            "behind",
            "response lost, the service's clock is two days behind, look_before_create=False",
            sandbox_faults=lost,
            behaviour={"clock_offset": -2 * 86400},
            operator={"look_before_create": False},
            explained=1,
        ),
        Scenario(
            "clear_soon",
            "cleared by a person before the service lists the request",
            procedure="clear the task",
            lag=8.0,
            operator={"lookup_wait": 20.0},
        ),
        Scenario(
            "hanging",
            "task killed before the id is stored, the service hangs for longer than lookups wait",
            "kill the task",
            "before the id is stored",
            sandbox_faults=({**LISTING, "delay": 30, "skip": 1, "times": 5},),
            lag=16.0,
        ),
    ]


def _applied(name: str, fault: str, **more: Any) -> Scenario:
    """Return a scenario in which a plan is applied, every tenth response is lost, and the task is killed."""
    # A fault that is used does not count for those after it.
    lost = tuple({**LOST_RESPONSE, "skip": skip} for skip in range(9, ROWS, 9))
    slow = {"method": "POST", "kind": "normal", "delay": 0.1, "times": None}
    kills = {"rows": ROWS, "requests": ROWS, "kills": 10}
    return Scenario(name, fault, sandbox_faults=(*lost, slow), procedure="kill at random", **{**kills, **more})


APPLY_SCENARIOS = [
    _applied("applied_1", "300 rows applied, every tenth response lost, task killed at ten random moments"),
    _applied("applied_2", "the same, and the service lists requests after two seconds", lag=2.0),
    _applied("applied_3", "the same, with 32 requests at once", operator={"max_parallel": 32}),
    _applied("applied_4", "the same, with one request at once", operator={"max_parallel": 1}),
    _applied("applied_5", "the same, and one of the ten times it is the supervisor that is killed", supervisor_kills=1),
]


def _lie(number: int, fault: str, attack: str) -> Scenario:
    """Return a scenario in which signing, waiting and reconciling meet an address, with pinned keys."""
    return Scenario(f"lie_{number}", fault, procedure="the service lies", requests=3, first=True, attack=attack)


LIE_SCENARIOS = [
    _lie(1, "the service shows an address that is really signed, by pinned keys", ""),
    _lie(2, "the service lies: another address in the text, with a hash of its own", "text and hash"),
    _lie(3, "the service lies: rules and signatures by keys of its own", "own rules"),
    _lie(
        4,
        "the service lies: one super-administrator's signature under several names",
        "one super-administrator under several names",
    ),
    _lie(5, "the service lies: a user added to signed rules", "extended rules"),
    _lie(6, "the service lies: one user's signature under several names", "one user under several names"),
    _lie(7, "the service lies: keys of its own under the users' names", "signatures under the users' names"),
    _lie(8, "the service lies: the hash put into an old signature's list", "hash in an old signature"),
    _lie(9, "the service lies: another chain, whose rules are weaker", "another chain"),
    _lie(10, "the service lies: a second address in the text", "address twice"),
]

SCENARIOS = [
    *APPLY_SCENARIOS,
    *LIE_SCENARIOS,
    Scenario("nothing", "none"),
    *_process_scenarios(),
    Scenario("refused", "connection refused, then accepted", procedure="start the service late"),
    Scenario(
        "dropped_before",
        "connection dropped before the request is processed",
        sandbox_faults=({"method": "POST", "kind": "drop"},),
    ),
    Scenario(
        "dropped_first",
        "the same, and it is this user's first request",
        sandbox_faults=({"method": "POST", "kind": "drop"},),
        first=True,
        requests=0,
        explained=1,
    ),
    Scenario("dropped_after", "connection dropped after the request is processed", sandbox_faults=(LOST_RESPONSE,)),
    Scenario(
        "status_500",
        "500 after the request is processed",
        sandbox_faults=({**LOST_RESPONSE, "kind": "status", "status": 500},),
    ),
    Scenario(
        "status_503",
        "503 after the request is processed",
        sandbox_faults=({**LOST_RESPONSE, "kind": "status", "status": 503, "retry_after": 2},),
    ),
    Scenario(
        "busy",
        "503 with Retry-After, request not processed",
        sandbox_faults=({"method": "POST", "kind": "status", "status": 503, "retry_after": 2},),
    ),
    Scenario(
        "slow",
        "response slower than the time-out",
        sandbox_faults=({"method": "POST", "kind": "normal", "delay_after": 8},),
    ),
    Scenario("cut", "response truncated", sandbox_faults=({"method": "POST", "kind": "truncate_body", "keep": 8},)),
    Scenario("html", "HTML instead of the response", sandbox_faults=({**LOST_RESPONSE, "kind": "html"},)),
    Scenario(
        "lookup_500",
        "response lost, lookup fails for a while",
        sandbox_faults=(LOST_RESPONSE, {**LISTING, "kind": "status", "status": 500, "skip": 1, "times": 6}),
    ),
    Scenario(
        "lookup_404",
        "response lost, lookup not available",
        sandbox_faults=(LOST_RESPONSE, {**LISTING, "kind": "status", "status": 404, "times": None}),
        explained=1,
    ),
    Scenario(
        "person_id",
        "the same, then a person gives the id",
        sandbox_faults=(LOST_RESPONSE, {**LISTING, "kind": "status", "status": 404, "times": None}),
        procedure="a person gives the id",
    ),
    Scenario(
        "person_none",
        "request lost, a person says that none was created",
        sandbox_faults=(
            {"method": "POST", "kind": "drop"},
            {**LISTING, "kind": "status", "status": 404, "times": None},
        ),
        procedure="a person says that none was created",
    ),
    *_odd_service_scenarios(),
    Scenario(
        "lag", "response lost, lookup finds the request after two seconds", sandbox_faults=(LOST_RESPONSE,), lag=2.0
    ),
    Scenario(
        "restart", "service killed after the request is processed, restarted later", procedure="restart the service"
    ),
    Scenario("clear_reuse", "cleared by a person, on_clear='reuse'", procedure="clear the task"),
    Scenario(
        "clear_create",
        "cleared by a person, on_clear='create'",
        procedure="clear the task",
        requests=2,
        operator={"on_clear": "create"},
    ),
    Scenario("deleted", "run deleted, triggered again with the same run id", procedure="delete the run", requests=2),
    Scenario(
        "mapped",
        "twenty mapped tasks, every third response lost",
        sandbox_faults=tuple({**LOST_RESPONSE, "skip": skip} for skip in range(2, 20, 3)),
        requests=20,
        mapped=20,
    ),
    Scenario(
        "last_month", "same content whitelisted last month, response lost", sandbox_faults=(LOST_RESPONSE,), existing=1
    ),
    Scenario("twice", "two runs at the same time, same content", procedure="trigger two runs", requests=2),
    Scenario(
        "twice_lost",
        "the same, and one response lost",
        procedure="trigger two runs",
        sandbox_faults=(LOST_RESPONSE,),
        requests=2,
        explained=1,
    ),
]

#: Where network namespaces are to be had.
NETWORK_SCENARIOS = [
    Scenario(
        "network_gone",
        "network gone when the request is sent, back before the kernel would send it again",
        "cut the network",
        "before the request is sent",
    )
]

#: For Celery and PostgreSQL only. They kill a worker or lock a table, so they run one at a time.
WORKER_SCENARIOS = [
    *_worker_scenarios(),
    Scenario(
        "late_write",
        "the intent's write waits in the database while the task is marked as failed and cleared",
        "hold the store",
        "before the intent is stored",
        procedure="hold the store",
    ),
]
