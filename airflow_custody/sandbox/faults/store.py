"""The faults that tests add, and which calls each is for."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflow_custody.sandbox.errors import error_body
from airflow_custody.sandbox.paths import is_below

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
    "trickle_headers",
    "large",
]
Seconds = Annotated[float, Field(ge=0, le=3600)]
# The HTTP library would refuse to send anything else, and the caller would get no response at all.
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^([!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?)?$")]

# With these the service does not do the work, unless the fault says so.
_WITHOUT_WORK = ("status", "html", "redirect", "rate_limit", "drop")

# The options of each kind. Any other option has no effect with it, and is refused as a mistake in a test.
_OPTIONS: dict[str, set[str]] = {
    "normal": set(),
    "status": {"status", "body", "content_type", "headers", "retry_after"},
    "html": {"status", "body", "headers", "retry_after"},
    "redirect": {"status", "location", "headers"},
    "rate_limit": {"retry_after", "body", "content_type", "headers"},
    "empty": {"status", "headers"},
    "drop": set(),
    "truncate_body": {"keep"},
    "truncate_headers": set(),
    "trickle": {"pieces_every", "piece"},
    "trickle_headers": {"pieces_every", "piece"},
    "large": {"size", "chunked"},
}
_COMMON_OPTIONS = {"method", "path", "query", "times", "skip", "delay", "delay_after", "work", "kind"}
_REQUIRED_OPTIONS = {"status": "status", "redirect": "location", "large": "size"}
_FRAMING_HEADERS = {"content-length", "transfer-encoding"}


class Fault(BaseModel):
    """A fault: which calls it is for, and what goes wrong with them."""

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
    piece: Annotated[int, Field(ge=1)] = 1
    size: Annotated[int, Field(ge=14, le=2**31)] | None = None
    chunked: bool = False

    @model_validator(mode="after")
    def _check_options(self) -> Fault:
        unused = self.model_fields_set - _COMMON_OPTIONS - _OPTIONS[self.kind]
        if unused:
            raise ValueError(f"{', '.join(sorted(unused))} cannot be used with the fault {self.kind}")
        required = _REQUIRED_OPTIONS.get(self.kind)
        if required and getattr(self, required) is None:
            raise ValueError(f"the fault {self.kind} needs {required}")
        if {name.lower() for name in self.headers} & _FRAMING_HEADERS:
            raise ValueError("headers cannot set the length of the body: use a fault that changes it")
        return self

    @property
    def does_work(self) -> bool:
        """Whether the service does what the call asks for."""
        return self.kind not in _WITHOUT_WORK if self.work is None else self.work

    def matches(self, method: str, path: str, query: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the fault is for such a call."""
        return (
            (self.method is None or self.method.upper() == method)
            and is_below(path, self.path)
            and all(value in query.get(name, ()) for name, value in self.query.items())
        )

    def replacement(self) -> tuple[int, str, bytes] | None:
        """Return status, content type and body of the response that replaces the service's own, or None."""
        if self.kind == "html":
            status = self.status or 200
            page = self.body if isinstance(self.body, str) else f"<html><body><h1>{status}</h1></body></html>"
            return status, "text/html; charset=utf-8", page.encode()
        if self.kind == "empty":
            return self.status or 200, "application/json", b""
        if self.kind == "redirect":
            return self.status or 302, "text/html; charset=utf-8", b"<html><body>Moved</body></html>"
        if self.kind in ("status", "rate_limit"):
            status = self.status or 429
            body = self.body
            if body is None:
                body = error_body(status, "a fault added by a test") if status >= 400 else {}
            if isinstance(body, str):
                return status, self.content_type or "text/plain; charset=utf-8", body.encode()
            return status, self.content_type or "application/json", json.dumps(body).encode()
        return None

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
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Add a fault after the existing ones."""
        with self._lock:
            self._faults.append(fault)

    def take(self, method: str, path: str, query: Mapping[str, Sequence[str]]) -> Fault | None:
        """Return the first fault for a call that has nothing left to skip, and count this use of it."""
        with self._lock:
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

    def list(self) -> list[dict[str, Any]]:
        """Return the faults that are not used up."""
        with self._lock:
            return [fault.model_dump(exclude_unset=True) for fault in self._faults]

    def clear(self) -> None:
        """Delete all faults."""
        with self._lock:
            self._faults.clear()
