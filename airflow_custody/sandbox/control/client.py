"""Controlling a sandbox over HTTP, in this process or another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import requests

from airflow_custody.sandbox.errors import SandboxError

_TIMEOUT = 30.0


class SandboxControl:
    """
    The control routes of one sandbox; a call that fails raises :class:`SandboxError`.

    :param url: URL of the sandbox, such as ``http://127.0.0.1:43121``.
    :param verify: as in requests, for a sandbox that speaks HTTPS.
    :param cert: as in requests, for a sandbox that requires a client certificate.
    """

    def __init__(self, url: str, verify: bool | str = True, cert: str | tuple[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        # No proxy and no ~/.netrc: the sandbox is on this machine or near it.
        self._session.trust_env = False
        self._session.verify = verify
        self._session.cert = cert

    def about(self) -> dict[str, Any]:
        """Return whether this is a sandbox, and which version of the service it imitates."""
        result: dict[str, Any] = self._call("GET", "")
        return result

    def reset(self) -> None:
        """
        Go back to the state of a fresh sandbox, without faults and logged requests; only the main token stays.

        Calls that a fault still delays are cut off, and do no more work.
        """
        self._call("POST", "/reset")

    def set_health(self, entries: list[dict[str, Any]]) -> None:
        """
        Set the health entries, each of which is listed under its `group` exactly as it is given.

        A field that an entry leaves out is missing in the response; :func:`health_entry` returns complete entries.
        Only ``{now}``, ``{now-5s}``, ``{now+60s}`` and the like are replaced, at each read, by the date they stand
        for.
        """
        self._call("PUT", "/health", {"entries": entries})

    def set_health_response(self, response: Any) -> None:
        """Set the whole response to the health listing, to any JSON value; None goes back to the entries."""
        self._call("PUT", "/health/response", {"response": response})

    def update_health(
        self, group: str | None = None, component: str | None = None, check: str | None = None, **fields: Any
    ) -> int:
        """
        Change fields of all matching health entries, and return how many match.

        :param component: name or id of the component.
        :param fields: the fields, by their names on the wire; those that are None are removed.
        """
        body = {"group": group, "component": component, "check": check, "fields": fields}
        return int(self._call("PATCH", "/health", body))

    def set_currencies(self, currencies: list[str]) -> None:
        """Set the active currencies."""
        self._call("PUT", "/currencies", {"currencies": currencies})

    def set_version(self, version: str) -> None:
        """Imitate this version of the service; before 3.14 it has no health operations."""
        self._call("PUT", "/version", {"version": version})

    def add_token(
        self,
        roles: list[str],
        tenant_id: str = "1",
        user_id: str = "2",
        expires_in: float | None = None,
        jwt: bool = False,
    ) -> str:
        """
        Add a token with these roles, and return it.

        :param expires_in: seconds; negative for a token that has already expired. Default: it does not expire, but a
            JWT expires after half an hour.
        :param jwt: whether to make it a JWT, with the claims ``exp`` and ``roles``.
        """
        body = {
            "roles": roles,
            "tenant_id": tenant_id,
            "user_id": user_id,
            "expires_in": expires_in,
            "jwt": jwt,
        }
        return str(self._call("POST", "/tokens", body))

    def set_token_lifetime(self, seconds: float) -> None:
        """Set the lifetime of the JWTs that are issued from now on; it is half an hour at first."""
        self._call("PUT", "/token-lifetime", {"seconds": seconds})

    def set_token_claims(self, *, clock_offset: float = 0, has_iat: bool = False) -> None:
        """
        Set what the JWTs that are issued from now on say about their time.

        :param clock_offset: how many seconds ahead the clock is that they are dated by; negative is behind. Default 0.
        :param has_iat: whether they say when they were issued. Default False.
        """
        self._call("PUT", "/token-claims", {"clock_offset": clock_offset, "has_iat": has_iat})

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
        external_id: str | None = None,
    ) -> str:
        """
        Add a user, or replace the one with this id, and return the id.

        :param user_id: id of the user; ``1`` is the user of the main token. Default: a new id.
        :param password: password of the user, who cannot sign in without one.
        :param totp: whether signing in takes a one-time code.
        :param groups: the groups of approvers that the user belongs to.
        :param public_key: P-256 key in PEM, to verify the user's signatures with.
        :param external_id: the id that signatures carry. Default: an e-mail address made of the id.
        """
        body = {
            "name": name,
            "roles": roles,
            "user_id": user_id,
            "tenant_id": tenant_id,
            "password": password,
            "totp": totp,
            "groups": list(groups),
            "public_key": public_key,
            "external_id": external_id,
        }
        return str(self._call("POST", "/users", body))

    def revoke_tokens(self, user_id: str) -> None:
        """Revoke all tokens of a user, except the main token."""
        self._call("DELETE", f"/users/{user_id}/tokens")

    def add_api_key(self, user_id: str) -> dict[str, str]:
        """Add an API key for a user, and return its `id` and its `secret` in hex."""
        result: dict[str, str] = self._call("POST", f"/users/{user_id}/api-keys")
        return result

    def set_clock_offset(self, seconds: float) -> None:
        """Set how many seconds ahead the clock is that API keys are checked against; negative is behind."""
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
        """Add a webhook, whatever its values, and return it as the service does."""
        body = {
            "type": type,
            "url": url,
            "status": status,
            "id": id,
            "tenant_id": tenant_id,
            "timeout_until": timeout_until,
        }
        result: dict[str, Any] = self._call("POST", "/webhooks", body)
        return result

    def webhooks(self) -> list[dict[str, Any]]:
        """Return the webhooks of all tenants."""
        result: list[dict[str, Any]] = self._call("GET", "/webhooks")
        return result

    def add_webhook_call(self, tenant_id: str = "1", **call: Any) -> None:
        """Add a call to a webhook, with these fields by their names on the wire."""
        self._call("POST", "/webhook-calls", {"tenant_id": tenant_id, "call": call})

    def set_listing(
        self,
        name: str,
        *,
        page_size: int | None = None,
        totals: Sequence[str | int | None] = (),
        ignored: Sequence[str] = (),
        orders: Sequence[Sequence[str]] = (),
    ) -> None:
        """
        Set how a listing behaves; what is left out goes back to how it should behave.

        :param name: ``whitelist``, ``webhooks`` or ``webhook-calls``.
        :param page_size: maximum number of rows on a page, whatever is asked for.
        :param totals: the ``totalItems`` of the next calls, the last of all that follow; None leaves it out.
        :param ignored: query parameters that it ignores, by their names; ``cursor`` stands for all of its own.
        :param orders: ids of the rows that the next calls list, in this order, the last of all that follow. A call
            lists no other rows.
        """
        body = {"page_size": page_size, "totals": totals, "ignored": ignored, "orders": orders}
        self._call("PUT", f"/listings/{name}", body)

    def whitelist_requests(self) -> list[dict[str, Any]]:
        """
        Return the whitelisting requests of all tenants.

        Each has its fields by their names on the wire, `id`, `tenantId`, `userId`, `status`, `createdAt`, and the
        `body` it was created from.
        """
        result: list[dict[str, Any]] = self._call("GET", "/whitelist-requests")
        return result

    def add_whitelist_requests(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        status: str = "APPROVED",
        tenant_id: str = "1",
        user_id: str = "1",
    ) -> list[str]:
        """
        Add many whitelisting requests at once, in effect by default and without signatures, and return their ids.

        They are checked and stored as if this user had created them; if one is refused, none is added.

        :param requests: the fields of each, by their names on the wire.
        :param status: the status of all; ``pending`` for requests that are to be approved.
        """
        body = {"requests": list(requests), "status": status, "tenant_id": tenant_id, "user_id": user_id}
        result: list[str] = self._call("POST", "/whitelist-requests", body)
        return result

    def set_whitelist_status(self, request_id: str, status: str) -> None:
        """
        Set the status of a whitelisting request; with any but ``pending`` it is no longer pending approval.

        With ``removed`` it cannot be found any more, as if it had been deleted.
        """
        self._call("PUT", f"/whitelist-requests/{request_id}", {"status": status})

    def set_approvers(self, parallel: list[dict[str, Any]] | None) -> None:
        """
        Set who must sign the whitelisting requests that are created from now on.

        :param parallel: ``[{"sequential": [{"externalGroupID": ..., "minimumSignatures": ...}, ...]}, ...]``: every
            branch must be signed, and within a branch one group after the other. None: one member of the group
            ``approvers``, or two for a request with both linked lists.
        """
        self._call("PUT", "/approvers", {"parallel": parallel})

    def change_whitelist_request(self, request_id: str, **fields: Any) -> None:
        """Change fields of a whitelisting request, by their names on the wire; its payload and hash change too."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"fields": fields})

    def set_whitelist_metadata(self, request_id: str, **metadata: Any) -> None:
        """Replace ``hash`` or ``payloadAsString`` in what is returned of a whitelisting request; None removes it."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"metadata": metadata})

    def set_whitelist_envelope(self, request_id: str, **fields: Any) -> None:
        """Replace fields in what is returned of a whitelisting request, by their names; None removes them."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"envelope": fields})

    def set_network_is_hashed(self, is_hashed: bool) -> None:
        """Set whether payloads have the network, as they do at first; otherwise only the envelopes have it."""
        self._call("PUT", "/whitelist-network", {"is_hashed": is_hashed})

    def set_status_words(self, **words: str) -> None:
        """Set how the service writes status words, by the sandbox's own: ``pending="NEW"``, ``APPROVED="active"``."""
        self._call("PUT", "/whitelist-status-words", {"words": words})

    def set_max_signatures(self, number: int | None) -> None:
        """Sign only so many requests of an approval, the first ones; None, as at first: all."""
        self._call("PUT", "/max-signatures", {"number": number})

    def set_whitelist_age(self, request_id: str, seconds: float) -> None:
        """Date the creation of a whitelisting request so many seconds back."""
        self._call("PUT", f"/whitelist-requests/{request_id}", {"age": seconds})

    def set_whitelist_behaviour(self, **settings: Any) -> None:
        """
        Set how the service treats the whitelisting requests that are created from now on. None of this is published.

        What is not given goes back to the default:

        - ``address_form``: how addresses are stored: ``as sent``, ``lower``, ``upper``, ``no prefix``
        - ``label_length``: where longer labels are truncated
        - ``chain_name``: what the service calls the chain
        - ``drop_links``: whether the payload leaves the links out
        - ``fill``: fields, by their names on the wire, that get a value if the request leaves them out
        - ``fill_always``: the same, also if the request has a value
        - ``creator_sees_own``: whether a user's own requests are listed to that user; also for requests that exist
        - ``deletion``: when a request is deleted: ``at once``, or once as many users have signed that as the request
          itself takes (``signed``). Until then it is listed as before, pending and with the action ``delete``; if
          that is rejected, it goes back to what it was. Also for requests that exist
        - ``clock_offset``: seconds that the service's clock is ahead; negative is behind
        - ``created_at``: the date of creation, whenever that is
        """
        self._call("PUT", "/whitelist-behaviour", settings)

    def set_whitelist_lag(self, seconds: float) -> None:
        """Set how many seconds old whitelisting requests must be to be found."""
        self._call("PUT", "/whitelist-lag", {"seconds": seconds})

    def request_log(self, method: str | None = None, path: str | None = None) -> list[dict[str, Any]]:
        """
        Return the requests that reached the service, in order.

        Each has `method`, `path`, `query` (lists of values by name), `raw_query`, `headers` (names in lower case, the
        credentials in ``authorization`` replaced by their :func:`fingerprint`), `body` (JSON or text), `time` (seconds
        since 1970), `status` (None while there is no response, or if the connection was dropped) and `fault` (which
        one was injected, or None).

        :param method: only requests with this method.
        :param path: only requests at or below this path, with or without ``/api/rest/v1``.
        """
        result: list[dict[str, Any]] = self._call("GET", "/request-log", params={"method": method, "path": path})
        return result

    def clear_request_log(self) -> None:
        """Delete the log of requests."""
        self._call("DELETE", "/request-log")

    def add_fault(self, kind: str = "normal", **options: Any) -> None:
        """
        Add a fault, to inject into the next calls. If several match a call, the first one is used.

        These options select the calls: ``method``; ``path`` (at or below it, with or without ``/api/rest/v1``);
        ``query``, values that the query must have, by name (of a repeated one, any may be it);
        ``skip``, how many calls to let through first; ``times``, how many calls to affect (default 1; None: all, until
        the faults are cleared).

        These go with every fault: ``delay`` and ``delay_after``, seconds to wait before and after the work; ``work``,
        whether the service does what the call asks for (by default it does, except with status, html, redirect,
        rate_limit and drop).

        The faults, with their own options:

        - ``normal`` (default): the service's own response
        - ``status``: a response with ``status``, and optionally ``body`` (JSON or text), ``content_type``,
          ``retry_after``
        - ``html``: an HTML page; optionally ``status`` (default 200), ``body``, ``retry_after``
        - ``redirect``: a redirect to ``location``; optionally ``status`` (default 302)
        - ``rate_limit``: a 429 response; optionally ``retry_after`` (number or text), ``body``, ``content_type``
        - ``empty``: a response without a body; optionally ``status`` (default 200)
        - ``drop``: the connection is closed without a response
        - ``truncate_body``: the connection is closed after half of the body, or after ``keep`` bytes of it
        - ``truncate_headers``: the connection is closed in the middle of the headers
        - ``trickle``, ``trickle_headers``: the body or the headers are sent in pieces of ``piece`` bytes (default 1),
          one every ``pieces_every`` seconds (default 0.1)
        - ``large``: a body of ``size`` bytes; with ``chunked=True`` its size is not announced

        ``headers``, names and values, can be added to status, html, redirect, rate_limit and empty.
        """
        self._call("POST", "/faults", {"kind": kind, **options})

    def faults(self) -> list[dict[str, Any]]:
        """Return the faults that are not used up."""
        result: list[dict[str, Any]] = self._call("GET", "/faults")
        return result

    def clear_faults(self) -> None:
        """Delete all faults."""
        self._call("DELETE", "/faults")

    def close(self) -> None:
        """Close the connection to the sandbox."""
        self._session.close()

    def _call(self, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        url = f"{self.url}/sandbox{path}"
        try:
            response = self._session.request(method, url, json=body, params=params, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise SandboxError(f"no response from the sandbox at {url}: {error}") from error
        try:
            content = response.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise SandboxError(f"not a response of a sandbox at {url}: status {response.status_code}")
        if not response.ok:
            raise SandboxError(f"{method} {path}: {content.get('message', response.status_code)}")
        return content.get("result")
