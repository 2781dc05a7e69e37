"""Reject calls from web pages."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from airflow_custody.sandbox.errors import error_body
from airflow_custody.sandbox.web import json_response


class PageGuard:
    """
    Rejects calls from web pages, because the control has no authentication.

    Rejected calls are not logged and change nothing. Three headers identify calls from web pages. A page whose host
    name was rebound to this machine (DNS rebinding) sends that name as ``Host``. For a page of another site, the
    browser sends ``Origin``; for requests without an ``Origin``, such as images, it sends ``Sec-Fetch-Site``.

    :param app: the application.
    :param host: the address that the sandbox listens on. If it stands for all addresses, clients may use any IP
        address, because IP addresses cannot be rebound.
    :param allowed_hosts: further names that clients may use.
    """

    def __init__(self, app: ASGIApp, host: str, allowed_hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *map(str.lower, (host, *allowed_hosts))}
        bound = _address(host)
        self._accepts_any_address = bound is not None and bound.is_unspecified

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(Headers(scope=scope)) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
            return
        status, message = problem
        await json_response(error_body(status, message), status)(scope, receive, send)

    def _problem(self, headers: Headers) -> tuple[int, str] | None:
        """Return status and message of the rejection; None if the call is accepted."""
        host = headers.get("host", "")
        if not self._is_own(host):
            return 421, f"{host!r} is not a host name of this sandbox: use its URL, or start it with --allow-host NAME"
        origin = headers.get("origin")
        if origin not in (None, f"http://{host}", f"https://{host}"):
            return 403, f"the sandbox rejects calls from web pages, such as {origin}"
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return 403, "the sandbox rejects calls from web pages of other sites"
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        address = _address(name)
        is_accepted_address = address is not None and (address.is_loopback or self._accepts_any_address)
        return is_accepted_address or name in self._names


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
