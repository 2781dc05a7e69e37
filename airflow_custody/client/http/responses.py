"""Responses: status and body become a value, or an error of the right type."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConflictError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyResponseError,
)
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.text import count, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings

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
_NO_SUCH_OBJECT = "It may not exist; or the service does not offer this operation, which is undocumented."
_MAYBE_NOT_OFFERED = "The service may not offer this operation: it is not part of its documented interface."
_GATEWAY = "A gateway in between may have sent this response."
# An error of a web framework: one text, and nothing that the service's own errors have beside it.
_ONE_TEXT = re.compile(rb'\s*\{\s*"(?:detail|error)"\s*:\s*"[^"\\]*"\s*\}\s*')
# Without "<" in the tag: a body of nothing but its beginnings would take long.
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_NO_JSON = object()


@dataclass(frozen=True)
class Response:
    """
    A response: its status, some headers, and the body as far as it came.

    :param truncated: why the body is not complete; None if it is.
    :param date: time of sending by its ``Date`` header; None if missing or unreadable.
    """

    status: int
    reason: str
    content_type: str
    location: str | None
    retry_after: float | None
    body: bytes
    truncated: str | None = None
    date: datetime | None = None

    @property
    def is_page(self) -> bool:
        """Whether the body is a page for people, which the service never sends."""
        return self.content_type.lower().startswith("text/html")

    @property
    def is_unknown_route(self) -> bool:
        """Whether another program says that it has no such path or method: in a page, or as Airflow itself does."""
        return self.status in (404, 405) and (self.is_page or _ONE_TEXT.fullmatch(self.body) is not None)

    @cached_property
    def data(self) -> Any:
        """The body as JSON data; a value of its own if it is not JSON, or nested too deeply."""
        try:
            return from_json(self.body, allow_inf_nan=False)
        except ValueError:
            return _NO_JSON

    @property
    def is_service_error(self) -> bool:
        """
        Whether the body is an error body of the service: flat, or of the RPC form.

        Both have a number ``code`` beside the ``message``; a gateway's has none. A redirect is never the service's.
        """
        data = self.data
        if self.status < 400 or not isinstance(data, dict):
            return False
        return isinstance(data.get("message"), str) and type(data.get("code")) is int

    @property
    def says_error(self) -> bool:
        """
        Whether the body says that something failed, whoever said it: no response that does is a success.

        It has an ``error`` or an ``error_code`` that is not empty, a ``code`` other than 0 beside a ``message``, or a
        ``success`` that is false.
        """
        data = self.data
        if not isinstance(data, dict):
            return False
        has_code = "message" in data and data.get("code") not in (None, False, "", "0", 0)
        return has_code or bool(data.get("error") or data.get("error_code")) or data.get("success") is False


@dataclass(frozen=True)
class Reply(Generic[T]):
    """
    The successful response to an operation, its body read.

    :param body: the body in the shape that was asked for.
    """

    operation: Operation
    response: Response
    auth: Authentication
    settings: ClientSettings
    body: T

    @property
    def says_nothing(self) -> bool:
        """Whether there is no body, or ``{}``: the service leaves out what is empty."""
        return not self.response.body.strip() or self.json == {}

    @property
    def json(self) -> Any:
        """The whole body as JSON; None if it is not JSON, or nested too deeply."""
        return None if self.response.data is _NO_JSON else self.response.data

    @property
    def is_error(self) -> bool:
        """Whether the body says that something failed, whatever the status says."""
        return self.response.says_error

    def unexpected(self, why: str) -> CustodyError:
        """Return the error for a body that this service would not have sent."""
        return _not_this_service(self.operation, self.response, self.auth, self.settings, why)

    def require_any_key(self, *keys: str) -> None:
        """
        Refuse a listing that has none of these keys, unless it is ``{}``.

        The service leaves out what is empty, so ``{}`` is an empty listing; ``{"status": "UP"}`` is someone else's.

        :raises CustodyError: if it has none of them.
        """
        if not cast("dict[str, Any]", self.body).keys() & set(keys) and self.json != {}:
            raise self.unexpected(f"it has no {keys[0]!r}")

    def require_unique_keys(self) -> None:
        """
        Refuse a body in which a key comes twice: the last one counts, and hides what the others say.

        For what decides that something is well; it reads the body a second time.

        :raises CustodyError: if a key does.
        """
        try:
            # Numbers are left as text: only the keys count.
            json.loads(self.response.body, object_pairs_hook=_refuse_repeated, parse_int=str, parse_float=str)
            return
        except ValueError as error:
            why = str(error)
        raise self.unexpected(why)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("it has a key twice in one object")


def read_reply(
    operation: Operation, response: Response, shape: Any, auth: Authentication, settings: ClientSettings
) -> Reply[Any]:
    """
    Return the reply that a response is.

    :param shape: the ``TypedDict`` that the body must fit, its unknown fields ignored; None: the caller judges it, and
        looks at :attr:`Reply.is_error`.
    :raises CustodyError: as the status says, or if the body is truncated, does not fit or says that something failed.
    """
    if not 200 <= response.status < 300:
        raise _error_of_status(operation, response, auth, settings)
    if response.truncated:
        raise _not_this_service(operation, response, auth, settings, response.truncated, retryable=True)
    if shape is None:
        return Reply(operation, response, auth, settings, None)
    if response.says_error:
        text, code = _error_text(operation, response, auth)
        raise operation.not_understood(
            f"the status says success, and the body an error: {text}",
            "response-unusable",
            status=response.status,
            error_code=code,
        )
    if response.data is _NO_JSON:
        why = "its body is empty" if not response.body else "its body is not JSON"
        raise _not_this_service(operation, response, auth, settings, why)
    try:
        return Reply(operation, response, auth, settings, _adapter(shape).validate_python(response.data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the body"
    # A place may be a key of the body, and a confidential operation quotes none.
    why = "its body has another shape" if operation.confidential else auth.redact(f"{place}: {first['msg']}", 160)
    raise _not_this_service(operation, response, auth, settings, why)


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)


def _error_of_status(
    operation: Operation, response: Response, auth: Authentication, settings: ClientSettings
) -> CustodyError:
    """Return the error that a status other than 2xx stands for."""
    text, code = _error_text(operation, response, auth)
    own = response.is_service_error
    facts: dict[str, Any] = {
        "status": response.status,
        "error_code": code,
        "retry_after": response.retry_after,
        "from_service": own,
    }
    if response.status < 400:
        target = f" to {auth.redact(response.location)}" if response.location and not operation.confidential else ""
        is_redirect = response.status >= 300
        return operation.failed(
            CustodyResponseError,
            f"the service redirects{target}; redirects are not followed"
            if is_redirect
            else f"it is no response: {text}",
            code="response-unusable",
            **facts,
            advice="The base URL must be the service's own.",
        )
    error = _typed_error(operation, response, auth, settings, text, facts)
    hints = [error.advice]
    if not own and response.is_unknown_route:
        hints.append(_other_program(response, settings))
    elif not own and response.status == 403 and response.is_page:
        hints.append(f"The page is a gateway's: have it let this call through, or check {settings.base_url_text}.")
    elif not own and (response.status == 401 or error.not_offered):
        hints.append(_GATEWAY)
    is_foreign = not own and (response.is_unknown_route or (response.status == 403 and response.is_page))
    code_of_hint: Any = "response-unusable" if is_foreign else None
    if error.not_offered and not operation.documented and not error.required_roles:
        # If a role is missing, the service offers it.
        is_about_object = response.status == 404 and operation.names_objects and own
        hints.append(_NO_SUCH_OBJECT if is_about_object else _MAYBE_NOT_OFFERED)
        code_of_hint = code_of_hint or (None if is_about_object else "not-offered")
    if code_of_hint and not isinstance(error, CustodyOutcomeUnknownError):
        error.code = code_of_hint
    error.advice = " ".join(filter(None, hints)) or None
    return error


def _typed_error(
    operation: Operation,
    response: Response,
    auth: Authentication,
    settings: ClientSettings,
    text: str,
    facts: dict[str, Any],
) -> CustodyError:
    """Return the error that a status from 400 on stands for, with what its status alone advises."""
    if response.status >= 500:
        return operation.broken(text, "service-failed", **facts)
    if response.status == _REQUEST_TIMEOUT:
        return operation.unanswered(text, "no-response", **facts)
    advice = operation.hints.get(response.status)
    if response.status == 401:
        advice = auth.advice
    elif response.status == 403 and operation.roles:
        facts["required_roles"] = operation.roles
        plural = "s" if len(operation.roles) > 1 else ""
        advice = f"{settings.user_text} needs the role{plural} {' and '.join(operation.roles)}."
    elif response.retry_after is not None:
        advice = f"The service asks to wait {response.retry_after:g} s."
    error_type = _ERROR_TYPES.get(response.status)
    return operation.refused_by_status(error_type or CustodyRequestError, text, advice=advice, **facts)


def _not_this_service(
    operation: Operation,
    response: Response,
    auth: Authentication,
    settings: ClientSettings,
    why: str,
    *,
    retryable: bool | None = None,
) -> CustodyError:
    """Return the error for a 2xx response that is not this service's: another program's, or a piece of one."""
    return operation.not_understood(
        f"this is not a response of the custody service: {why} ({_describe_body(operation, response, auth)})",
        "response-unusable",
        status=response.status,
        retryable=retryable,
        advice=None if response.truncated else _other_program(response, settings),
    )


def _other_program(response: Response, settings: ClientSettings) -> str:
    """Return what to do about a response that something else than the service sent."""
    verb = "is" if response.is_page else "may be"
    return f"Another program or a gateway {verb} there: check {settings.base_url_text}."


def _describe_body(operation: Operation, response: Response, auth: Authentication) -> str:
    """Describe a body that is not the service's: its type, its length, its first words; of a page, its title."""
    size = count(len(response.body), "byte")
    if operation.confidential:
        return f"{size}, not shown, as a secret may be in it"
    content_type = auth.redact(response.content_type, 80) or "not given"
    # All of it: a secret must not be cut before it is redacted.
    text = response.body.decode("utf-8", "replace")
    if response.is_page:
        # What is a secret as a whole may be none in pieces.
        title = _TITLE.search(auth.redact(text, len(text)))
        named = sanitize(title[1], 60) if title else ""
        return f"a web page, {named!r}" if named else f"a web page of {size}"
    beginning = auth.redact(text, 120)
    return f"content type {content_type}, {size}{', beginning ' + repr(beginning) if beginning else ''}"


def _error_text(operation: Operation, response: Response, auth: Authentication) -> tuple[str, str | None]:
    """
    Return the message of an error body, and its error code.

    The service has two forms, flat and RPC; a gateway may send anything or nothing. Of what is neither, only the first
    words are quoted; and nothing at all if the operation is confidential.
    """
    if operation.confidential:
        return f"the response is an error ({_describe_body(operation, response, auth)})", None
    data = response.data if isinstance(response.data, dict) else {}
    texts = [text for text in (data.get("error"), data.get("message")) if isinstance(text, str) and text]
    if len(texts) > 1 and _letters(texts[1]).startswith(_letters(texts[0])):
        # "PermissionDenied: permission denied: ..."
        del texts[0]
    code = data.get("error_code")
    if texts:
        return auth.redact(": ".join(texts)), auth.redact(code, 60) if isinstance(code, str) and code else None
    reason = auth.redact(response.reason, 60) or "no reason"
    if response.body.strip():
        return f"{reason}: not the service's own words, but {_describe_body(operation, response, auth)}", None
    return f"{reason}; the response has no body", None


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text[:200])).casefold()
