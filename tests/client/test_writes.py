"""A write is done when the service's own word says so; a 404 or a 200 of somebody else is not its word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyNotFoundError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.sandbox import Sandbox

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")
OTHER_ID = "00000000-0000-4000-8000-000000000000"
#: As a server says it that has no such route.
_UNKNOWN_ROUTE = {"code": 5, "message": "Not Found", "details": []}


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


@dataclass
class Write:
    """
    A write to one object of the sandbox.

    :param method: its HTTP method.
    :param number: the object's id.
    :param done: what the service sends when it has done it, beside ``{}`` and nothing.
    :param call: calls it.
    :param is_done: whether the sandbox has done it.
    """

    method: str
    number: str
    done: list[dict[str, Any]]
    call: Callable[[], object]
    is_done: Callable[[], bool]

    @property
    def reads(self) -> str:
        """The path where the object is read back."""
        return f"/whitelists/addresses/{self.number}" if self.method == "POST" else "/webhooks"


def prepare(sandbox: Sandbox, client: CustodyClient, name: str) -> Write:
    control = sandbox.control
    if name in ("disable", "delete webhook"):
        control.add_webhook(id=OTHER_ID)
        number = control.add_webhook()["id"]
        shown = {"id": number.upper(), "status": "disabled", "more": 1}
        if name == "disable":
            return Write(
                "PATCH",
                number,
                [{"webhook": shown}, {"result": shown}, shown],
                lambda: client.set_webhook_status(number, "disabled"),
                lambda: control.webhooks()[1]["status"] == "disabled",
            )
        return Write(
            "DELETE",
            number,
            [{"webhook": {"id": number}}, {"id": number}],
            lambda: client.delete_webhook(number),
            lambda: [each["id"] for each in control.webhooks()] == [OTHER_ID],
        )
    number = client.create_whitelist_request(REQUEST)
    if name == "reject":
        return Write(
            "POST",
            number,
            [{"result": {"id": number, "status": "REJECTED"}}],
            lambda: client.reject_whitelist_requests([number], "no"),
            lambda: control.whitelist_requests()[0]["status"] == "rejected",
        )
    return Write(
        "POST",
        number,
        [{"result": {"id": number}}, {"result": {"id": int(number)}}, {"id": number}],
        lambda: client.delete_whitelist_request(number, "a slip"),
        lambda: control.whitelist_requests() == [],
    )


WRITES = ["disable", "delete webhook", "reject", "delete request"]


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest, sandbox: Sandbox, client: CustodyClient) -> Write:
    prepared = prepare(sandbox, client, request.param)
    sandbox.control.clear_request_log()
    return prepared


def respond(sandbox: Sandbox, write: Write, body: Any, *, work: bool, status: int = 200) -> None:
    kind = {"html": "html", "": "empty"}.get(body if isinstance(body, str) else "-", "status")
    options: dict[str, Any] = {} if kind != "status" else {"body": body}
    sandbox.control.add_fault(kind, method=write.method, status=status, work=work, **options)


# --- 2xx ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 202, 204])
def test_an_empty_response_needs_no_second_call(sandbox: Sandbox, write: Write, status: int) -> None:
    respond(sandbox, write, "", work=True, status=status)
    write.call()
    assert write.is_done()
    assert len(sandbox.control.request_log()) == 1


def test_the_thing_in_its_new_state_needs_no_second_call(sandbox: Sandbox, write: Write) -> None:
    for body in [{}, " {} ", *write.done]:
        sandbox.control.clear_request_log()
        respond(sandbox, write, body, work=False)
        write.call()
        assert len(sandbox.control.request_log()) == 1
    assert not write.is_done()


#: Responses of somebody else, or of the service about something else.
OTHERS: list[Any] = [
    {"app": "something else"},
    {"status": "ok"},
    {"webhook": {}},
    {"result": None},
    {"result": {"id": "1"}},
    {"webhook": {"id": OTHER_ID, "status": "disabled"}},
    {"id": "1", "status": "rejected"},
    {"error": "Internal", "message": "it did not work", "code": 500},
    "html",
    "ok",
    [],
    "null",
]


@pytest.mark.parametrize("body", OTHERS, ids=str)
def test_what_somebody_else_confirms_is_read_back(
    sandbox: Sandbox, write: Write, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    respond(sandbox, write, body, work=False)
    with pytest.raises(CustodyResponseError, match="the service was asked, and") as caught:
        write.call()
    # Doing it again does no harm.
    assert caught.value.retryable
    respond(sandbox, write, body, work=True)
    write.call()
    assert write.is_done()
    assert "the service shows that it is done" in caplog.text


def test_the_old_state_in_a_response_is_no_success(sandbox: Sandbox, client: CustodyClient) -> None:
    write = prepare(sandbox, client, "disable")
    for status in ("enabled", "cooldown"):
        webhook = {"id": write.number, "status": status}
        respond(sandbox, write, {"webhook": webhook}, work=False)
        with pytest.raises(CustodyResponseError, match="status is 'enabled'"):
            write.call()
    # Also if nothing can be read back: the service has said it.
    respond(sandbox, write, {"webhook": webhook}, work=False)
    sandbox.control.add_fault("status", method="GET", status=403)
    with pytest.raises(CustodyResponseError, match="reading it back failed"):
        write.call()


@pytest.mark.parametrize("name", ["delete webhook", "delete request", "reject"])
def test_an_object_that_still_has_a_status_is_read_back(sandbox: Sandbox, client: CustodyClient, name: str) -> None:
    write = prepare(sandbox, client, name)
    key = "webhook" if "webhook" in name else "result"
    for status in ("enabled", "pending"):
        respond(sandbox, write, {key: {"id": write.number, "status": status}}, work=False)
        with pytest.raises(CustodyResponseError, match="status"):
            write.call()
        assert not write.is_done()


def test_a_listing_that_lags_leaves_it_to_a_retry(sandbox: Sandbox, client: CustodyClient) -> None:
    write = prepare(sandbox, client, "disable")
    respond(sandbox, write, {"app": "x"}, work=True)
    old: dict[str, Any] = {"webhooks": [{"id": write.number, "status": "enabled"}], "cursor": {}}
    sandbox.control.add_fault("status", method="GET", status=200, body=old)
    with pytest.raises(CustodyResponseError, match="was asked, and") as caught:
        write.call()
    assert caught.value.retryable
    write.call()


@pytest.mark.parametrize("status", [403, 404, 405, 501])
@pytest.mark.parametrize("name", WRITES)
def test_where_the_service_offers_no_reading_only_its_word_counts(
    sandbox: Sandbox, client: CustodyClient, name: str, status: int
) -> None:
    write = prepare(sandbox, client, name)
    respond(sandbox, write, {"webhook": {}}, work=False)
    sandbox.control.add_fault("status", method="GET", status=status, times=None)
    with pytest.raises(CustodyResponseError, match=r"reading it back failed|does not exist"):
        write.call()
    respond(sandbox, write, {}, work=True)
    write.call()


@pytest.mark.parametrize(
    ("fault", "retryable"),
    [
        ({"kind": "html", "status": 404}, False),
        ({"kind": "empty", "status": 403}, False),
        ({"kind": "status", "status": 405, "body": {"message": "no"}}, False),
        ({"kind": "html"}, False),
        ({"kind": "status", "status": 200, "body": {"status": "UP"}}, False),
        ({"kind": "status", "status": 200, "body": {}}, False),
        ({"kind": "status", "status": 503}, True),
        ({"kind": "drop"}, True),
        ({"kind": "truncate_body"}, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("body", [{"app": "something else"}, "html"])
def test_what_cannot_be_known_is_no_success(
    sandbox: Sandbox, write: Write, body: Any, fault: dict[str, Any], retryable: bool
) -> None:
    respond(sandbox, write, body, work=False)
    sandbox.control.add_fault(method="GET", path=write.reads, **fault)
    with pytest.raises(CustodyResponseError, match="reading it back failed too") as caught:
        write.call()
    assert caught.value.retryable is retryable


@pytest.mark.parametrize("status", [403, 404, 405, 501])
def test_a_page_is_no_success_where_nothing_can_be_read(sandbox: Sandbox, write: Write, status: int) -> None:
    respond(sandbox, write, "html", work=False)
    sandbox.control.add_fault("status", method="GET", path="/webhooks", status=status)
    sandbox.control.add_fault("status", method="GET", path=write.reads, status=403)
    with pytest.raises(CustodyResponseError, match="not a response of the custody service"):
        write.call()


def test_a_truncated_response_is_retryable(sandbox: Sandbox, write: Write) -> None:
    sandbox.control.add_fault("truncate_body", method=write.method, keep=1)
    with pytest.raises(CustodyError) as caught:
        write.call()
    assert caught.value.retryable


def test_all_of_a_batch_must_be_rejected(sandbox: Sandbox, client: CustodyClient) -> None:
    one, two = (client.create_whitelist_request(REQUEST) for _ in range(2))
    client.reject_whitelist_requests([one], "no")
    write = Write("POST", two, [], lambda: client.reject_whitelist_requests([one, two], "no"), lambda: False)
    for body in ({"result": {"id": one, "status": "rejected"}}, {"rejected": 1}):
        respond(sandbox, write, body, work=False)
        with pytest.raises(CustodyResponseError, match=f"whitelisting request {two} has status 'pending'"):
            write.call()
    sandbox.control.set_whitelist_status(two, "Refused")
    respond(sandbox, write, {"rejected": 2}, work=False)
    with pytest.raises(CustodyResponseError, match="'Refused'"):
        write.call()
    respond(sandbox, write, {"rejected": 2}, work=False)
    client.reject_whitelist_requests([one, two], "no", rejected_statuses=["rejected", "REFUSED"])


# --- 404 ---------------------------------------------------------------------------------------------------

GATEWAYS_404: list[Any] = ["html", "", {"message": "no Route matched"}, {"error": "x"}, {}, "not found", {"code": "5"}]


@pytest.mark.parametrize("body", GATEWAYS_404, ids=str)
@pytest.mark.parametrize("name", WRITES)
def test_a_404_of_a_gateway_is_read_back(sandbox: Sandbox, client: CustodyClient, name: str, body: Any) -> None:
    write = prepare(sandbox, client, name)
    respond(sandbox, write, body, work=False, status=404)
    with pytest.raises(CustodyResponseError, match="was asked, and") as caught:
        write.call()
    assert (caught.value.status, caught.value.retryable) == (404, True)
    assert not write.is_done()
    respond(sandbox, write, body, work=True, status=404)
    write.call()
    assert write.is_done()


@pytest.mark.parametrize(
    "fault",
    [
        *({"kind": "status", "status": status} for status in (403, 405, 501, 503)),
        {"kind": "html", "status": 404},
        {"kind": "html"},
        # Nothing is listed; but so says many a gateway.
        {"kind": "status", "status": 200, "body": {}},
        {"kind": "empty"},
        {"kind": "drop"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["delete webhook", "delete request"])
def test_after_a_404_of_a_gateway_unknown_is_no_success(
    sandbox: Sandbox, client: CustodyClient, name: str, fault: dict[str, Any]
) -> None:
    write = prepare(sandbox, client, name)
    respond(sandbox, write, "", work=False, status=404)
    sandbox.control.add_fault(method="GET", times=None, **fault)
    with pytest.raises(CustodyResponseError, match="reading it back failed too"):
        write.call()


@pytest.mark.parametrize("listing", ["offered", "not offered"])
def test_the_services_own_404_about_a_webhook_is_its_word(
    sandbox: Sandbox, client: CustodyClient, listing: str
) -> None:
    if listing == "not offered":
        sandbox.control.add_fault("status", method="GET", status=403, times=None)
    calls: list[Callable[[], object]] = [
        lambda: client.delete_webhook(OTHER_ID),
        lambda: client.set_webhook_status(OTHER_ID, "enabled"),
    ]
    for call in calls:
        with pytest.raises(CustodyNotFoundError) as caught:
            call()
        assert caught.value.from_service


def test_the_services_own_404_may_be_about_the_operation(sandbox: Sandbox, client: CustodyClient) -> None:
    with pytest.raises(CustodyNotFoundError):
        client.delete_whitelist_request("1", "a slip")
    for name in ("delete request", "delete webhook"):
        write = prepare(sandbox, client, name)
        sandbox.control.add_fault("status", method=write.method, status=404, body=_UNKNOWN_ROUTE)
        with pytest.raises(CustodyResponseError, match="still there"):
            write.call()
        sandbox.control.add_fault("status", method=write.method, status=404, body=_UNKNOWN_ROUTE)
        sandbox.control.add_fault("status", method="GET", status=503)
        with pytest.raises(CustodyResponseError, match="reading it back failed") as caught:
            write.call()
        assert caught.value.retryable


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 404, "body": _UNKNOWN_ROUTE},
        *({"kind": "status", "status": status} for status in (400, 403, 500, 503)),
        {"kind": "html", "status": 404},
        {"kind": "drop"},
    ],
    ids=str,
)
@pytest.mark.parametrize("listed", [True, False])
def test_a_404_to_a_deletion_counts_only_if_reading_shows_that_it_is_one(
    sandbox: Sandbox, client: CustodyClient, fault: dict[str, Any], listed: bool
) -> None:
    client.create_whitelist_request(REQUEST)
    write = prepare(sandbox, client, "delete request")
    sandbox.control.add_fault("status", method="POST", status=404, body=_UNKNOWN_ROUTE)
    for each in sandbox.control.whitelist_requests():
        sandbox.control.add_fault(method="GET", path=f"/whitelists/addresses/{each['id']}", times=None, **fault)
    if not listed:
        # A listing that lags.
        body = {"result": [], "totalItems": "0"}
        sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=200, body=body)
    with pytest.raises(CustodyResponseError, match=r"the service was asked, and|reading it back failed") as caught:
        write.call()
    assert (caught.value.status, caught.value.code) == (404, "outcome-unknown")
    assert caught.value.retryable is (fault["kind"] == "drop" or fault.get("status") in (500, 503))


def test_a_404_to_reading_a_request_that_is_listed_is_no_success(sandbox: Sandbox, client: CustodyClient) -> None:
    write = prepare(sandbox, client, "delete request")
    respond(sandbox, write, {"app": "something else"}, work=False)
    sandbox.control.add_fault("status", method="GET", path=write.reads, status=404, body=_UNKNOWN_ROUTE, times=None)
    with pytest.raises(CustodyResponseError, match="still there"):
        write.call()


@pytest.mark.parametrize("others", [0, 1])
def test_what_the_service_neither_shows_nor_lists_does_not_exist(
    sandbox: Sandbox, client: CustodyClient, others: int
) -> None:
    for _ in range(others):
        client.create_whitelist_request(REQUEST)
    with pytest.raises(CustodyNotFoundError):
        client.delete_whitelist_request("1", "a slip")


# --- the operations whose response is the result -----------------------------------------------------------


@pytest.mark.parametrize("body", [{}, {"app": "something else"}, {"result": {}}, {"webhook": {}}], ids=str)
def test_a_create_or_an_approval_without_its_result_is_no_success(
    sandbox: Sandbox, client: CustodyClient, body: dict[str, Any]
) -> None:
    sandbox.control.add_fault("status", method="POST", status=200, body=body, times=3)
    calls: list[Callable[[], object]] = [
        lambda: client.create_whitelist_request(REQUEST),
        lambda: client.create_webhook("requestStatus.updated", "https://hooks.example.com", secret="not-a-secret"),
        lambda: client.approve_whitelist_requests(["1"], "c2ln", "yes"),
    ]
    for call in calls:
        with pytest.raises(CustodyError):
            call()


@pytest.mark.parametrize("status", [404, 501])
def test_a_deletion_that_is_said_to_be_done_is_so_if_it_is_not_listed_any_more(
    sandbox: Sandbox, client: CustodyClient, status: int
) -> None:
    # Requests are listed, and not shown one by one.
    other = client.create_whitelist_request(REQUEST)
    write = prepare(sandbox, client, "delete request")
    body = {**_UNKNOWN_ROUTE, "error": "Unimplemented", "code": 12} if status == 501 else _UNKNOWN_ROUTE
    for each in sandbox.control.whitelist_requests():
        path = f"/whitelists/addresses/{each['id']}"
        sandbox.control.add_fault("status", method="GET", path=path, status=status, body=body, times=None)
    respond(sandbox, write, {"message": "ok"}, work=False)
    with pytest.raises(CustodyResponseError, match="still there"):
        write.call()
    respond(sandbox, write, {"message": "ok"}, work=True)
    write.call()
    assert [each["id"] for each in sandbox.control.whitelist_requests()] == [other]
