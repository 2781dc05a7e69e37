"""Each failure of a call, once: how a read, a repeatable change, and a create report it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.clocks import SkippingTime
from support.whitelist.calls import REQUEST, create, read

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyRateLimitError,
    CustodyResponseError,
)
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("waits")

WEBHOOK = "00000000-0000-4000-8000-000000000000"
Call = Callable[[CustodyClient], object]
#: Calls, each with its method.
CALLS: dict[str, tuple[str, Call]] = {
    "read": ("GET", read),
    "change": ("PATCH", lambda client: client.set_webhook_status(WEBHOOK, "disabled")),
    "create": ("POST", create),
}

# Error type and code, whether Airflow may retry it, whether it is the service's own word, and the requests that were
# sent with one retry allowed.
UNKNOWN = "OutcomeUnknown outcome-unknown x1"
UNKNOWN_OWN = "OutcomeUnknown outcome-unknown own x1"
#: The change was read back, and the service has not made it.
NOT_DONE = "Response outcome-unknown retryable x1"
NO_RESPONSE = "Connection no-response retryable x2"
NO_RESPONSE_OWN = "Connection no-response retryable own x1"
TRUNCATED = "Response response-unusable retryable x1"
FOREIGN = "Response response-unusable x1"
LIMITED, LIMITED_ONCE = "RateLimit rate-limited retryable own x2", "RateLimit rate-limited retryable own x1"
BUSY, BUSY_OWN = "Server service-failed retryable x2", "Server service-failed retryable own x2"
FAILED_OWN = "Server service-failed retryable own x1"
REFUSED = "Request request-refused own x1"

#: How a read, a change and a create report a fault.
FAULTS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "closed": ({"kind": "drop"}, NO_RESPONSE, NO_RESPONSE, UNKNOWN),
    "too slow": ({"kind": "normal", "delay_after": 3600}, NO_RESPONSE, NO_RESPONSE, UNKNOWN),
    "trickles": ({"kind": "trickle"}, NO_RESPONSE, NO_RESPONSE, UNKNOWN),
    "half a body": ({"kind": "truncate_body"}, TRUNCATED, TRUNCATED, UNKNOWN),
    "half of the headers": ({"kind": "truncate_headers"}, TRUNCATED, TRUNCATED, UNKNOWN),
    "no body": ({"kind": "empty"}, FOREIGN, "done x1", UNKNOWN),
    "too large": ({"kind": "large", "size": 2_000_000}, FOREIGN, FOREIGN, UNKNOWN),
    "redirect": (
        {"kind": "status", "status": 302, "body": {"code": 302, "message": "moved"}},
        FOREIGN,
        NOT_DONE,
        FOREIGN,
    ),
    "a page": ({"kind": "html"}, FOREIGN, NOT_DONE, UNKNOWN),
    "another program": ({"kind": "status", "status": 200, "body": {"status": "UP"}}, FOREIGN, NOT_DONE, UNKNOWN),
    "no JSON": ({"kind": "status", "status": 200, "body": "{"}, FOREIGN, NOT_DONE, UNKNOWN),
    "page 403": ({"kind": "html", "status": 403}, "Permission response-unusable x1", NOT_DONE, UNKNOWN),
    "page 404": ({"kind": "html", "status": 404}, "NotFound response-unusable x1", NOT_DONE, UNKNOWN),
    "page 409": ({"kind": "html", "status": 409}, "Conflict request-refused x1", NOT_DONE, UNKNOWN),
    "page 503": ({"kind": "html", "status": 503}, BUSY, BUSY, UNKNOWN),
    # In the service's own errors, a number stands beside the message.
    "a gateway's 403": (
        {"kind": "status", "status": 403, "body": {"error": "Forbidden", "message": "no", "code": "403"}},
        "Permission response-unusable x1",
        NOT_DONE,
        UNKNOWN,
    ),
    **{
        str(status): ({"kind": "status", "status": status}, *outcomes)
        for status, outcomes in {
            400: (REFUSED,) * 3,
            401: ("Authentication credentials-refused own x1",) * 3,
            403: ("Permission request-refused own x1",) * 3,
            404: ("NotFound not-found own x1",) * 3,
            408: (NO_RESPONSE_OWN, NO_RESPONSE_OWN, UNKNOWN_OWN),
            409: ("Conflict request-refused own x1",) * 3,
            429: (LIMITED, LIMITED, LIMITED_ONCE),
            499: (NO_RESPONSE_OWN, NO_RESPONSE_OWN, UNKNOWN_OWN),
            500: (FAILED_OWN, FAILED_OWN, UNKNOWN_OWN),
            502: (BUSY_OWN, BUSY_OWN, UNKNOWN_OWN),
            503: (BUSY_OWN, BUSY_OWN, UNKNOWN_OWN),
            504: (BUSY_OWN, BUSY_OWN, UNKNOWN_OWN),
        }.items()
    },
    "429, wait a minute": ({"kind": "rate_limit", "retry_after": 60}, LIMITED, LIMITED, LIMITED_ONCE),
    "429, wait longer": ({"kind": "rate_limit", "retry_after": 61}, *(LIMITED_ONCE,) * 3),
}


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    ("fault", "operation", "expected"),
    [
        pytest.param(fault, operation, outcome, id=f"{name}, {operation}")
        for name, (fault, *outcomes) in FAULTS.items()
        for operation, outcome in zip(CALLS, outcomes, strict=True)
    ],
)
def test_a_failure(sandbox: Sandbox, fault: dict[str, Any], operation: str, expected: str) -> None:
    sandbox.control.add_webhook(id=WEBHOOK)
    method, call = CALLS[operation]
    sandbox.control.add_fault(method=method, times=None, **fault)
    # Only a response that never ends lasts until the time-out.
    timeout = 1 if 3600 in fault.values() or fault.get("kind") == "trickle" else 60
    words = ["done"]
    with CustodyClient(sandbox.url, sandbox.token, timeout=timeout, max_retries=1, max_response_bytes=10**6) as client:
        try:
            call(client)
        except CustodyError as error:
            words = [type(error).__name__.removeprefix("Custody").removesuffix("Error"), error.code]
            words += ["retryable"] * error.retryable + ["own"] * error.from_service
            assert str(error).endswith(f"\n[custody/{error.code}]")  # noqa: PT017
    words.append(f"x{len(sandbox.control.request_log(method=method))}")
    assert " ".join(words) == expected


@pytest.mark.parametrize("retries", [1, 2])
@pytest.mark.parametrize("kind", [{"kind": "drop"}, {"kind": "status", "status": 503}], ids=["closed", "503"])
def test_a_failure_that_ends_is_not_seen(sandbox: Sandbox, waits: SkippingTime, kind: Any, retries: int) -> None:
    sandbox.control.add_fault(times=retries, **kind)
    with CustodyClient(sandbox.url, sandbox.token, max_retries=2) as client:
        read(client)
    # The first retry follows at once, also after "Retry-After: 0". Later retries wait.
    assert (waits.skipped > 0) is (retries == 2)


@pytest.mark.parametrize("earlier", [ssl.SSLCertVerificationError("of another call"), TimeoutError("of another call")])
def test_an_error_that_is_being_handled_does_not_affect_the_next(
    sandbox: Sandbox, client: CustodyClient, earlier: OSError
) -> None:
    sandbox.control.add_fault("drop")
    try:
        raise earlier
    except OSError:
        with pytest.raises(CustodyOutcomeUnknownError, match="was lost before the response was complete"):
            create(client)


def test_retry_after_is_honoured_up_to_a_minute(sandbox: Sandbox, waits: SkippingTime) -> None:
    sandbox.control.add_fault("rate_limit", retry_after=7)
    with CustodyClient(sandbox.url, sandbox.token, max_retries=1) as client:
        read(client)
        assert waits.skipped == 7
        sandbox.control.add_fault("rate_limit", retry_after=61)
        with pytest.raises(CustodyRateLimitError, match="requests a wait of 61 s") as caught:
            read(client)
    assert caught.value.retry_after == 61
    assert waits.skipped == 7


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client: client.delete_whitelist_request("99999", "no"), id="delete"),
        pytest.param(lambda client: client.get_whitelist_request("99999"), id="read"),
    ],
)
def test_a_404_to_a_call_with_an_id_is_about_the_id(client: CustodyClient, call: Call) -> None:
    with pytest.raises(CustodyNotFoundError, match="It may not exist") as caught:
        call(client)
    assert caught.value.code == "not-found"


def test_a_404_to_a_call_without_an_id_is_about_the_operation(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_fault("status", status=404)
    with pytest.raises(CustodyNotFoundError, match="may not offer this operation") as caught:
        client.get_pending_approvals()
    assert caught.value.code == "not-offered"
    assert caught.value.not_offered is True


# --- a success status in a response that reports a failure -----------------------------------------------------

ERRORS: list[dict[str, Any]] = [
    {"error": "Internal"},
    {"error": {"reason": "locked"}},
    {"error_code": "E900"},
    {"code": 13, "message": "rolled back"},
    {"code": "13", "message": ""},
    {"success": False},
]
FINE: list[dict[str, Any]] = [
    {"error": "", "message": "done"},
    {"error": None, "error_code": None},
    {"code": 0, "message": "OK"},
    {"code": 13, "success": True},
]


@dataclass(frozen=True)
class Success:
    """A call, and the service's response when it has done what the call asks."""

    body: dict[str, Any]
    call: Call
    is_read: bool = True


