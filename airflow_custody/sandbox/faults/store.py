"""Faults that tests add, and the calls that they affect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_custody.sandbox.errors import error_body
from airflow_custody.sandbox.wire import is_below

Seconds = Annotated[float, Field(ge=0, le=3600)]
# The HTTP library only sends headers of these forms. With any other header, the client would get no response at all.
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^([!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?)?$")]

# The kinds that replace the response, and their default status.
_STATUSES = {"status": 200, "html": 200, "redirect": 302, "rate_limit": 429, "empty": 200}
FaultKind = Literal[
    "normal",
    "status",
    "html",
    "redirect",
    "rate_limit",
    "empty",
    "drop",
    "truncate_body",
    "truncate_headers",
    "trickle",
    "large",
]


class Fault(BaseModel):
    """A fault, and the calls that it affects."""

    model_config = ConfigDict(extra="forbid")

    method: str | None = None
    path: str | None = None
    query: dict[str, str] = {}
    times: Annotated[int, Field(ge=1)] | None = 1
    skip: Annotated[int, Field(ge=0)] = 0
    delay: Seconds = 0.0
    delay_after: Seconds = 0.0
    work: bool | None = None
    kind: FaultKind = "normal"
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    body: dict[str, Any] | list[Any] | str | None = None
    content_type: HeaderValue | None = None
    headers: dict[HeaderName, HeaderValue] = {}
    location: HeaderValue | None = None
    retry_after: int | float | HeaderValue | None = None
    keep: Annotated[int, Field(ge=0)] | None = None
    pieces_every: Seconds = 0.1
    size: Annotated[int, Field(ge=14, le=2**31)] = 1024
    chunked: bool = False

    @property
    def does_work(self) -> bool:
        """Whether the service does the work of the call."""
        if self.work is not None:
            return self.work
        return self.kind not in ("status", "html", "redirect", "rate_limit", "drop")

    def matches(self, method: str, path: str, query: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the fault affects a call."""
        return (
            (self.method is None or self.method.upper() == method)
            and is_below(path, self.path)
            and all(value in query.get(name, ()) for name, value in self.query.items())
        )

    def replacement(self) -> tuple[int, str, bytes] | None:
        """Return status, content type and body of the fault's response; None if the fault has no response."""
        if self.kind not in _STATUSES:
            return None
        status, body = self.status or _STATUSES[self.kind], self.body
        if self.kind == "empty":
            return status, "application/json", b""
        if self.kind in ("html", "redirect"):
            page = body if isinstance(body, str) else f"<html><body><h1>{status}</h1></body></html>"
            return status, "text/html; charset=utf-8", page.encode()
        if body is None:
            body = error_body(status, "a fault added by a test") if status >= 400 else {}
        if isinstance(body, str):
            return status, self.content_type or "text/plain; charset=utf-8", body.encode()
        return status, self.content_type or "application/json", json.dumps(body).encode()

    def extra_headers(self) -> dict[str, str]:
        """Return the headers that the fault adds, with names in lower case."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.location is not None:
            headers["location"] = self.location
        return headers


class FaultStore:
    """The store of faults."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add_fault(self, /, kind: str = "normal", **options: object) -> None:
        """
        Add a fault, to inject into the next calls. If several faults match a call, the first one is used.

        These options select the calls: ``method``; ``path`` (calls at or below this path, with or without
        ``/api/rest/v1``); ``query``, required values of the query by name (of a repeated parameter, any value may
        match); ``skip``, the number of matching calls that are left unaffected first; ``times``, the number of calls
        that are affected after these (default 1; None: all calls, until the faults are cleared).

        These options apply to every fault: ``delay`` and ``delay_after``, seconds to wait before and after the work;
        ``work``, whether the service does the work of the call (default: yes, except with status, html, redirect,
        rate_limit and drop).

        The kinds of faults, with their own options:

        - ``normal`` (default): the service's own response
        - ``status``: a response; optionally ``status`` (default 200), ``body`` (JSON or text), ``content_type``,
          ``retry_after``
        - ``html``: an HTML page; optionally ``status`` (default 200), ``body``, ``retry_after``
        - ``redirect``: a redirect to ``location``; optionally ``status`` (default 302)
        - ``rate_limit``: a 429 response; optionally ``retry_after`` (number or text), ``body``, ``content_type``
        - ``empty``: a response without a body; optionally ``status`` (default 200)
        - ``drop``: the connection is closed without a response
        - ``truncate_body``: the connection is closed after half of the body, or after ``keep`` bytes of it
        - ``truncate_headers``: the connection is closed in the middle of the headers
        - ``trickle``: the body is sent byte by byte, one every ``pieces_every`` seconds (default 0.1)
        - ``large``: a body of ``size`` bytes (default 1024); with ``chunked=True``, it is sent in chunks,
          without its length

        The kinds status, html, redirect, rate_limit and empty also accept ``headers``, a mapping of names to values.

        :param kind: the kind of fault.
        :param options: the options above.
        """
        self._faults.append(Fault.model_validate({"kind": kind, **options}))

    def take(self, method: str, path: str, query: Mapping[str, Sequence[str]]) -> Fault | None:
        """Return the fault for a call, and count its use; None if no fault matches the call."""
        for position, fault in enumerate(self._faults):
            if not fault.matches(method, path, query):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.times is not None:
                fault.times -= 1
                if not fault.times:
                    del self._faults[position]
            return fault
        return None

    def faults(self) -> list[dict[str, Any]]:
        """Return the faults that are still to be injected."""
        return [fault.model_dump(exclude_unset=True) for fault in self._faults]

    def clear_faults(self) -> None:
        """Delete all faults."""
        self._faults.clear()
