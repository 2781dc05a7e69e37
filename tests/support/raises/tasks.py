"""The situations in which the docstrings of operators and sensors say that an error is raised."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.apply_tries import ApplyTask, effective, plan
from support.airflow.storages import Storage, attach
from support.airflow.task_tries import RowsStore
from support.airflow.webhook_reads import Reader, write_calls
from support.raises.world import (
    APPROVE,
    DELETE,
    FOR_APPROVAL,
    NO_ID,
    NO_UUID,
    REJECT,
    ROW,
    ROWS,
    TYPE,
    URL,
    Case,
    Work,
    World,
    after,
    cases,
    failing,
)

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import (
    CustodyCreateWebhookOperator,
    CustodyDeleteWebhookOperator,
    CustodySetWebhookStatusOperator,
)
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodyVerifyWhitelistOperator,
)
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

CASES: list[Case] = []


# --- health ------------------------------------------------------------------------------------------------


def health(world: World, kind: type = CustodyHealthCheckOperator, **arguments: Any) -> Any:
    return world.run(kind, **arguments)


def unhealthy(world: World) -> None:
    world.control.update_health(status="failure")


# The sensor's default time would end it on a busy machine before its second look.
_PATIENT: dict[type, dict[str, Any]] = {CustodyHealthCheckOperator: {}, CustodyHealthSensor: {"timeout": 600}}
for _kind, _time in _PATIENT.items():
    CASES += cases(
        _kind,
        "AirflowFailException",
        {
            "a name does not exist": partial(health, kind=_kind, groups=["hms"], **_time),
            "a setting is wrong": partial(health, kind=_kind, custody_conn_id="none"),
            "the service refuses the listing": after(failing("GET", "/health", 403), partial(health, kind=_kind)),
        },
    )
CASES += cases(
    CustodyHealthCheckOperator, "CustodyUnhealthyError", {"the service is not healthy": after(unhealthy, health)}
)
CASES += cases(
    CustodyHealthCheckOperator,
    "CustodyError",
    {"the service does not respond as it should": after(failing("GET", "/health"), health)},
)
_waiting = partial(health, kind=CustodyHealthSensor)
CASES += cases(
    CustodyHealthSensor, "AirflowSensorTimeout", {"the service is not healthy in time": after(unhealthy, _waiting)}
)
CASES += cases(
    CustodyHealthSensor,
    "AirflowSkipException",
    {
        "the service is not healthy in time, and ``soft_fail`` is True": after(
            unhealthy, partial(_waiting, soft_fail=True)
        )
    },
)
CASES += cases(
    CustodyHealthSensor,
    "CustodyError",
    {"the host name does not exist at the first poll": partial(_waiting, custody_conn_id="unknown_host")},
)


# --- one request -------------------------------------------------------------------------------------------


def create(world: World, **changes: Any) -> Any:
    return world.run(CustodyCreateWhitelistRequestOperator, **{"lookup_wait": 0.1, **ROW, **changes})


def delete(world: World, **changes: Any) -> Any:
    given = {"request_id": NO_ID, "comment": "old", **changes}
    return world.run(CustodyDeleteWhitelistRequestOperator, **given)


def delete_one(world: World) -> Any:
    return delete(world, request_id=world.request())


def await_request(world: World, status: str = "APPROVED", **arguments: Any) -> Any:
    request_id = world.request(status)
    return world.run(CustodyWhitelistRequestSensor, **{"request_id": request_id, **arguments})


CASES += cases(
    CustodyCreateWhitelistRequestOperator,
    "AirflowFailException",
    {
        "the request is wrong": partial(create, address="0x12"),
        "refused": after(failing("POST", ROWS, 400), create),
        "its outcome is unknown": after(failing("POST", ROWS), create),
        "because of ``if_exists``": after(lambda w: w.request(), partial(create, if_exists="fail")),
    },
)
CASES += cases(
    CustodyCreateWhitelistRequestOperator,
    "CustodyError",
    {
        "the service cannot be searched for the request": after(failing("GET", ROWS), create),
        "the create certainly had no effect": after(
            # Another request of this user proves that a search finds this user's requests.
            lambda w: w.request(address="0x" + "cd" * 20),
            failing("POST", ROWS),
            create,
        ),
    },
)
CASES += cases(
    CustodyDeleteWhitelistRequestOperator,
    "AirflowFailException",
    {
        "the id": partial(delete, request_id="37a"),
        "the comment": partial(delete, comment=""),
        "``only_if`` is missing or malformed (nothing is sent)": partial(delete, only_if="maybe"),
        "the service refuses the deletion": after(failing("POST", DELETE, 400), delete_one),
        "it stays unknown whether the request exists": after(
            failing("POST", DELETE, 404, own=False), failing("GET", ROWS, 403), delete_one
        ),
    },
)
CASES += cases(
    CustodyDeleteWhitelistRequestOperator,
    "CustodyError",
    {
        "the request still exists after another response": after(failing("POST", DELETE, 404, own=False), delete_one),
        "the service does not respond as it should": after(failing("POST", DELETE, 503), delete_one),
    },
)
CASES += cases(
    CustodyWhitelistRequestSensor,
    "AirflowSensorTimeout",
    {"a request is not in effect in time": partial(await_request, status="pending")},
)
CASES += cases(
    CustodyWhitelistRequestSensor,
    "AirflowFailException",
    {
        "a request was rejected": partial(await_request, status="rejected"),
        "is gone": partial(await_request, request_id=NO_ID, timeout=600),
        "cannot be verified": partial(await_request, custody_conn_id="pinned", timeout=600),
        "does not match ``expected``": partial(await_request, expected={**ROW, "label": "Other"}),
        "a setting is wrong": partial(await_request, custody_conn_id="none"),
        "the service refuses the lookup": after(failing("GET", ROWS, 403), await_request),
    },
)
CASES += cases(
    CustodyWhitelistRequestSensor,
    "AirflowSkipException",
    {
        "there are no ids, and ``skip_if_empty`` is True": partial(await_request, request_id=[], skip_if_empty=True),
        "a request is not in effect in time, and ``soft_fail`` is True": partial(
            await_request, status="pending", soft_fail=True
        ),
    },
)
CASES += cases(
    CustodyWhitelistRequestSensor,
    "CustodyError",
    {"the host name does not exist at the first poll": partial(await_request, custody_conn_id="unknown_host")},
)


def verify(world: World, **arguments: Any) -> Any:
    return world.run(CustodyVerifyWhitelistOperator, **{"custody_conn_id": "pinned", **arguments})


class FullStorage(Storage):
    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        raise OSError("full")


def verify_into_existing_file(world: World) -> Any:
    path = world.folder / "evidence.json"
    path.write_text("{}")
    return verify(world, path=str(path))


CASES += cases(
    CustodyVerifyWhitelistOperator,
    "AirflowFailException",
    {
        "the verification of a request fails": after(lambda w: w.request("APPROVED"), verify),
        "no keys are pinned": partial(verify, custody_conn_id="custody_default"),
        "the file exists already": verify_into_existing_file,
        "the service refuses the listing": after(failing("GET", ROWS, 403), verify),
    },
)
CASES += cases(
    CustodyVerifyWhitelistOperator,
    "AirflowSkipException",
    {"``ids`` is an empty list, and ``skip_if_empty`` is True": partial(verify, ids=[], skip_if_empty=True)},
)
CASES += cases(
    CustodyVerifyWhitelistOperator,
    "CustodyError",
    {
        "the service cannot be read": after(failing("GET", ROWS), verify),
        "the file cannot be written now": lambda world: verify(
            world, path=f"{attach('full', FullStorage(skip_instance_cache=True))}/evidence.json"
        ),
    },
)


# --- webhooks ----------------------------------------------------------------------------------------------


def set_status(world: World, **changes: Any) -> Any:
    return world.run(
        CustodySetWebhookStatusOperator, **{"webhook_id": world.webhook(), "status": "disabled", **changes}
    )


def delete_webhook(world: World, **changes: Any) -> Any:
    return world.run(CustodyDeleteWebhookOperator, **{"webhook_id": world.webhook(), **changes})


def create_webhook(world: World, **changes: Any) -> Any:
    given = {"webhook_type": TYPE, "url": URL, "store_secret": lambda webhook_id, secret: None, "lookup_wait": 0.1}
    return world.run(CustodyCreateWebhookOperator, **{**given, **changes})


def lose_secret(webhook_id: str, secret: str) -> None:
    raise OSError


def read_calls(world: World, reader: Reader | None = None, **arguments: Any) -> Any:
    if (reader or Reader(start="beginning")).run(**{"retries": 2, **arguments}) is None:
        raise AirflowSkipException
    raise AssertionError("an event was emitted")


def read_after(world: World, *numbers: int) -> Any:
    """Read calls after a first reading, while the journal keeps only the newest call, with these numbers."""
    webhook_id = world.webhook()
    write_calls(world.sandbox, webhook_id, 1)
    reader = Reader(start="beginning")
    reader.run()
    world.control.configure(calls={"max_number": 1})
    write_calls(world.sandbox, webhook_id, *numbers)
    return read_calls(world, reader)


for _work, _method, _what in (
    (set_status, "PATCH", "the service refuses the change"),
    (delete_webhook, "DELETE", "the service refuses the deletion"),
):
    CASES += cases(
        "CustodySetWebhookStatusOperator" if _work is set_status else "CustodyDeleteWebhookOperator",
        "AirflowFailException",
        {
            _what: after(failing(_method, "/webhooks", 403), _work),
            "it stays unknown whether the webhook " + ("has the status" if _work is set_status else "exists"): after(
                failing(_method, "/webhooks", 404, own=False), failing("GET", "/webhooks", 403), _work
            ),
        },
    )
CASES += cases(
    CustodySetWebhookStatusOperator,
    "AirflowFailException",
    {
        "the id": partial(set_status, webhook_id="1"),
        "the status is malformed (nothing is sent)": partial(set_status, status="paused"),
        "the webhook does not exist": partial(set_status, webhook_id=NO_UUID),
    },
)
CASES += cases(
    CustodySetWebhookStatusOperator,
    "CustodyError",
    {
        "the webhook still has its old status after another response": after(
            failing("PATCH", "/webhooks", 404, own=False), set_status
        ),
        "the service does not respond as it should": after(failing("PATCH", "/webhooks"), set_status),
    },
)
CASES += cases(
    CustodyDeleteWebhookOperator,
    "AirflowFailException",
    {"the id is malformed (nothing is sent)": partial(delete_webhook, webhook_id="1")},
)
CASES += cases(
    CustodyDeleteWebhookOperator,
    "CustodyError",
    {
        "the webhook still exists after another response": after(
            failing("DELETE", "/webhooks", 404, own=False), delete_webhook
        ),
        "the service does not respond as it should": after(failing("DELETE", "/webhooks"), delete_webhook),
    },
)
CASES += cases(
    CustodyCreateWebhookOperator,
    "AirflowFailException",
    {
        "the webhook is wrong": partial(create_webhook, url="http://hooks.example.com"),
        "refused": after(failing("POST", "/webhooks", 400), create_webhook),
        "the outcome is unknown": after(failing("POST", "/webhooks"), create_webhook),
    },
)
CASES += cases(
    CustodyCreateWebhookOperator,
    "CustodyError",
    {
        "the service cannot be searched for the webhook": after(failing("GET", "/webhooks"), create_webhook),
        "the create certainly had no effect": after(World.webhook, failing("POST", "/webhooks"), create_webhook),
        "``store_secret`` fails": partial(create_webhook, store_secret=lose_secret),
    },
)
_reading = "CustodyReadWebhookCallsOperator"
CASES += cases(_reading, "AirflowSkipException", {"there are no new calls": read_after})
CASES += cases(
    _reading,
    "AirflowFailException",
    {
        "an argument is wrong": partial(read_calls, webhook_ids=["1"]),
        "calls may be lost and ``on_gap`` is ``fail``": lambda world: read_after(world, 1000, 2000),
        "the service refuses the reading": after(failing("GET", "/webhooks/calls", 403), read_calls),
    },
)
CASES += cases(
    _reading,
    "CustodyError",
    {"the service does not respond as it should": after(failing("GET", "/webhooks/calls"), read_calls)},
)


# --- signing -----------------------------------------------------------------------------------------------


def sign(world: World, **changes: Any) -> Any:
    request_id = world.request()
    given = {"request_ids": request_id, "expected": ROW, "signer": ConnectionSigner("key"), "custody_conn_id": "ann"}
    return world.run(CustodySignWhitelistRequestsOperator, **{**given, "comment": "ok", "lookup_wait": 0.1, **changes})


def reject(world: World, **changes: Any) -> Any:
    request_id = world.request()
    given = {"request_ids": request_id, "comment": "not ours", "custody_conn_id": "ann"}
    return world.run(CustodyRejectWhitelistRequestsOperator, **{**given, **changes})


def lists_nothing_for_approval(world: World) -> None:
    """Let a request be absent from the listing after it was read twice."""
    body = {"result": [], "totalItems": "0"}
    world.control.add_fault("status", method="GET", path=FOR_APPROVAL, body=body, skip=2, times=None)


CASES += cases(
    CustodySignWhitelistRequestsOperator,
    "AirflowFailException",
    {
        "a request does not match": partial(sign, expected={**ROW, "label": "Other"}),
        "is not verified": lambda world: sign(world, custody_conn_id="other_pins"),
        "the service rejects the signature": after(failing("POST", APPROVE, 400), sign),
        "it is unknown whether a signature was accepted": after(
            failing("POST", APPROVE), lists_nothing_for_approval, sign
        ),
    },
)
CASES += cases(
    CustodySignWhitelistRequestsOperator,
    "AirflowSkipException",
    {"there are no ids, and ``skip_if_empty`` is True": partial(sign, request_ids=[], skip_if_empty=True)},
)
CASES += cases(
    CustodySignWhitelistRequestsOperator,
    "CustodyError",
    {
        "the service cannot be read": after(failing("GET", FOR_APPROVAL), sign),
        "the signature certainly had no effect": after(failing("POST", APPROVE), sign),
    },
)
CASES += cases(
    CustodyRejectWhitelistRequestsOperator,
    "AirflowFailException",
    {
        "an id": partial(reject, request_ids=[]),
        "the comment is missing": partial(reject, comment=""),
        "the service refuses and one of the requests is not rejected": after(failing("POST", REJECT, 400), reject),
        "it stays unknown whether the requests are rejected": after(
            failing("POST", REJECT, 404, own=False), failing("GET", ROWS, 403), reject
        ),
    },
)
CASES += cases(
    CustodyRejectWhitelistRequestsOperator,
    "AirflowSkipException",
    {"there are no ids, and ``skip_if_empty`` is True": partial(reject, request_ids=[], skip_if_empty=True)},
)
CASES += cases(
    CustodyRejectWhitelistRequestsOperator,
    "CustodyError",
    {
        "one of the requests is not rejected after another response": after(
            failing("POST", REJECT, 404, own=False), reject
        ),
        "the service does not respond as it should": after(failing("POST", REJECT), reject),
    },
)


# --- plans -------------------------------------------------------------------------------------------------


def make_plan(world: World, *numbers: int, **arguments: Any) -> Any:
    return world.run(CustodyPlanWhitelistOperator, **{"path": world.file(*numbers), **arguments})


class Applying:
    """A plan that replaces a request and creates another, and the tasks that apply and complete it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.old = effective(world.sandbox, 1, label="Old")
        path = world.file(1, 2)
        planned = plan(path, replace=True)
        self.hash = planned["plan_hash"]
        self.task = ApplyTask(planned, RowsStore())

    def complete(self, applied: dict[str, Any], **changes: Any) -> Any:
        given = {"applied": applied, "plan_hash": self.hash, **changes}
        return self.world.run(CustodyCompleteWhitelistPlanOperator, **given)


