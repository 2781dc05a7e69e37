"""A write is done if the service itself confirms it. A 404 or a 200 of another program is no confirmation."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.service.refusals import OTHER_REFUSAL, role_refusal

from airflow_custody.client import (
    CustodyClient,
    CustodyError,
    CustodyNotFoundError,
    CustodyPermissionError,
    CustodyResponseError,
    WhitelistRequest,
)
from airflow_custody.sandbox import Sandbox

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")
OTHER_ID = "00000000-0000-4000-8000-000000000000"
#: The 404 of a server that has no such route.
_UNKNOWN_ROUTE = {"code": 5, "message": "Not Found", "details": []}


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


WRITES = ["disable webhook", "delete webhook", "reject", "delete request"]


def prepare(sandbox: Sandbox, client: CustodyClient, name: str) -> Write:
    def state() -> Any:
        return sandbox.control.webhooks(), sandbox.control.whitelist_requests()

    if "webhook" in name:
        sandbox.control.add_webhook(id=OTHER_ID)
        number = sandbox.control.add_webhook()["id"]
    else:
        number = client.create_whitelist_request(REQUEST)
    before, disabled = state(), {"id": number.upper(), "status": "disabled", "more": 1}
    method, call, done = {
        "disable webhook": (
            "PATCH",
            lambda: client.set_webhook_status(number, "disabled"),
            [{"webhook": disabled}, {"result": disabled}, disabled],
        ),
        "delete webhook": (
            "DELETE",
            lambda: client.delete_webhook(number),
            [{"webhook": {"id": number}}, {"id": number}],
        ),
        "reject": (
            "POST",
            lambda: client.reject_whitelist_requests([number], "no"),
            [],
        ),
        "delete request": (
            "POST",
            lambda: client.delete_whitelist_request(number, "a slip"),
            [{"result": {"id": number}}, {"id": number}],
        ),
    }[name]
    return Write(method, number, done, call, lambda: state() != before)


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest, sandbox: Sandbox, client: CustodyClient) -> Write:
    prepared = prepare(sandbox, client, request.param)
    sandbox.control.clear_request_log()
    return prepared


def respond(sandbox: Sandbox, write: Write, body: Any, *, work: bool, status: int = 200) -> None:
    kind = {"html": "html", "": "empty"}.get(body if isinstance(body, str) else "-", "status")
    options: dict[str, Any] = {} if kind != "status" else {"body": body}
    sandbox.control.add_fault(kind, method=write.method, status=status, work=work, **options)


# --- the response ------------------------------------------------------------------------------------------


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


SHOWN = {"webhook": "disabled", "result": "rejected"}
#: Responses of another program, or of the service about another object.
OTHERS: list[Any] = [
    {"app": "something else"},
    {"webhook": {}},
    {"webhook": {"id": OTHER_ID, "status": "disabled"}},
    {"id": "1", "status": "rejected"},
    # The object still has a status.
    {"webhook": {"id": "{id}", "status": "enabled"}},
    {"result": {"id": "{id}", "status": "pending"}},
    # The response has the new state, but also reports a failure.
    *({name: {"id": "{id}", "status": status}, "error": "E"} for name, status in SHOWN.items()),
    "html",
    [],
]
#: The service's own 404 has a numeric code.
GATEWAYS_404: list[Any] = [
    "html",
    "",
    {"code": "5"},
]


@pytest.mark.parametrize(
    ("status", "body"), [*((200, each) for each in OTHERS), *((404, each) for each in GATEWAYS_404)], ids=str
)
def test_a_foreign_confirmation_is_read_back(
    sandbox: Sandbox, write: Write, status: int, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    body = json.loads(json.dumps(body).replace("{id}", write.number))
    respond(sandbox, write, body, work=False, status=status)
    with pytest.raises(CustodyResponseError, match="when it was read back, ") as caught:
        write.call()
    # Repeating the write does no harm.
    assert caught.value.status == status
    assert caught.value.retryable is True
    assert not write.is_done()
    respond(sandbox, write, body, work=True, status=status)
    write.call()
    assert write.is_done()
    assert "but reading the object back did" in caplog.text


@pytest.mark.parametrize(
    ("fault", "retryable"),
    [
        ({"kind": "status", "status": 403, "body": role_refusal("admin", "adminreadonly")}, False),
        # Requests are also looked up in the listing.
        ({"kind": "status", "status": 404}, None),
        ({"kind": "html", "status": 404}, False),
        ({"kind": "html"}, False),
        # Nothing is listed; but so says many a gateway.
        ({"kind": "status", "status": 200, "body": {}}, False),
        ({"kind": "status", "status": 200, "body": {"webhooks": [], "result": [], "error": "Internal"}}, False),
        ({"kind": "status", "status": 503}, True),
        ({"kind": "truncate_body"}, True),
    ],
    ids=str,
)
def test_an_unknown_outcome_is_no_success(
    sandbox: Sandbox, write: Write, fault: dict[str, Any], retryable: bool | None
) -> None:
    respond(sandbox, write, {"app": "something else"}, work=False)
    sandbox.control.add_fault(method="GET", times=None, **fault)
    with pytest.raises(CustodyResponseError, match=r"reading it back failed too|does not exist") as caught:
        write.call()
    assert retryable is None or caught.value.retryable is retryable
    # If the service offers no way to read the object, its response to the write counts.
    respond(sandbox, write, {}, work=True)
    write.call()


# --- where webhooks are not listed -------------------------------------------------------------------------


@pytest.fixture(params=["disable webhook", "delete webhook"])
def documented(request: pytest.FixtureRequest, sandbox: Sandbox, client: CustodyClient) -> Write:
    """Return a write that the contract has, at a service that offers no more than the contract."""
    write = prepare(sandbox, client, request.param)
    sandbox.control.configure(operations="contract")
    return write


@pytest.mark.parametrize(
    ("body", "is_known"),
    [
        ("", True),
        ({}, True),
        ({"webhook": {}}, False),
        ({"result": {"id": "7"}}, False),
        ([], False),
    ],
    ids=str,
)
def test_any_json_confirms_what_the_contract_has_where_webhooks_are_not_listed(
    sandbox: Sandbox, documented: Write, body: Any, is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.control.configure(webhook_response=body)
    documented.call()
    assert documented.is_done()
    warned = [each for each in caplog.records if "response's body has an unknown form" in each.message]
    assert [each.levelname for each in warned] == ([] if is_known else ["WARNING"])


@pytest.mark.parametrize(
    "body",
    [
        "<html>Sign in</html>",
        {"error": "Internal"},
        {"webhook": {"id": OTHER_ID}},
    ],
    ids=str,
)
def test_a_page_an_error_or_another_webhook_confirms_nothing(sandbox: Sandbox, documented: Write, body: Any) -> None:
    sandbox.control.configure(webhook_response=body)
    with pytest.raises(CustodyResponseError, match="reading it back failed too") as caught:
        documented.call()
    assert caught.value.code == "outcome-unknown"


@pytest.mark.parametrize("body", [{"status": "enabled"}, {"webhook": {"id": "{id}", "status": "enabled"}}], ids=str)
def test_the_old_status_does_not_confirm_the_new_one(sandbox: Sandbox, client: CustodyClient, body: Any) -> None:
    write = prepare(sandbox, client, "disable webhook")
    body = json.loads(json.dumps(body).replace("{id}", write.number))
    sandbox.control.configure(operations="contract", webhook_response=body)
    with pytest.raises(CustodyResponseError, match="reading it back failed too"):
        write.call()


@pytest.mark.parametrize(
    ("listing", "health", "is_done"),
    [
        # The service itself reports that it does not offer the listing.
        *(({"kind": "status", "status": status}, None, True) for status in (404, 405, 501)),
        ({"kind": "status", "status": 403, "body": OTHER_REFUSAL}, None, True),
        # The service offers the listing, but not to this user.
        ({"kind": "status", "status": 403, "body": role_refusal("admin", "adminreadonly")}, None, False),
        # The listing may exist, because a gateway refused the call.
        ({"kind": "html", "status": 404}, None, False),
        ({"kind": "status", "status": 503}, None, False),
        # With a wrong base URL, another program responds, and knows no path.
        ({"kind": "status", "status": 404}, {"kind": "status", "status": 404, "body": _UNKNOWN_ROUTE}, False),
        ({"kind": "status", "status": 404}, {"kind": "status", "status": 200, "body": {"status": "UP"}}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["disable webhook", "delete webhook"])
def test_json_of_an_unknown_form_counts_only_where_the_service_itself_offers_no_listing(
    sandbox: Sandbox,
    client: CustodyClient,
    name: str,
    listing: dict[str, Any],
    health: dict[str, Any] | None,
    is_done: bool,
) -> None:
    write = prepare(sandbox, client, name)
    sandbox.control.configure(webhook_response={"result": "ok"})
    sandbox.control.add_fault(method="GET", path="/webhooks", times=None, **listing)
    if health is not None:
        sandbox.control.add_fault(path="/health", times=None, **health)
    if is_done:
        write.call()
    else:
        with pytest.raises(CustodyResponseError, match="reading it back failed too"):
            write.call()


@pytest.mark.parametrize(
    "listing",
    [
        {"kind": "html", "status": 404},
        {"kind": "redirect", "location": "/login"},
        {"kind": "status", "status": 403, "body": role_refusal("admin", "adminreadonly")},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["disable webhook", "delete webhook"])
def test_the_services_own_404_about_a_webhook_counts_though_a_gateway_hides_the_listing(
    sandbox: Sandbox, client: CustodyClient, name: str, listing: dict[str, Any]
) -> None:
    write = prepare(sandbox, client, name)
    write.call()
    sandbox.control.add_fault("status", method=write.method, status=404, times=None)
    sandbox.control.add_fault(method="GET", path="/webhooks", times=None, **listing)
    with pytest.raises(CustodyNotFoundError, match=f"no webhook has the id {write.number}") as caught:
        write.call()
    assert caught.value.code == "not-found"


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
    with CustodyClient(sandbox.url, sandbox.token, rejected_statuses=["rejected", "REFUSED"]) as knowing:
        knowing.reject_whitelist_requests([one, two], "no")


# --- refusals of the service itself --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 409])
def test_a_refusal_of_what_is_done_already_is_a_success(
    sandbox: Sandbox, write: Write, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    fault: dict[str, Any] = {"kind": "status", "method": write.method, "status": status}
    sandbox.control.add_fault(**fault, work=False)
    with pytest.raises(CustodyError) as caught:
        write.call()
    assert caught.value.status == status
    assert caught.value.retryable is False
    assert write.is_done() is False
    # An earlier try has arrived in the meantime.
    sandbox.control.add_fault(**fault, work=True)
    write.call()
    assert write.is_done()
    assert "already done, by an earlier try or by another client" in caplog.text


def test_a_refusal_stays_one_if_it_cannot_be_read_what_is_done(sandbox: Sandbox, write: Write) -> None:
    for reading, status in ((403, 409), (503, 503)):
        sandbox.control.add_fault("status", method=write.method, status=409, work=True)
        sandbox.control.add_fault("status", method="GET", status=reading)
        with pytest.raises(CustodyError) as caught:
            write.call()
        assert caught.value.status == status
        assert caught.value.retryable == (status == 503)


@pytest.mark.parametrize("name", ["delete request", "delete webhook"])
def test_a_forbidden_deletion_is_not_confirmed_by_reading(sandbox: Sandbox, client: CustodyClient, name: str) -> None:
    write = prepare(sandbox, client, name)
    sandbox.control.add_fault("status", method=write.method, status=403, work=True)
    with pytest.raises(CustodyPermissionError):
        write.call()


# --- 404 ---------------------------------------------------------------------------------------------------


def test_the_services_own_404_is_its_word(sandbox: Sandbox, client: CustodyClient) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.delete_webhook(OTHER_ID),
        lambda: client.set_webhook_status(OTHER_ID, "enabled"),
        lambda: client.delete_whitelist_request("1", "a slip"),
    ]
    # The last in the house, one of several, and where webhooks cannot be listed.
    for step in ("none", "others", "no listing"):
        if step == "others":
            client.create_whitelist_request(REQUEST)
        elif step == "no listing":
            sandbox.control.add_fault("status", method="GET", path="/webhooks", status=403, times=None)
        for call in calls:
            with pytest.raises(CustodyNotFoundError) as caught:
                call()
            assert caught.value.from_service


@pytest.mark.parametrize(
    ("health", "error_type"),
    [
        # With a wrong base URL, the service itself responds with 404 to everything.
        ({"kind": "status", "status": 404, "body": _UNKNOWN_ROUTE}, CustodyResponseError),
        ({"kind": "html"}, CustodyResponseError),
        ({"kind": "drop"}, CustodyResponseError),
        # The base URL is right, but webhooks are not listed.
        (None, CustodyNotFoundError),
        ({"kind": "status", "status": 403}, CustodyNotFoundError),
    ],
    ids=["unknown", "page", "no response", "known", "forbidden"],
)
@pytest.mark.parametrize("listing", ["status", "html"], ids=["not offered", "a page"])
def test_where_webhooks_are_not_found_at_all_another_path_must_be_known(
    sandbox: Sandbox, client: CustodyClient, listing: str, health: dict[str, Any] | None, error_type: type[CustodyError]
) -> None:
    sandbox.control.add_webhook(id=OTHER_ID)
    sandbox.control.add_fault("status", method="DELETE", status=404, body=_UNKNOWN_ROUTE)
    body = {"body": _UNKNOWN_ROUTE} if listing == "status" else {}
    sandbox.control.add_fault(listing, method="GET", path="/webhooks", status=404, times=None, **body)
    if health is not None:
        sandbox.control.add_fault(path="/health", times=None, **health)
    with pytest.raises(CustodyError) as caught:
        client.delete_webhook(OTHER_ID)
    assert type(caught.value) is error_type
    is_unknown = error_type is CustodyResponseError
    assert caught.value.code == ("outcome-unknown" if is_unknown else "not-found")
    assert (f"Check the base URL {sandbox.url}" in str(caught.value)) is is_unknown


@pytest.mark.parametrize("name", ["delete request", "delete webhook"])
def test_the_services_own_404_may_be_about_the_operation(sandbox: Sandbox, client: CustodyClient, name: str) -> None:
    write = prepare(sandbox, client, name)
    sandbox.control.add_fault("status", method=write.method, status=404, body=_UNKNOWN_ROUTE)
    with pytest.raises(CustodyResponseError, match="still exists"):
        write.call()


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 404, "body": _UNKNOWN_ROUTE},
        *({"kind": "status", "status": status} for status in (403, 503)),
        {"kind": "html", "status": 404},
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
    hide_requests(sandbox, **fault)
    if not listed:
        # A listing that lags.
        body = {"result": [], "totalItems": "0"}
        sandbox.control.add_fault("status", method="GET", path="/whitelists/addresses", status=200, body=body)
    with pytest.raises(CustodyResponseError, match=r"when it was read back, |reading it back failed") as caught:
        write.call()
    assert caught.value.status == 404
    assert caught.value.code == "outcome-unknown"
    assert caught.value.retryable is (fault["status"] == 503)


def hide_requests(sandbox: Sandbox, **fault: Any) -> None:
    """Make the service find no request by its id."""
    for each in sandbox.control.whitelist_requests():
        sandbox.control.add_fault(method="GET", path=f"/whitelists/addresses/{each['id']}", times=None, **fault)
