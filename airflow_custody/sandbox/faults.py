"""Order faults for the next calls."""

from __future__ import annotations

import json
import threading
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflow_custody.sandbox.errors import error_body
from airflow_custody.sandbox.paths import below

Answer = Literal[
    "normal",
    "status",
    "html",
    "redirect",
    "rate_limit",
    "empty",
    "drop",
    "cut_body",
    "cut_headers",
    "trickle",
    "trickle_headers",
    "large",
]
Seconds = Annotated[float, Field(ge=0, le=3600)]
# What the HTTP library would refuse to send, and then nothing would be sent at all.
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
HeaderValue = Annotated[str, Field(pattern=r"^([!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?)?$")]

# With these the service does not do what was asked, unless the order says so.
_NO_WORK = ("status", "html", "redirect", "rate_limit", "drop")

# Which options mean something with which answer: one that does not would be a slip in a test.
_OPTIONS: dict[str, set[str]] = {
    "normal": set(),
    "status": {"status", "body", "content_type", "headers", "retry_after"},
    "html": {"status", "body", "headers", "retry_after"},
    "redirect": {"status", "location", "headers"},
    "rate_limit": {"retry_after", "body", "content_type", "headers"},
    "empty": {"status", "headers"},
    "drop": set(),
    "cut_body": {"keep"},
    "cut_headers": set(),
    "trickle": {"pieces_every", "piece"},
    "trickle_headers": {"pieces_every", "piece"},
    "large": {"size", "chunked"},
}
_EVERYWHERE = {"method", "path", "times", "skip", "delay", "delay_after", "work", "answer"}
_FRAMING = {"content-length", "transfer-encoding"}
_NEEDED = {"status": "status", "redirect": "location", "large": "size"}


class Fault(BaseModel):
    """Describe which calls go wrong, and how."""

    model_config = ConfigDict(extra="forbid")

    method: str | None = None
    path: str | None = None
    times: Annotated[int, Field(ge=1)] | None = 1
    skip: Annotated[int, Field(ge=0)] = 0
    delay: Seconds = 0.0
    delay_after: Seconds = 0.0
    work: bool | None = None
    answer: Answer = "normal"
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
        stray = self.model_fields_set - _EVERYWHERE - _OPTIONS[self.answer]
        if stray:
            raise ValueError(f"{', '.join(sorted(stray))} means nothing with the answer {self.answer}")
        needed = _NEEDED.get(self.answer)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"the answer {self.answer} needs {needed}")
        if {name.lower() for name in self.headers} & _FRAMING:
            raise ValueError("headers cannot say where the body ends: order a cut or a large answer instead")
        return self

    @property
    def works(self) -> bool:
        """Tell whether the service does what was asked."""
        return self.answer not in _NO_WORK if self.work is None else self.work

    def concerns(self, method: str, path: str) -> bool:
        """Tell whether the fault is meant for such a call."""
        return (self.method is None or self.method.upper() == method) and below(path, self.path)

    def made_up(self) -> tuple[int, str, bytes] | None:
        """Write status, content type and body of an answer that is not the service's own, or None."""
        if self.answer == "html":
            status = self.status or 200
            page = self.body if isinstance(self.body, str) else f"<html><body><h1>{status}</h1></body></html>"
            return status, "text/html; charset=utf-8", page.encode()
        if self.answer == "empty":
            return self.status or 200, "application/json", b""
        if self.answer == "redirect":
            return self.status or 302, "text/html; charset=utf-8", b"<html><body>Moved</body></html>"
        if self.answer in ("status", "rate_limit"):
            status = self.status or 429
            body = self.body
            if body is None:
                body = error_body(status, "ordered by a test") if status >= 400 else {}
            if isinstance(body, str):
                return status, self.content_type or "text/plain; charset=utf-8", body.encode()
            return status, self.content_type or "application/json", json.dumps(body).encode()
        return None

    def more_headers(self) -> dict[str, str]:
        """Collect the headers the order adds."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.location is not None:
            headers["location"] = self.location
        return headers


class FaultBook:
    """Keep the orders and hand each to as many calls as it is for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def order(self, fault: Fault) -> None:
        """Add an order after those that are there."""
        with self._lock:
            self._faults.append(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """Find the first fault that fits a call and has nothing left to skip, and count it off."""
        with self._lock:
            for place, fault in enumerate(self._faults):
                if not fault.concerns(method, path):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                    if not fault.times:
                        del self._faults[place]
                return fault
        return None

    def list(self) -> list[dict[str, Any]]:
        """List what is still to come."""
        with self._lock:
            return [fault.model_dump(exclude_unset=True) for fault in self._faults]

    def clear(self) -> None:
        """Forget them all."""
        with self._lock:
            self._faults.clear()