def apply_after(prepare: Work) -> Work:
    """Return a function that plans, creates a situation, and applies the plan."""

    def work(world: World) -> Any:
        applying = Applying(world)
        prepare(world)
        try:
            return applying.task.attempt()
        finally:
            world.ti = applying.task.ti

    return work


def complete_after(
    prepare: Callable[[World, str, str], Any] = lambda world, old, new: None, *, is_signed: bool = True, **changes: Any
) -> Work:
    """Return a function that plans, applies, signs, creates a situation with both requests, and completes the plan."""

    def work(world: World) -> Any:
        applying = Applying(world)
        applied = applying.task.attempt()
        if is_signed:
            world.control.sign_whitelist_requests(applied["request_ids"])
        prepare(world, applying.old, applied["request_ids"][0])
        return applying.complete(applied, **changes)

    return work


def lose_and_hide(world: World) -> None:
    """Lose the responses to creates, and let the service store another chain than requested."""
    world.control.configure(chain_name="OTHER")
    world.fault("POST", ROWS, work=True)


def make_plan_of_pending(world: World, **changes: Any) -> Any:
    world.request(label="Label 1", address=f"0x{1:040x}")
    return make_plan(world, 1, **{"fail_on_pending": True, **changes})


def make_plan_of_a_long_row(world: World) -> Any:
    wallets = [str(number) for number in range(10_000, 20_000)]
    return make_plan(world, path=world.file(1, linked_wallet_ids=wallets))