SUCCESSES = {
    "health": Success({"groups": {"db": {"healthChecks": [{"healthCheck": "x"}]}}}, read),
    "user": Success({"result": {"id": "1"}}, lambda client: client.get_current_user()),
    "create": Success({"result": {"id": "7"}}, create, is_read=False),
    "create webhook": Success(
        {"webhook": {"id": WEBHOOK}, "secret": "s" * 20},
        lambda client: client.create_webhook("requestStatus.updated", "https://hooks.example.com/"),
        is_read=False,
    ),
    "approve": Success(
        {"signatures": "1"}, lambda client: client.approve_whitelist_requests(["7"], "c2ln", "fine"), is_read=False
    ),
}


@pytest.mark.parametrize(
    ("name", "error"), [*((name, ERRORS[0]) for name in SUCCESSES), *(("create", each) for each in ERRORS[1:])], ids=str
)
def test_a_body_that_says_error_is_no_success(sandbox: Sandbox, name: str, error: dict[str, Any]) -> None:
    success = SUCCESSES[name]
    sandbox.control.add_fault("status", status=200, body={**success.body, **error})
    expected = CustodyResponseError if success.is_read else CustodyOutcomeUnknownError
    with (
        CustodyClient(sandbox.url, sandbox.token, max_retries=3) as client,
        pytest.raises(expected, match="the body reports an error") as caught,
    ):
        success.call(client)
    assert type(caught.value) is expected
    assert caught.value.retryable is False
    assert caught.value.from_service is False
    assert len(sandbox.control.request_log()) == 1


