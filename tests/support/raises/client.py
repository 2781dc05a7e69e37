"""The situations in which the docstrings of the client's methods say that an error is raised."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from support.service.raw_server import raw_server
from support.service.request_signing import LOG

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.whitelist.signing.sending import RequestSigner

REQUEST = WhitelistRequest(**ROW)
WEBHOOKS, CALLS = "/webhooks", "/webhooks/calls"
TRUNCATED, INTERIM = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"HTTP/1.1 102 Processing\r\n\r\n"
EMPTY_PAGE = {"cursor": {"hasNext": True, "currentPage": "a"}}


def call(name: str, *arguments: Any, make: Work | None = None, **options: Any) -> Work:
    """
    Return what calls a method of the client, and reads what it yields.

    :param make: makes the first argument, before the others.
    """

    def work(world: World) -> Any:
        given = arguments if make is None else (make(world), *arguments)
        found = getattr(world.client, name)(*given, **options)
        return list(found) if isinstance(found, Iterator) else found

    return work


def made(make: Work, *faults: Work) -> Work:
    """Return what makes an object, and then lets calls fail."""

    def work(world: World) -> Any:
        found = make(world)
        for each in faults:
            each(world)
        return found

    return work


def answering(path: str, body: Any, method: str = "GET", **options: Any) -> Work:
    """Return what lets the service answer with a body."""
    return lambda world: world.control.add_fault("status", method=method, path=path, body=body, times=None, **options)


def redirecting(path: str) -> Work:
    return lambda world: world.control.add_fault("redirect", path=path, location="https://other.example.com")


def answered(response: bytes, work: Work) -> Work:
    """Return what makes a call that is answered with these bytes."""

    def both(world: World) -> Any:
        with raw_server(lambda connection: connection.sendall(response)) as (url, _):
            world.client.close()
            world.client = CustodyClient(url, "t0ken", max_retries=0)
            return work(world)

    return both


def method(name: str, error: str, parts: dict[str, Work]) -> list[Case]:
    return cases(f"CustodyClient.{name}", error, parts)


def sent(name: str, what: str, path: str, work: Work) -> list[Case]:
    """Return the situations of a create."""
    return [
        *method(
            name,
            "CustodyOutcomeUnknownError",
            {
                f"{what} was sent and its response is missing": after(failing("POST", path), work),
                "truncated": answered(TRUNCATED, work),
                "unreadable": after(failing("POST", path, 200), work),
                "interim (1xx)": answered(INTERIM, work),
                "a 5xx": after(failing("POST", path, 503), work),
                "a refusal that is not the service's own: it may have been created": after(
                    failing("POST", path, 403, own=False), work
                ),
            },
        ),
        *method(
            name,
            "CustodyResponseError",
            {"it was redirected: it may have been created": after(redirecting(path), work)},
        ),
        *method(
            name, "CustodyError", {"of another type if it was not created": after(failing("POST", path, 400), work)}
        ),
    ]


def set_status(*faults: Work) -> Work:
    return call("set_webhook_status", "disabled", make=made(World.webhook, *faults))


def delete_webhook(*faults: Work) -> Work:
    return call("delete_webhook", make=made(World.webhook, *faults))


def reject(*faults: Work) -> Work:
    return call("reject_whitelist_requests", "not ours", make=made(lambda world: [world.request()], *faults))


def delete(*faults: Work) -> Work:
    return call("delete_whitelist_request", "old", make=made(World.request, *faults))


def sign(*faults: Work, conn_id: str = "ann", **changes: Any) -> Work:
    """Return what signs a request as ann."""

    def work(world: World) -> Any:
        request_id = world.request()
        for each in faults:
            each(world)
        with CustodyClient(world.sandbox.url, world.person.token, max_retries=0, **world.pins_of(conn_id)) as client:
            signer = RequestSigner(client, world.signer, log=LOG, lookup_wait=0.1)
            expected = {request_id: WhitelistRequest(**{**ROW, **changes})}
            return signer.sign([request_id], expected, "checked")

    return work


def forge_signature(world: World) -> None:
    """Give the request an invalid signature."""
    signature = {"userId": world.person.external_id, "signature": "A" * 86 + "=="}
    forged = [{"signature": signature, "hashes": [world.client.get_whitelist_request(world.made).hash]}]
    world.control.set_whitelist_envelope(world.made, signedAddress={"signatures": forged})


def many(world: World) -> None:
    """Let listings have more than one page."""
    world.control.configure(listings={name: {"page_size": 2} for name in ("whitelist", "webhooks", "webhook-calls")})
    for number in range(5):
        webhook_id = world.webhook(type=TYPE)
        world.request(address=f"0x{number:040x}")
        world.control.add_webhook_call(id=str(number), webhookId=webhook_id, status="failed")


def changing(path: str, key: str, row: dict[str, Any]) -> Work:
    """Return what answers each page after the first with another object."""
    cursor = {"cursor": {"hasNext": False}} if path != ROWS else {"totalItems": "1"}
    return after(many, answering(path, {key: [row], **cursor}, skip=2))


APPROVING = call("approve_whitelist_requests", ["1"], "AA==", "checked")
OLDEST_FIRST = [{"id": str(day), "createdAt": f"2026-01-0{day}T00:00:00Z"} for day in (1, 2)]
OTHER_WEBHOOK = {"id": NO_UUID, "type": TYPE, "status": "enabled"}

CASES: list[Case] = [
    *sent("create_whitelist_request", "the request", ROWS, call("create_whitelist_request", REQUEST)),
    *sent("create_webhook", "it", WEBHOOKS, call("create_webhook", TYPE, URL)),
    *method(
        "set_webhook_status",
        "CustodyRequestError",
        {
            "the id is not a UUID": call("set_webhook_status", "1", "disabled"),
            "the status is another word; nothing is sent": call("set_webhook_status", NO_UUID, "paused"),
        },
    ),
    *method(
        "set_webhook_status",
        "CustodyNotFoundError",
        {
            "the service itself reports that the webhook configuration does not exist": call(
                "set_webhook_status", NO_UUID, "disabled"
            )
        },
    ),
    *method(
        "set_webhook_status",
        "CustodyResponseError",
        {"the change is not confirmed": set_status(failing("PATCH", WEBHOOKS, 404, own=False))},
    ),
    *method(
        "delete_webhook", "CustodyRequestError", {"the id is not a UUID; nothing is sent": call("delete_webhook", "1")}
    ),
    *method(
        "delete_webhook",
        "CustodyNotFoundError",
        {
            "the service itself reports that the webhook configuration does not exist, and does not list it": call(
                "delete_webhook", NO_UUID
            ),
            "its listing cannot be read, as with a gateway's page": after(
                failing("GET", WEBHOOKS, 403, own=False), call("delete_webhook", NO_UUID)
            ),
        },
    ),
    *method(
        "delete_webhook",
        "CustodyResponseError",
        {"the deletion is not confirmed": delete_webhook(failing("DELETE", WEBHOOKS, 404, own=False))},
    ),
    *method(
        "list_webhooks",
        "CustodyResponseError",
        {
            "the listing changes while it is read": after(
                changing(WEBHOOKS, "webhooks", OTHER_WEBHOOK), call("list_webhooks")
            ),
            "its pages are inconsistent": after(
                answering(WEBHOOKS, {"webhooks": [], **EMPTY_PAGE}), call("list_webhooks")
            ),
            "a response is unusable": after(failing("GET", WEBHOOKS, 200), call("list_webhooks")),
            "has a webhook of another type": after(
                answering(WEBHOOKS, {"webhooks": [OTHER_WEBHOOK]}), call("list_webhooks", webhook_type="other")
            ),
        },
    ),
    *method(
        "list_webhook_calls",
        "CustodyResponseError",
        {
            "the listing changes while it is read": after(
                changing(CALLS, "calls", {"id": "9", "webhookId": NO_UUID}), call("list_webhook_calls")
            ),
            "its pages are inconsistent": after(
                answering(CALLS, {"calls": [], **EMPTY_PAGE}), call("list_webhook_calls")
            ),
            "a response is unusable": after(failing("GET", CALLS, 200), call("list_webhook_calls")),
        },
    ),
    *method(
        "read_webhook_calls",
        "CustodyRequestError",
        {
            "``start``": call("read_webhook_calls", None, start="then"),
            "``limit`` is wrong; nothing is sent": call("read_webhook_calls", None, limit=0),
        },
    ),
    *method(
        "read_webhook_calls",
        "CustodyResponseError",
        {
            "the service does not list the calls in the order of their time stamps": after(
                answering(CALLS, {"calls": OLDEST_FIRST}), call("read_webhook_calls", None, start="beginning")
            ),
            "the listing changes faster than it can be read": after(
                answering(CALLS, {"calls": [], **EMPTY_PAGE}), call("read_webhook_calls", None, start="beginning")
            ),
            "a time stamp is missing or unreadable": after(
                answering(CALLS, {"calls": [{"id": "9"}]}), call("read_webhook_calls", None, start="beginning")
            ),
        },
    ),
    *method(
        "get_newest_webhook_call",
        "CustodyResponseError",
        {
            "the service lists the oldest first, although the newest was requested": after(
                answering(CALLS, {"calls": OLDEST_FIRST}),
                call("get_newest_webhook_call"),
            ),
            "no call, although there are more": after(
                answering(CALLS, {"calls": [], **EMPTY_PAGE}),
                call("get_newest_webhook_call"),
            ),
            "the response is unusable": after(failing("GET", CALLS, 200), call("get_newest_webhook_call")),
        },
    ),
    *method(
        "get_pending_approvals",
        "CustodyNotFoundError",
        {
            "the service does not offer this operation": after(
                lambda world: world.control.configure(not_offered=["GET /statistics/for-approval"]),
                call("get_pending_approvals"),
            )
        },
    ),
    *method(
        "get_pending_approvals",
        "CustodyResponseError",
        {
            "a count is not a number": after(
                answering("/statistics/for-approval", {"whitelistedAddressesCount": "many"}),
                call("get_pending_approvals"),
            )
        },
    ),
    *method(
        "find_whitelist_requests",
        "CustodyRequestError",
        {
            "``page_size``": call("find_whitelist_requests", page_size=0),
            "a filter is wrong; nothing is sent": call("find_whitelist_requests", ids=[]),
        },
    ),
    *method(
        "find_whitelist_requests",
        "CustodyResponseError",
        {
            "the listing changed while it was read": after(
                changing(ROWS, "result", {"id": "9"}), call("find_whitelist_requests")
            ),
            "its pages are inconsistent": after(
                answering(ROWS, {"result": [{"id": "1"}, {"id": "2"}], "totalItems": "1"}),
                call("find_whitelist_requests"),
            ),
            "the end of the listing is unknown, because a full page has no total": after(
                answering(ROWS, {"result": [{"id": str(each)} for each in range(1, 101)]}),
                call("find_whitelist_requests"),
            ),
            "the service counts more than a million requests": after(
                answering(ROWS, {"result": [{"id": "1"}], "totalItems": "1000001"}), call("find_whitelist_requests")
            ),
            "a response cannot be understood": after(failing("GET", ROWS, 200), call("find_whitelist_requests")),
        },
    ),
    *method(
        "list_whitelist_requests",
        "CustodyError",
        {"like :meth:`find_whitelist_requests`": after(failing("GET", ROWS, 200), call("list_whitelist_requests"))},
    ),
    *method(
        "find_whitelist_requests_for_approval",
        "CustodyError",
        {
            "like :meth:`find_whitelist_requests`": after(
                failing("GET", FOR_APPROVAL, 200), call("find_whitelist_requests_for_approval")
            )
        },
    ),
    *method(
        "count_whitelist_requests",
        "CustodyResponseError",
        {"the response cannot be understood": after(failing("GET", ROWS, 200), call("count_whitelist_requests"))},
    ),
    *method(
        "get_whitelist_request",
        "CustodyRequestError",
        {"the id is not a number; nothing is sent": call("get_whitelist_request", "37a")},
    ),
    *method(
        "get_whitelist_request",
        "CustodyNotFoundError",
        {"there is no such request": call("get_whitelist_request", NO_ID)},
    ),
    *method(
        "approve_whitelist_requests",
        "CustodyOutcomeUnknownError",
        {
            "it was sent and its response is missing": after(failing("POST", APPROVE), APPROVING),
            "truncated": answered(TRUNCATED, APPROVING),
            "unreadable": after(failing("POST", APPROVE, 200), APPROVING),
            "interim (1xx)": answered(INTERIM, APPROVING),
            "a 5xx": after(failing("POST", APPROVE, 503), APPROVING),
        },
    ),
    *method(
        "approve_whitelist_requests",
        "CustodyError",
        {
            "of another type if it was refused": after(failing("POST", APPROVE, 400), APPROVING),
            "redirected": after(redirecting(APPROVE), APPROVING),
        },
    ),
    *method(
        "reject_whitelist_requests",
        "CustodyResponseError",
        {"the rejection is not confirmed": reject(failing("POST", REJECT, 404, own=False))},
    ),
    *method(
        "reject_whitelist_requests",
        "CustodyError",
        {
            "of another type, if the service refuses and at least one request is not rejected": reject(
                failing("POST", REJECT, 400)
            )
        },
    ),
    *method(
        "delete_whitelist_request",
        "CustodyNotFoundError",
        {"the service itself reports that the request does not exist": call("delete_whitelist_request", NO_ID, "old")},
    ),
    *method(
        "delete_whitelist_request",
        "CustodyResponseError",
        {
            "the deletion is not confirmed": delete(failing("POST", DELETE, 404, own=False)),
        },
    ),
    *method(
        "list_health_checks",
        "CustodyNotFoundError",
        {
            "from a service before version 3.14": after(
                lambda world: world.control.configure(version="3.13.0"), call("list_health_checks")
            )
        },
    ),
    *method(
        "get_tenant_config",
        "CustodyResponseError",
        {
            "the response does not name the tenant": after(answering("/config/tenant", {}), call("get_tenant_config")),
            "a number cannot be read": after(
                answering("/config/tenant", {"config": {"tenantId": "1", "superAdminMinimumSignatures": "two"}}),
                call("get_tenant_config"),
            ),
        },
    ),
    *cases(
        "RequestSigner.sign",
        "CustodyVerificationError",
        {
            "the client has pinned keys, but these keys have not signed the rules of a request": sign(
                conn_id="other_pins"
            ),
            "a signature is invalid": sign(forge_signature, conn_id="pinned"),
        },
    ),
    *cases(
        "RequestSigner.sign",
        "CustodyError",
        {
            "a request does not match": sign(label="Other"),
            "cannot be read": sign(failing("GET", FOR_APPROVAL, 403)),
            "the service rejects the signature": sign(failing("POST", APPROVE, 400)),
        },
    ),
    *cases(
        "RequestSigner.sign", "CustodyOutcomeUnknownError", {"the response was lost": sign(failing("POST", APPROVE))}
    ),
]
