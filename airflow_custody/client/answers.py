"""What the service's answers mean: statuses and bodies become values, or errors of the right type."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from airflow_custody.client.auth import Authentication
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
from airflow_custody.client.operations import Operation
from airflow_custody.client.text import readable
from airflow_custody.client.transport import Answer

T = TypeVar("T")

_KINDS: dict[int, type[CustodyError]] = {
    401: CustodyAuthenticationError,
    403: CustodyPermissionError,
    404: CustodyNotFoundError,
    409: CustodyConflictError,
    429: CustodyRateLimitError,
}
# The server or a gateway gave up waiting for the request: nobody knows how much of it arrived.
_REQUEST_TIMEOUT = 408


@cache
def _reader(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def check_status(operation: Operation, answer: Answer, auth: Authentication) -> None:
    """
    Raise the error that an answer's status stands for.

    :raises CustodyError: of the kind for the status, unless it is a 2xx.
    """
    if 200 <= answer.status < 300:
        return
    text, code, is_json = _what_was_said(answer, auth)
    facts: dict[str, Any] = {
        "status": answer.status,
        "error_code": code,
        "retry_after": answer.retry_after,
        "from_gateway": bool(answer.body) and not is_json,
    }
    if answer.status < 400:
        target = f" to {answer.location}" if answer.location else ""
        raise operation.failed(
            CustodyResponseError,
            f"the service redirects{target}; redirects are not followed",
            **facts,
            advice="The base URL must be the service's own.",
        )
    if answer.status >= 500:
        raise operation.broken(text, **facts)
    if answer.status == _REQUEST_TIMEOUT:
        raise operation.unanswered(text, **facts)
    advice = operation.hints.get(answer.status)
    if answer.status == 401:
        advice = auth.advice
    elif answer.status == 403 and operation.roles:
        facts["required_roles"] = operation.roles
        advice = f"The token's user needs the role{'s'[: len(operation.roles) > 1]} {' and '.join(operation.roles)}."
    elif answer.retry_after is not None:
        advice = f"The service asks to wait {answer.retry_after:g} s."
    raise operation.failed(_KINDS.get(answer.status, CustodyRequestError), text, **facts, advice=advice)


def read_body(operation: Operation, answer: Answer, shape: type[T], auth: Authentication) -> T:
    """
    Read the body of a 2xx answer.

    :param shape: the ``TypedDict`` the body must fit; unknown fields are ignored.
    :return: the body as that shape.
    :raises CustodyError: if the body is cut, empty, not JSON or does not fit.
    """
    if answer.cut:
        raise not_this_service(operation, answer, auth, answer.cut, retryable=True)
    try:
        return cast("T", _reader(cast("Any", shape)).validate_json(answer.body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            why = "its body is empty" if not answer.body else "its body is not JSON"
        else:
            place = ".".join(str(part) for part in first["loc"]) or "the body"
            why = f"{readable(place, 80)}: {readable(first['msg'], 80)}"
    raise not_this_service(operation, answer, auth, why)


def check_acknowledged(operation: Operation, answer: Answer, auth: Authentication) -> None:
    """
    Accept a 2xx answer that needs no body: an empty one or a JSON object.

    :raises CustodyError: if the body is something else, as a gateway's page with status 200 is.
    """
    if answer.cut:
        raise not_this_service(operation, answer, auth, answer.cut, retryable=True)
    if answer.body.strip() and not isinstance(_json(answer.body), dict):
        raise not_this_service(operation, answer, auth, "its body is not a JSON object")


def not_this_service(
    operation: Operation, answer: Answer, auth: Authentication, why: str, retryable: bool | None = None
) -> CustodyError:
    """Return the error for a 2xx answer that is not this service's: another program's, or a piece of one."""
    beginning = "" if operation.confidential else auth.shown(_text(answer.body), 120)
    return operation.not_understood(
        f"this is not an answer of the custody service: {why} (content type {answer.content_type or 'not given'}, "
        f"{len(answer.body)} bytes{', beginning ' + repr(beginning) if beginning else ''})",
        status=answer.status,
        retryable=retryable,
        from_gateway=bool(answer.body) and _json(answer.body) is None,
    )


def is_empty_object(answer: Answer) -> bool:
    """Tell whether the body is ``{}``."""
    return bool(_json(answer.body) == {})


def _what_was_said(answer: Answer, auth: Authentication) -> tuple[str, str | None, bool]:
    """
    Return the message of an error's body, its error code, and whether it is JSON.

    Two forms are published, flat and rpc; a gateway may send anything or nothing.
    """
    data = _json(answer.body)
    if isinstance(data, dict):
        words = ": ".join(str(data[key]) for key in ("error", "message") if data.get(key))
        code = data.get("error_code")
        return auth.shown(words or _text(answer.body)), auth.shown(code, 60) if code else None, True
    text = auth.shown(_text(answer.body), 160)
    if text:
        return (
            f"{answer.reason or 'no reason'}; not the service's own words: {text!r}",
            None,
            data is not None,
        )
    return f"{answer.reason or 'no reason'}; the answer has no body", None, False


def _text(body: bytes) -> str:
    # Far more than is ever shown, and long enough to hold a whole token that must be replaced.
    return body[:65536].decode("utf-8", "replace")


def _json(body: bytes) -> Any:
    """Return the body as JSON; None if it is not. A body nested too deeply is not."""
    try:
        return from_json(body)
    except ValueError:
        return None