def make_plan_on_disabled_chain(world: World) -> Any:
    world.control.configure(currencies=["BTC"], disabled_currencies=["ETH"])
    return make_plan(world, 1)


CASES += cases(
    CustodyPlanWhitelistOperator,
    "AirflowFailException",
    {
        "the file has faults": lambda world: make_plan(world, path=str(world.folder / "none.yaml")),
        "a limit is exceeded": lambda world: make_plan(world, 1, 2, max_creates=1),
        "``fail_on_changes``": lambda world: make_plan(world, 1, fail_on_changes=True),
        "``fail_on_pending`` finds a difference": make_plan_of_pending,
        "a chain is not enabled": make_plan_on_disabled_chain,
        "a single operation is too long for a report": make_plan_of_a_long_row,
        "the service refuses the listing": after(failing("GET", ROWS, 403), lambda world: make_plan(world, 1)),
    },
)
CASES += cases(
    CustodyPlanWhitelistOperator,
    "AirflowSkipException",
    {
        "applying would do nothing, and ``skip_if_nothing_to_do`` is True": lambda world: make_plan_of_pending(
            world, fail_on_pending=False, skip_if_nothing_to_do=True
        )
    },
)
CASES += cases(
    CustodyPlanWhitelistOperator,
    "CustodyError",
    {"the service cannot be read": after(failing("GET", ROWS), lambda world: make_plan(world, 1))},
)


