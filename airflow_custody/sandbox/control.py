"""Drive a sandbox over HTTP, in this process or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import requests

from airflow_custody.sandbox.errors import SandboxError

_TIMEOUT = 30.0


class SandboxControl:
    """Call the control routes of one sandbox; a call it refuses raises :class:`SandboxError`.

    :param url: where the sandbox is, say ``http://127.0.0.1:43121``.
    :param verify: as in requests, for a sandbox that speaks HTTPS.
    :param cert: as in requests, for a sandbox that wants a client certificate.
    """

    def __init__(self, url: str, verify: bool | str = True, cert: str | tuple[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        # No proxy, no ~/.netrc: the sandbox is next door.
        self._session.trust_env = False
        self._session.verify = verify
        self._session.cert = cert

    def about(self) -> dict[str, Any]:
        """Ask whether this is a sandbox, and which version of the service it plays."""
        result: dict[str, Any] = self._call("GET", "")
        return result

    def reset(self) -> None:
        """Forget everything (also orders and what was received) but the main token.

        Calls that a fault still holds up are cut off and do no more work.
        """
        self._call("POST", "/reset")

    def set_health(self, entries: list[dict[str, Any]]) -> None:
        """Show these entries, each listed under its `group` and exactly as it is given.

        What an entry leaves out is missing on the wire; :func:`health_entry` makes complete ones. Only a text
        like ``{now}``, ``{now-5s}``, ``{now+60s}`` is replaced, at each read, by the date it stands for.
        """
        self._call("PUT", "/health", {"entries": entries})

    def set_health_answer(self, answer: Any) -> None:
        """Answer the health listing with this JSON value, whatever it is; None goes back to the entries."""
        self._call("PUT", "/health/answer", {"answer": answer})

    def update_health(
        self, group: str | None = None, component: str | None = None, check: str | None = None, **fields: Any
    ) -> int:
        """Change fields (wire names) of all entries that match, remove those given as None, and count entries.

        :param component: name or id of the component.
        """
        order = {"group": group, "component": component, "check": check, "fields": fields}
        return int(self._call("PATCH", "/health", order))

    def set_currencies(self, currencies: list[str]) -> None:
        """Make these the active currencies."""
        self._call("PUT", "/currencies", {"currencies": currencies})

    def set_version(self, version: str) -> None:
        """Play this version of the service; before 3.14 it has no health operations."""
        self._call("PUT", "/version", {"version": version})

    def add_token(
        self,
        roles: list[str],
        tenant_id: str = "1",
        user_id: str = "2",
        expires_in: float | None = None,
        jwt: bool = False,
    ) -> str:
        """Make a token that has these roles.

        :param expires_in: seconds; negative for one that has expired already.
        :param jwt: give it the form of a JWT, with the claims ``exp`` (half an hour if nothing else is said)
            and ``roles``.
        """
        order = {
            "roles": roles,
            "tenant_id": tenant_id,
            "user_id": user_id,
            "expires_in": expires_in,
            "jwt": jwt,
        }
        return str(self._call("POST", "/tokens", order))

    def set_token_lifetime(self, seconds: float) -> None:
        """Say how long the tokens live that the service hands out from now on; half an hour at first."""
        self._call("PUT", "/token-lifetime", {"seconds": seconds})

    def add_user(
        self,
        name: str,
        roles: list[str],
        *,
        user_id: str | None = None,
        tenant_id: str = "1",
        password: str | None = None,
        totp: bool = False,
        groups: Sequence[str] = (),
        public_key: str | None = None,
    ) -> str:
        """Add a user, or replace the one of this id, and return the id.

        :param user_id: ``1`` is the user of the main token; by default a new one.
        :param password: what the user signs in with; without it that is not possible.
        :param totp: ask for a one-time code when signing in.
        :param groups: the approver groups the user is in.
        :param public_key: the key that the user's signatures are checked with, P-256 in PEM.
        """
        order = {
            "name": name,
            "roles": roles,
            "user_id": user_id,
            "tenant_id": tenant_id,
            "password": password,
            "totp": totp,
            "groups": list(groups),
            "public_key": public_key,
        }
        return str(self._call("POST", "/users", order))

    def revoke_tokens(self, user_id: str) -> None:
        """Accept none of a user's tokens any more, but for the main token."""
        self._call("DELETE", f"/users/{user_id}/tokens")

    def add_api_key(self, user_id: str) -> dict[str, str]:
        """Make an API key for a user: its `id`, and its `secret` in hex."""
        result: dict[str, str] = self._call("POST", f"/users/{user_id}/api-keys")
        return result

    def set_clock_offset(self, seconds: float) -> None:
        """Make the clock that API keys are checked against go wrong by so many seconds."""
        self._call("PUT", "/clock-offset", {"seconds": seconds})

    def add_webhook(
        self,
        type: str = "requestStatus.updated",
        url: str = "https://hooks.example.com/custody",
        status: str = "enabled",
        id: str | None = None,
        tenant_id: str = "1",
        timeout_until: str = "",
    ) -> dict[str, Any]:
        """Put a webhook there, whatever its values, and return it as the service shows it."""
        order = {"type": type, "url": url, "status": status, "id": id}
        result: dict[str, Any] = self._call(
            "POST", "/webhooks", {**order, "tenant_id": tenant_id, "timeout_until": timeout_until}
        )
        return result

    def webhooks(self) -> list[dict[str, Any]]:
        """List all webhooks of all tenants."""
        result: list[dict[str, Any]] = self._call("GET", "/webhooks")
        return result

    def whitelist_requests(self) -> list[dict[str, Any]]:
        """List all whitelisting requests.

        Each has its fields under their wire names, and `id`, `tenantId`, `userId`, `status`, `createdAt`, and
        `body` as it was received.
        """
        result: list[dict[str, Any]] = self._call("GET", "/whitelist-requests")
        return result

    def set_whitelist_status(self, request_id: str, status: str) -> None:
        """Give a whitelisting request another status; any but ``waiting`` takes it off the waiting list.

        With ``removed`` no look-up shows it any more, as if it had been deleted.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"status": status})

    def set_approvers(self, parallel: list[dict[str, Any]] | None) -> None:
        """Say who must sign the requests that are created from now on.

        :param parallel: ``[{"sequential": [{"externalGroupID": ..., "minimumSignatures": ...}, ...]}, ...]``: every
            branch must be signed, in each one group after the other. None: one of the group ``approvers``, two for
            a request with both linked lists.
        """
        self._call("PUT", "/approvers", {"parallel": parallel})

    def change_whitelist_request(self, request_id: str, **fields: Any) -> None:
        """Change a request's fields (wire names) behind everybody's back: its payload and hash change."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"fields": fields})

    def set_whitelist_metadata(self, request_id: str, **metadata: Any) -> None:
        """Show a request with this ``hash`` or ``payloadAsString``, whatever that makes of it; None removes it."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"metadata": metadata})

    def set_whitelist_age(self, request_id: str, seconds: float) -> None:
        """Make a whitelisting request look as if it had been created so many seconds ago."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"age": seconds})

    def set_whitelist_lag(self, seconds: float) -> None:
        """Show whitelisting requests in look-ups only when they are so many seconds old."""
        self._call("PUT", "/whitelist-lag", {"seconds": seconds})

    def received(self, method: str | None = None, path: str | None = None) -> list[dict[str, Any]]:
        """List the requests that reached the service, in order.

        Each has `method`, `path`, `query` (lists of values by name), `raw_query`, `headers` (names in lower
        case, the credentials in ``authorization`` replaced by their :func:`fingerprint`), `body` (JSON or text),
        `time` (seconds since 1970), `status` (None while unanswered, or when the connection was dropped) and
        `fault` (its answer, or None).

        :param path: only those at or below this path, with or without ``/api/rest/v1``.
        """
        result: list[dict[str, Any]] = self._call("GET", "/received", params={"method": method, "path": path})
        return result

    def clear_received(self) -> None:
        """Forget which requests reached the service."""
        self._call("DELETE", "/received")

    def order_fault(self, answer: str = "normal", **order: Any) -> None:
        """Make the next calls go wrong; of several orders the first that fits is taken.

        Which calls: ``method``, ``path`` (at or below it, with or without ``/api/rest/v1``), ``skip`` (let so
        many through first), ``times`` (default 1; None: until cleared).

        What happens: ``delay`` seconds before the work and ``delay_after`` seconds after it; ``work``, whether
        the service does what was asked (by default it does, except with status, html, redirect, rate_limit and
        drop); and one ``answer``:

        - ``normal`` (default)
        - ``status``: ``status``, and optionally ``body`` (JSON or text), ``content_type``, ``retry_after``
        - ``html``: a page; optionally ``status`` (default 200), ``body``, ``retry_after``
        - ``redirect``: ``location``, optionally ``status`` (default 302)
        - ``rate_limit``: 429, optionally ``retry_after`` (number or text), ``body``, ``content_type``
        - ``empty``: no body; optionally ``status`` (default 200)
        - ``drop``: the connection is closed without an answer
        - ``cut_body``: the connection is closed after half of the body, or after ``keep`` bytes of it
        - ``cut_headers``: the connection is closed in the middle of the headers
        - ``trickle``, ``trickle_headers``: body or head in pieces of ``piece`` bytes (default 1), one every
          ``pieces_every`` seconds (default 0.1)
        - ``large``: a body of ``size`` bytes; ``chunked=True`` does not tell the size first

        ``headers`` (names and values) adds to status, html, redirect, rate_limit and empty.
        """
        self._call("POST", "/faults", {"answer": answer, **order})

    def faults(self) -> list[dict[str, Any]]:
        """List the orders that have not been used up."""
        result: list[dict[str, Any]] = self._call("GET", "/faults")
        return result

    def clear_faults(self) -> None:
        """Forget all orders."""
        self._call("DELETE", "/faults")

    def close(self) -> None:
        """Close the connection to the sandbox."""
        self._session.close()

    def _call(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        url = f"{self.url}/sandbox{path}"
        try:
            response = self._session.request(method, url, json=body, params=params, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise SandboxError(f"no answer from the sandbox at {url}: {error}") from error
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise SandboxError(f"not an answer of a sandbox at {url}: status {response.status_code}")
        if not response.ok:
            raise SandboxError(f"{method} {path}: {answer.get('message', response.status_code)}")
        return answer.get("result")