@pytest.mark.parametrize("extra", FINE, ids=str)
@pytest.mark.parametrize("name", ["health", "create"])
def test_a_body_that_says_that_nothing_failed_is_a_success(
    sandbox: Sandbox, client: CustodyClient, name: str, extra: dict[str, Any]
) -> None:
    success = SUCCESSES[name]
    sandbox.control.add_fault("status", status=200, body={**success.body, **extra})
    success.call(client)
    assert len(sandbox.control.request_log()) == 1


# --- a success without what it should have -----------------------------------------------------------------


@pytest.mark.parametrize("number", [True, 7.0, None, "", " 7", "a7", "-7", str(2**63), [], {"id": "7"}], ids=repr)
def test_an_unusable_id_leaves_a_create_unknown(sandbox: Sandbox, client: CustodyClient, number: object) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": {"id": number}})
    with pytest.raises(CustodyOutcomeUnknownError, match="may have been carried out"):
        create(client)
    for good in ("7", 9007199254740993):
        sandbox.control.add_fault("status", status=201, body={"result": {"id": good}})
        assert client.create_whitelist_request(REQUEST) == str(good)


@pytest.mark.parametrize("body", [{}, {"result": {}}, {"webhook": {}}], ids=str)
@pytest.mark.parametrize("name", ["create", "create webhook", "approve"])
def test_a_create_or_a_signature_without_its_result_is_unknown(
    sandbox: Sandbox, client: CustodyClient, name: str, body: dict[str, Any]
) -> None:
    sandbox.control.add_fault("status", method="POST", status=200, body=body)
    with pytest.raises(CustodyOutcomeUnknownError):
        SUCCESSES[name].call(client)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("health", '{"groups": {"db": {"healthChecks": [{"status": "failed"}]}, "db": {"healthChecks": []}}}'),
        ("create", '{"result": {"id": "7", "id": "8"}}'),
    ],
    ids=["group", "id"],
)
def test_a_repeated_key_is_refused(sandbox: Sandbox, client: CustodyClient, name: str, body: str) -> None:
    sandbox.control.add_fault("status", status=200, body=body)
    with pytest.raises(CustodyError, match="it repeats a key in one object"):
        SUCCESSES[name].call(client)
