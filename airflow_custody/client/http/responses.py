"""What a response means: its status and body become a value, or an error of the right type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.text import count, sanitize

T = TypeVar("T")

_ERROR_TYPES: dict[int, type[CustodyError]] = {
    401: CustodyAuthenticationError,
    403: CustodyPermissionError,
    404: CustodyNotFoundError,
    409: CustodyConflictError,
    429: CustodyRateLimitError,
}
# The server or a gateway gave up waiting for the request: nobody knows how much of it arrived.
_REQUEST_TIMEOUT = 408
_MAYBE_NOT_OFFERED = "The service may not offer this operation: it is not part of its documented interface."


@dataclass(frozen=True)
class Response:
    """
    What came back: a status, a few headers, and the body as far as it came.

    :param truncated: why the body is not complete; None if it is.
    """

    status: int
    reason: str
    content_type: str
    location: str | None
    retry_after: float | None
    body: bytes
    truncated: str | None = None


@dataclass(frozen=True)
class Reply(Generic[T]):
    """
    The successful response to an operation, its body read.

    :param body: the body in the shape that was asked for.
    """

    operation: Operation
    response: Response
    auth: Authentication
    body: T

    def unexpected(self, why: str) -> CustodyError:
        """Return the error for a body that this service would not have sent."""
        return _not_this_service(self.operation, self.response, self.auth, why)

    def require_any_key(self, *keys: str) -> None:
        """
        Refuse a listing that has none of these keys, unless it is ``{}``.

        The service leaves out what is empty, so ``{}`` is an empty listing; ``{"status": "UP"}`` is someone else's.

        :raises CustodyError: if it has none of them.
        """
        if not cast("dict[str, Any]", self.body).keys() & set(keys) and _json(self.response.body) != {}:
            raise self.unexpected(f"it has no {keys[0]!r}")


def read_reply(operation: Operation, response: Response, shape: Any, auth: Authentication) -> Reply[Any]:
    """
    Return the reply that a response is.

    :param shape: the ``TypedDict`` that the body must fit, its unknown fields ignored; None: no body is needed.
    :raises CustodyError: as the status says, or if the body is truncated or does not fit.
    """
    if not 200 <= response.status < 300:
        raise _error_of_status(operation, response, auth)
    if response.truncated:
        raise _not_this_service(operation, response, auth, response.truncated, retryable=True)
    if shape is None:
        if response.body.strip() and not isinstance(_json(response.body), dict):
            # A gateway's page with status 200, say.
            raise _not_this_service(operation, response, auth, "its body is not a JSON object")
        return Reply(operation, response, auth, None)
    try:
        return Reply(operation, response, auth, _adapter(shape).validate_json(response.body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        why = "its body is empty" if not response.body else "its body is not JSON"
    else:
        place = ".".join(str(part) for part in first["loc"]) or "the body"
        why = f"{sanitize(place, 80)}: {sanitize(first['msg'], 80)}"
    raise _not_this_service(operation, response, auth, why)


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _error_of_status(operation: Operation, response: Response, auth: Authentication) -> CustodyError:
    """Return the error that a status other than 2xx stands for."""
    text, code, is_json = _error_text(response, auth)
    facts: dict[str, Any] = {
        "status": response.status,
        "error_code": code,
        "retry_after": response.retry_after,
        "from_gateway": bool(response.body) and not is_json,
    }
    if response.status < 400:
        target = f" to {response.location}" if response.location else ""
        return operation.failed(
            CustodyResponseError,
            f"the service redirects{target}; redirects are not followed",
            **facts,
            advice="The base URL must be the service's own.",
        )
    if response.status >= 500:
        error = operation.broken(text, **facts)
    elif response.status == _REQUEST_TIMEOUT:
        error = operation.unanswered(text, **facts)
    else:
        advice = operation.hints.get(response.status)
        if response.status == 401:
            advice = auth.advice
        elif response.status == 403 and operation.roles:
            facts["required_roles"] = operation.roles
            plural = "s" if len(operation.roles) > 1 else ""
            advice = f"The user needs the role{plural} {' and '.join(operation.roles)}."
        elif response.retry_after is not None:
            advice = f"The service asks to wait {response.retry_after:g} s."
        error = operation.failed(_ERROR_TYPES.get(response.status, CustodyRequestError), text, **facts, advice=advice)
    if error.not_offered and not operation.documented:
        error.advice = " ".join(filter(None, [error.advice, _MAYBE_NOT_OFFERED]))
    return error


def _not_this_service(
    operation: Operation, response: Response, auth: Authentication, why: str, retryable: bool | None = None
) -> CustodyError:
    """Return the error for a 2xx response that is not this service's: another program's, or a piece of one."""
    beginning = "" if operation.confidential else auth.redact(_text(response.body), 120)
    return operation.not_understood(
        f"this is not a response of the custody service: {why} (content type {response.content_type or 'not given'}, "
        f"{count(len(response.body), 'byte')}{', beginning ' + repr(beginning) if beginning else ''})",
        status=response.status,
        retryable=retryable,
        from_gateway=bool(response.body) and _json(response.body) is None,
    )


def _error_text(response: Response, auth: Authentication) -> tuple[str, str | None, bool]:
    """
    Return the message of an error body, its error code, and whether it is JSON.

    The service has two forms, flat and RPC; a gateway may send anything or nothing.
    """
    data = _json(response.body)
    if isinstance(data, dict):
        text = ": ".join(str(data[key]) for key in ("error", "message") if data.get(key))
        code = data.get("error_code")
        return auth.redact(text or _text(response.body)), auth.redact(code, 60) if code else None, True
    reason = response.reason or "no reason"
    if text := auth.redact(_text(response.body), 160):
        return f"{reason}; not the service's own words: {text!r}", None, data is not None
    return f"{reason}; the response has no body", None, False


def _text(body: bytes) -> str:
    # Far more than is ever quoted, and long enough to hold a whole token that must be redacted.
    return body[:65536].decode("utf-8", "replace")


def _json(body: bytes) -> Any:
    """Return the body as JSON; None if it is not. A body nested too deeply is not."""
    try:
        return _adapter(Any).validate_json(body)
    except ValidationError:
        return None
