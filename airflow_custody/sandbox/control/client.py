"""Controlling a sandbox over HTTP, in this process or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_custody.sandbox.control.webhook_calls import WebhookControl
from airflow_custody.sandbox.control.whitelist import WhitelistControl


class SandboxControl(WhitelistControl, WebhookControl):
    """
    The control routes of one sandbox; a call that fails raises :class:`SandboxError`.

    :param url: URL of the sandbox, such as ``http://127.0.0.1:43121``.
    :param verify: as in requests, for a sandbox that speaks HTTPS.
    :param cert: as in requests, for a sandbox that requires a client certificate.
    """

    def about(self) -> dict[str, Any]:
        """Return whether this is a sandbox, and which version of the service it imitates."""
        result: dict[str, Any] = self._call("GET", "")
        return result

    def reset(self) -> None:
        """
        Go back to the state of a fresh sandbox, without faults and logged requests; only the main token and the
        super-administrators' keys stay.

        Calls that a fault still delays are cut off, and do no more work.
        """
        self._call("POST", "/reset")

    def set_health(self, entries: list[dict[str, Any]]) -> None:
        """
        Set the health entries, each of which is listed under its `group` exactly as it is given.

        A field that an entry leaves out is missing in the response; :func:`health_entry` returns complete entries.
        Only ``{now}``, ``{now-5s}``, ``{now+60s}`` and the like are replaced, at each read, by the date they stand
        for.

        :param entries: the entries, in their order.
        """
        self._call("PUT", "/health", {"entries": entries})

    def set_health_response(self, response: Any) -> None:
        """
        Set the whole response to the health listing, to any JSON value.

        :param response: the response; None goes back to the entries.
        """
        self._call("PUT", "/health/response", {"response": response})

    def update_health(
        self, group: str | None = None, component: str | None = None, check: str | None = None, **fields: Any
    ) -> int:
        """
        Change fields of all matching health entries, and return how many match.

        :param group: only entries of this group. None (default): of all.
        :param component: name or id of the component. None (default): all.
        :param check: only entries with this name. None (default): all.
        :param fields: the fields, by their names on the wire; those that are None are removed.
        """
        body = {"group": group, "component": component, "check": check, "fields": fields}
        return int(self._call("PATCH", "/health", body))

    def set_currencies(self, currencies: list[str]) -> None:
        """
        Set the active currencies.

        :param currencies: their symbols. An address on a chain whose currency is not active is refused.
        """
        self._call("PUT", "/currencies", {"currencies": currencies})

    def set_version(self, version: str) -> None:
        """
        Imitate a version of the service; before 3.14 it has no health operations.

        :param version: the version, such as ``3.20.1``.
        """
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

        :param roles: the roles of its user, such as ``TPUser``.
        :param tenant_id: id of the user's tenant. Default ``1``.
        :param user_id: id of the user. Default ``2``.
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
        """
        Set the lifetime of the JWTs that are issued from now on; it is half an hour at first.

        :param seconds: the lifetime.
        """
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

        :param name: the user's name, to sign in with.
        :param roles: the user's roles, such as ``TPUser``.
        :param user_id: id of the user; ``1`` is the user of the main token. Default: a new id.
        :param tenant_id: id of the user's tenant. Default ``1``.
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

    def add_approvers(self, names: Sequence[str]) -> list[dict[str, str]]:
        """
        Have two users, one after the other, sign the whitelisting requests that are created from now on.

        Each is in a group, ``first`` or ``second``, and has a key, which the sandbox makes and keeps. The user of the
        main token, who is in every group otherwise, is then in none.

        :param names: their names. Where they have been added already, nothing changes; others cannot be.
        :return: each with `name`, `user_id`, `external_id`, `group`, `token` and `private_key`, in PEM.
        """
        result: list[dict[str, str]] = self._call("POST", "/approvers", {"names": list(names)})
        return result

    def revoke_tokens(self, user_id: str) -> None:
        """
        Revoke all tokens of a user, except the main token.

        :param user_id: id of the user.
        """
        self._call("DELETE", f"/users/{user_id}/tokens")

    def add_api_key(self, user_id: str) -> dict[str, str]:
        """
        Add an API key for a user, and return its `id` and its `secret` in hex.

        :param user_id: id of the user.
        """
        result: dict[str, str] = self._call("POST", f"/users/{user_id}/api-keys")
        return result

    def set_clock_offset(self, seconds: float) -> None:
        """
        Set how far ahead the clock is that API keys are checked against.

        :param seconds: how many seconds; negative is behind.
        """
        self._call("PUT", "/clock-offset", {"seconds": seconds})

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

        :param kind: the fault.
        :param options: the options above.
        """
        self._call("POST", "/faults", {"kind": kind, **options})

    def faults(self) -> list[dict[str, Any]]:
        """Return the faults that are not used up."""
        result: list[dict[str, Any]] = self._call("GET", "/faults")
        return result

    def clear_faults(self) -> None:
        """Delete all faults."""
        self._call("DELETE", "/faults")