_applying = "CustodyApplyWhitelistPlanOperator"
CASES += cases(
    _applying,
    "AirflowFailException",
    {
        "the plan is not the approved one": apply_after(lambda world: world.file(1, 2, 3)),
        "a row was refused": apply_after(failing("POST", ROWS, 400)),
        "the outcome of a row is unknown": apply_after(lose_and_hide),
        "the service refuses the listing": apply_after(failing("GET", ROWS, 403)),
    },
)
CASES += cases(
    _applying,
    "CustodyError",
    {
        "rows are left to be sent": apply_after(failing("POST", ROWS, 429)),
        "the service cannot be read": apply_after(failing("GET", ROWS)),
    },
)
CASES += cases(
    CustodyCompleteWhitelistPlanOperator,
    "AirflowFailException",
    {
        "the applied plan is not the approved plan": complete_after(plan_hash="0" * 64),
        "a created request was rejected": complete_after(
            lambda world, old, new: world.control.set_whitelist_status(new, "rejected"), is_signed=False
        ),
        "does not match its row": complete_after(
            lambda world, old, new: world.control.change_whitelist_request(new, label="Other")
        ),
        "a request was not deleted because it has changed": complete_after(
            lambda world, old, new: world.control.change_whitelist_request(old, label="Other")
        ),
        "the service refuses a call": complete_after(lambda world, old, new: world.fault("GET", ROWS, 403)),
    },
)
CASES += cases(
    CustodyCompleteWhitelistPlanOperator,
    "CustodyError",
    {
        "a created request is not in effect yet": complete_after(is_signed=False),
        "the service does not respond as it should": complete_after(lambda world, old, new: world.fault("GET", ROWS)),
    },
)
if AIRFLOW >= (3, 1):
    from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestOperator
    from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator

    def approve_plan(world: World, *, report: str = "a" * 64, is_plan: bool = True, **place: int) -> Any:
        given = {"plan_hash": "a" * 64, "report": report, "question": "Apply it?"}
        vars(world.ti).update(place)
        return world.run(CustodyApproveWhitelistPlanOperator, plan=given if is_plan else "no plan")

    CASES += cases(
        CustodyApproveWhitelistPlanOperator,
        "AirflowFailException",
        {
            "in a later try": partial(approve_plan, try_number=2),
            "in a mapped task or task group": partial(approve_plan, map_index=0),
            "``plan`` is not a plan": partial(approve_plan, is_plan=False),
            "its report does not contain its hash": partial(approve_plan, report="Create 1, delete 0."),
        },
    )

    def approve_request(world: World, *, request_id: str = "3711", **place: int) -> Any:
        vars(world.ti).update(place)
        return world.run(CustodyApproveWhitelistRequestOperator, request={"id": request_id, **ROW})

    CASES += cases(
        CustodyApproveWhitelistRequestOperator,
        "AirflowFailException",
        {
            "in a later try": partial(approve_request, try_number=2),
            "in a mapped task or task group": partial(approve_request, map_index=0),
            "``request`` is not the content of a request": partial(approve_request, request_id="none"),
        },
    )


#: The parts of ``:raises`` in which a failing task pushes its result, by the part of the docstring that says so.
PUSHES = {
    "CustodyPlanWhitelistOperator": (
        "The XCom is pushed even if the task is skipped, or fails because of changes or a limit",
        {"a limit is exceeded", "``fail_on_changes``", "``fail_on_pending`` finds a difference"}
        | {"applying would do nothing, and ``skip_if_nothing_to_do`` is True"},
    ),
    "CustodyApplyWhitelistPlanOperator": (
        "if it has executed the plan, but not every row; and, without ``completion``, if the plan has changed",
        {"the plan is not the approved one", "a row was refused", "the outcome of a row is unknown"}
        | {"rows are left to be sent"},
    ),
    "CustodyVerifyWhitelistOperator": (
        "The XCom is pushed even if the task fails because a verification failed",
        {"the verification of a request fails"},
    ),
}
