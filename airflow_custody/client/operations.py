"""The operations of the interface: one line of facts for each, and how each may fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_custody.client.errors import (
    CustodyConnectionError,
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyResponseError,
    CustodyServerError,
)

#: Where the interface starts, below the base URL (part of the given interface).
API_ROOT = "/api/rest/v1"


@dataclass(frozen=True)
class Operation:
    """
    Describe one operation of the service.

    :param name: what it does, for people.
    :param method: HTTP method.
    :param path: path below :data:`API_ROOT`.
    :param roles: roles that the token's user needs.
    :param repeatable: whether sending it twice does no harm. What is not repeatable is sent again only if the
        connection was never made.
    :param confidential: whether its answer holds a secret, so that nothing of it may be shown.
    :param hints: what to tell the user for a status code, beyond what holds for every operation.
    """

    name: str
    method: str
    path: str
    roles: tuple[str, ...]
    repeatable: bool = True
    confidential: bool = False
    hints: Mapping[int, str] = field(default_factory=dict)

    def on(self, identifier: str) -> Operation:
        """Return this operation for one object, its identifier appended to the path."""
        return replace(self, path=f"{self.path}/{identifier}")

    def failed(self, kind: type[CustodyError], message: str, **facts: object) -> CustodyError:
        """Return an error of the given kind that names this operation."""
        return kind(message, operation=self.name, method=self.method, path=self.path, **facts)  # type: ignore[arg-type]

    def unanswered(self, message: str, **facts: object) -> CustodyError:
        """Return the error for a request that went out and got no answer."""
        return self._after_sending(CustodyConnectionError, message, facts)

    def broken(self, message: str, **facts: object) -> CustodyError:
        """Return the error for a 5xx."""
        return self._after_sending(CustodyServerError, message, facts)

    def not_understood(self, message: str, **facts: object) -> CustodyError:
        """Return the error for a 2xx whose body is not what this operation answers."""
        return self._after_sending(CustodyResponseError, message, facts)

    def _after_sending(self, kind: type[CustodyError], message: str, facts: Mapping[str, object]) -> CustodyError:
        if self.repeatable:
            return self.failed(kind, message, **facts)
        advice = (
            "The request was sent and may have been carried out. It is not sent again: look in the service "
            "whether it is there before you run this again."
        )
        return self.failed(CustodyOutcomeUnknownError, message, **{**facts, "advice": advice, "retryable": False})


LIST_HEALTH_CHECKS = Operation(
    "list health checks",
    "GET",
    "/health",
    roles=("TPUser",),
    hints={
        404: "The health listing exists from version 3.14 of the service on: this one is older, or the base "
        "URL is wrong."
    },
)

CREATE_WHITELIST_REQUEST = Operation(
    "create whitelisting request",
    "POST",
    "/whitelists/addresses",
    roles=("WhitelistedAddressCreator", "TPUser"),
    repeatable=False,
    hints={
        400: "The currency must be active in the hardware security module and the address must follow the "
        "rules of its chain."
    },
)

# Published knowledge, the role included: a service may not offer it.
FIND_WHITELIST_REQUESTS = Operation("find whitelisting requests", "GET", "/whitelists/addresses", roles=("TPUser",))

# Published knowledge.
CREATE_WEBHOOK = Operation("create webhook", "POST", "/webhooks", roles=("Admin",), repeatable=False, confidential=True)
LIST_WEBHOOKS = Operation("list webhooks", "GET", "/webhooks", roles=("Admin",))
LIST_WEBHOOK_CALLS = Operation("list webhook calls", "GET", "/webhooks/calls", roles=("Admin",))

# Published knowledge. Rejecting and deleting twice does no harm.
GET_WHITELIST_REQUEST = Operation("get whitelisting request", "GET", "/whitelists/addresses", roles=("TPUser",))
FIND_FOR_APPROVAL = Operation(
    "find whitelisting requests for approval", "GET", "/whitelists/addresses/for-approval", roles=("TPUser",)
)
_APPROVER = ("WhitelistedAddressApprover",)
APPROVE_WHITELIST_REQUESTS = Operation(
    "approve whitelisting requests", "POST", "/whitelists/addresses/approve", roles=_APPROVER, repeatable=False
)
REJECT_WHITELIST_REQUESTS = Operation(
    "reject whitelisting requests", "POST", "/whitelists/addresses/reject", roles=_APPROVER
)
DELETE_WHITELIST_REQUEST = Operation(
    "delete whitelisting request",
    "POST",
    "/whitelists/addresses/delete",
    roles=("WhitelistedAddressCreator",),
)

# Published knowledge. A second token does no harm.
SIGN_IN = Operation("sign in", "POST", "/authentication/token", roles=(), confidential=True)
SHOW_CURRENT_USER = Operation("show current user", "GET", "/users/me", roles=("TPUser",))

# The roles for webhooks are published knowledge, not part of the given interface.
_NO_SUCH_WEBHOOK = "No webhook configuration has this id: it was deleted, or the id is of another service."

SET_WEBHOOK_STATUS = Operation(
    "set webhook status", "PATCH", "/webhooks", roles=("Admin",), hints={404: _NO_SUCH_WEBHOOK}
)

DELETE_WEBHOOK = Operation("delete webhook", "DELETE", "/webhooks", roles=("Admin",), hints={404: _NO_SUCH_WEBHOOK})
