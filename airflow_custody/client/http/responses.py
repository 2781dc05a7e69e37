"""Responses: status and body become a value or an error."""

from __future__ import annotations

import codecs
import math
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import requests
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator
from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    NOT_OFFERED_STATUSES,
    CustodyAuthenticationError,
    CustodyConflictError,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
)
from airflow_custody.client.http.authentication import Authentication
from airflow_custody.client.http.operation import OUTCOME_UNKNOWN_ADVICE, Operation, missing_roles
from airflow_custody.client.json_text import TooManyValuesError, check_structure, read_json
from airflow_custody.client.secrets import shorten_urls
from airflow_custody.client.text import count, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings

T = TypeVar("T")


def parse_required_roles(message: str) -> tuple[str, ...]:
    """
    Return the roles that a refusal (403) names, in lower case; the user needs any one of them.

    :param message: the message of the service's error body.
    :return: the roles, at most 20; empty: the refusal is not about roles.
    """
    found = _ROLES_REQUIRED.search(message)
    names = [each.strip() for each in found[1].split("-")] if found else []
    return tuple(dict.fromkeys(filter(_ROLE_NAME.fullmatch, names)))[:_MAX_ROLES]


@dataclass(frozen=True)
class _StatusMeaning:
    """
    The meaning of an error status.

    :param error_type: type of the error.
    :param code: code of the error, if the service itself responds with this status to a documented operation.
    :param is_refusal: whether this status, from the service itself, means that nothing was done. Otherwise, the
        operation may have been carried out.
    """

    error_type: type[CustodyError]
    code: ErrorCode
    is_refusal: bool = True


# The server or a gateway gave up on the request. The service itself also uses these statuses (for gRPC's "deadline
# exceeded" and "canceled"). The outcome is unknown.
_GIVEN_UP = _StatusMeaning(CustodyConnectionError, "no-response", is_refusal=False)
_SERVER_FAILED = _StatusMeaning(CustodyServerError, "service-failed", is_refusal=False)
_REQUEST_REFUSED = _StatusMeaning(CustodyRequestError, "request-refused")
# All other statuses from 400 on: _SERVER_FAILED from 500 on, and _REQUEST_REFUSED below.
_MEANINGS = {
    401: _StatusMeaning(CustodyAuthenticationError, "credentials-refused"),
    403: _StatusMeaning(CustodyPermissionError, "request-refused"),
    404: _StatusMeaning(CustodyNotFoundError, "not-found"),
    408: _GIVEN_UP,
    409: _StatusMeaning(CustodyConflictError, "request-refused"),
    429: _StatusMeaning(CustodyRateLimitError, "rate-limited"),
    499: _GIVEN_UP,
}
_NO_SUCH_OBJECT = "It may not exist, or the service may not offer this undocumented operation."
_NO_ROLE_NAMED = (
    "The refusal names no role: the operation may be disabled for this tenant, or the object may not be visible to "
    "this user."
)
# The published text of a refusal about roles, which may be part of a longer text. Any one of the roles suffices.
_ROLES_REQUIRED = re.compile(r"one of the '([^']*)' role is required")
_ROLE_NAME = re.compile(r"[a-z]{1,60}")
_MAX_ROLES = 20
_ERROR_ID = re.compile(r"[A-Za-z0-9._-]{1,80}")
_MAYBE_NOT_OFFERED = "The service may not offer this operation: it is not part of its documented interface."
# The pattern allows no "<" in the tag, because searching a body with many unclosed tags would take long.
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_NO_JSON = object()


@dataclass(frozen=True)
class Observation:
    """
    An observation of one exchange with the service.

    It covers the response, its connection and the peer's clock.

    :param status: the HTTP status of its response; None: there was none.
    :param received_at: time of the response or the failure, by this machine's clock.
    :param date: time of sending by its ``Date`` header; None if missing or unreadable.
    :param tls_version: the TLS version; empty: there is none, or it is not known.
    :param certificate_ends: expiry of the peer's certificate; None if it is not known, such as without
        verification.
    :param is_complete: whether the response was read to its end. For an error (400 or above), the status is enough.
        Default True.
    :param operation: name of the operation. Default empty: not known.
    """

    status: int | None
    received_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    date: datetime | None = None
    tls_version: str = ""
    certificate_ends: datetime | None = None
    is_complete: bool = True
    operation: str = ""

    @classmethod
    def of(cls, response: requests.Response) -> Observation:
        """
        Return an observation of a response whose body is unread.

        :param response: the response.
        """
        found = getattr(getattr(response.raw, "connection", None), "sock", None)
        version, ends = "", None
        if isinstance(found, ssl.SSLSocket):
            version = found.version() or ""
            # Without TLS verification, Python does not return the certificate's content.
            with suppress(KeyError, TypeError, ValueError, OverflowError, OSError):
                seconds = ssl.cert_time_to_seconds(found.getpeercert()["notAfter"])  # type: ignore[index, arg-type]
                ends = datetime.fromtimestamp(seconds, tz=timezone.utc)
        date = parse_date(response.headers.get("Date"))
        return cls(response.status_code, date=date, tls_version=version, certificate_ends=ends)


Observer = Callable[[Observation], None]


def parse_date(text: str | None) -> datetime | None:
    """Return the time of a ``Date`` header, in UTC; None if unreadable."""
    try:
        date = parsedate_to_datetime(text) if text else None
        return date.astimezone(timezone.utc) if date is not None and date.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def parse_retry_after(header: str) -> float | None:
    """Return a ``Retry-After`` in seconds; None if it cannot be read."""
    try:
        seconds = float(Retry().parse_retry_after(header))
    except (InvalidHeader, ValueError, TypeError, OverflowError, IndexError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


@dataclass(frozen=True)
class Response:
    """
    A response: its status, some headers, and the received body.

    :param body: the body; not in its ``repr``, because it may hold a token.
    :param max_bytes: maximum size of the body in bytes; it also limits the number of values in it.
    :param truncated: why the body is not complete; None if it is.
    :param date: time of sending by its ``Date`` header; None if missing or unreadable.
    """

    status: int
    reason: str
    content_type: str
    location: str | None
    retry_after: float | None
    body: bytes = field(repr=False)
    max_bytes: int
    truncated: str | None = None
    date: datetime | None = None

    @cached_property
    def data(self) -> Any:
        """
        The body as JSON data.

        If the body is not JSON, nested too deeply, or has too many values, the value is ``_NO_JSON``.
        """
        try:
            return read_json(self.body, self.max_bytes)
        except ValueError:
            return _NO_JSON

    @property
    def no_json_reason(self) -> str:
        """The reason why the body is not JSON data."""
        try:
            check_structure(self.body, self.max_bytes)
        except TooManyValuesError as error:
            return str(error)
        return "its body is not JSON" if self.body else "its body is empty"

    @property
    def is_service_error(self) -> bool:
        """
        Whether the body is an error body of the service.

        The service has two forms of error bodies, flat and RPC. Both have a numeric ``code`` beside the ``message``; a
        gateway's body does not. A redirect is never from the service.
        """
        data = self.data
        if self.status < 400 or not isinstance(data, dict):
            return False
        return isinstance(data.get("message"), str) and type(data.get("code")) is int

    @property
    def says_error(self) -> bool:
        """
        Whether the body reports a failure, from the service or another program.

        A response with such a body is never a success.

        The body has a non-empty ``error``, ``errors`` or ``error_code``, a ``code`` other than 0 and 200 beside a
        ``message``, or a ``success`` that is false.
        """
        data = self.data
        if not isinstance(data, dict):
            return False
        has_code = "message" in data and data.get("code") not in (None, False, "", "0", 0, "200", 200)
        has_error = any(data.get(name) for name in ("error", "errors", "error_code"))
        return has_code or has_error or data.get("success") is False

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON."""
        return self.data is not _NO_JSON

    @property
    def says_nothing(self) -> bool:
        """
        Whether there is no body, or an empty object.

        The service leaves out empty values.
        """
        return not self.body.strip() or self.data == {}


@cache
def _validator(shape: Any) -> SchemaValidator:
    return SchemaValidator(_failing_fast(TypeAdapter(shape).core_schema))


def _failing_fast(schema: Any) -> Any:
    """
    Return a schema of pydantic whose lists report only their first fault.

    One fault takes about a kilobyte, and only the first fault is used.
    """
    if isinstance(schema, list):
        return [_failing_fast(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"fail_fast": True} if schema.get("type") == "list" else {}
    return {**{name: _failing_fast(each) for name, each in schema.items()}, **more}


@dataclass
class Reply(Generic[T]):
    """The response to an operation, and its body or error."""

    operation: Operation
    response: Response
    auth: Authentication
    settings: ClientSettings
    #: The body in the expected shape; not in the ``repr``, because it may hold a token.
    body: T = field(default=None, repr=False)  # type: ignore[assignment]

    def read(self, shape: Any) -> Reply[T]:
        """
        Read the body.

        :param shape: the ``TypedDict`` or model that the body must fit; unknown fields are ignored. None: the caller
            checks the body, and must check :attr:`Response.says_error`.
        :raises CustodyError: according to the status, or if the body is truncated, does not fit or reports a failure.
        """
        response = self.response
        if not 200 <= response.status < 300:
            raise self._status_error()
        if response.truncated:
            raise self.unexpected(response.truncated)
        if shape is None:
            return self
        if response.says_error:
            text, code = self._error_text()
            raise self.operation.after_sending(
                CustodyResponseError,
                f"the status is a success, but the body reports an error: {text}",
                code="response-unusable",
                status=response.status,
                error_code=code,
            )
        if response.data is _NO_JSON:
            raise self.unexpected(response.no_json_reason)
        try:
            self.body = _validator(shape).validate_python(response.data)
            return self
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the body"
        # The place may be a key of the body, which a confidential operation must not quote.
        is_quoted = not self.operation.confidential
        raise self.unexpected(
            self.auth.redact(f"{place}: {first['msg']}", 160) if is_quoted else "its body has an unexpected form"
        )

    def unexpected(self, why: str) -> CustodyError:
        """
        Return the error for an unusable 1xx or 2xx response.

        The response comes from another program, is truncated, or is not final.
        """
        return self.operation.after_sending(
            CustodyResponseError,
            f"this is not a response of the custody service: {why} ({self._describe_body()})",
            code="response-unusable",
            status=self.response.status,
            retryable=True if self.response.truncated else None,
            advice=None if self.response.truncated else self._other_program(),
        )

    def require_any_key(self, *keys: str) -> None:
        """
        Refuse a listing without any of these keys.

        An empty object is an empty listing, because the service leaves out empty values. ``{"status": "UP"}`` is from
        another program.

        :raises CustodyError: if it has none of these keys.
        """
        if not self.response.data.keys() & set(keys) and self.response.data != {}:
            raise self.unexpected(f"it has no {keys[0]!r}")

    def require_unique_keys(self) -> None:
        """
        Refuse a body in which a key is repeated.

        Python keeps only the last value of a repeated key, and other parsers may keep another.

        Use it where the body proves success. It reads the body a second time.

        :raises CustodyError: if a key is repeated.
        """
        try:
            read_json(self.response.body, self.response.max_bytes, unique_keys=True)
            return
        except ValueError as error:
            why = str(error)
        raise self.unexpected(why)

    def _status_error(self) -> CustodyError:
        """Return the error for a status other than 2xx."""
        status = self.response.status
        if status < 200:
            # A server is processing the request, so a create may still be carried out.
            return self.unexpected("it is not a final response")
        if status < 400:
            return self._redirect()
        operation, own = self.operation, self.response.is_service_error
        default = _SERVER_FAILED if status >= 500 else _REQUEST_REFUSED
        meaning = _MEANINGS.get(status, default)
        # A gateway's refusal does not prove that nothing was created.
        is_refused = meaning.is_refusal and (own or not operation.creates)
        is_outcome_unknown = not is_refused and not operation.is_repeatable
        text, error_code = self._error_text()
        advice = [
            self._advice_on_refusal() if meaning.is_refusal else None,
            OUTCOME_UNKNOWN_ADVICE if is_outcome_unknown else None,
            self._advice_on_sender(),
            self._advice_on_offer(),
        ]
        facts: dict[str, Any] = {
            "status": status,
            "error_code": error_code,
            "error_id": self._error_id,
            "retry_after": self.response.retry_after,
            "from_service": own,
            "required_roles": self._required_roles,
            "advice": " ".join(filter(None, advice)) or None,
        }
        if is_outcome_unknown:
            return operation.outcome_unknown(text, **facts)
        return operation.failed(meaning.error_type, text, code=self._error_code(meaning), **facts)

    def _redirect(self) -> CustodyError:
        """Return the error for a redirect."""
        _, error_code = self._error_text()
        is_quoted = self.response.location and not self.operation.confidential
        target = f" to {self.auth.redact(self.response.location)}" if is_quoted else ""
        return self.operation.failed(
            CustodyResponseError,
            f"the service redirects{target}; redirects are not followed",
            code="response-unusable",
            status=self.response.status,
            error_code=error_code,
            retry_after=self.response.retry_after,
            advice="The base URL must be the service's own.",
        )

    # The parts of the error for a status from 400 on.

    @property
    def _required_roles(self) -> tuple[str, ...]:
        """The roles of which the user needs one, if the service itself refuses the operation for lack of a role."""
        if self.response.status != 403 or not self.response.is_service_error:
            return ()
        return tuple(self.auth.redact(each, 60) for each in parse_required_roles(self.response.data["message"]))

    @property
    def _is_other_refusal(self) -> bool:
        """Whether the service itself refuses the operation (403), but not for lack of a role."""
        return self.response.status == 403 and self.response.is_service_error and not self._required_roles

    @property
    def _error_id(self) -> str | None:
        """
        The id of this one error in the service's error body.

        It is returned only in a form that is certainly an id, because any response may repeat a secret.
        """
        details = self.response.data.get("details") if self.response.is_service_error else None
        ids = [each.get("id") for each in details if isinstance(each, dict)] if isinstance(details, list) else []
        texts = [str(each) for each in ids if type(each) in (str, int)]
        found = next(filter(_ERROR_ID.fullmatch, texts), None)
        return self.auth.redact(found, 80) if found else None

    @property
    def _is_foreign_refusal(self) -> bool:
        """Whether a program other than the service may have refused the operation."""
        return self.response.status in (403, 404, 405) and not self.response.is_service_error

    @property
    def _is_about_object(self) -> bool:
        """Whether the service itself reports that an object does not exist."""
        return self.response.status == 404 and self.response.is_service_error and self.operation.names_objects

    @property
    def _is_maybe_not_offered(self) -> bool:
        """
        Whether it is possible that the service does not offer the operation.

        A 403 is a refusal, unless this package can do without the operation.
        """
        if self.response.status == 403:
            return self.operation.optional and self._is_other_refusal
        return self.response.status in NOT_OFFERED_STATUSES and not self.operation.documented

    @property
    def _is_unknown_path(self) -> bool:
        """
        Whether a documented path does not exist.

        If so, the base URL is probably wrong.
        """
        is_documented = self.operation.documented and not self.operation.names_objects
        return self.response.status == 404 and is_documented and 404 not in self.operation.hints

    def _error_code(self, meaning: _StatusMeaning) -> ErrorCode:
        if self._is_foreign_refusal:
            return "response-unusable"
        if self._is_maybe_not_offered and not self._is_about_object:
            return "not-offered"
        return "role-missing" if self._required_roles else meaning.code

    def _advice_on_refusal(self) -> str | None:
        """Return advice about a refusal, by its status."""
        if self.response.status == 401:
            return self.auth.advice
        if roles := self._required_roles:
            needed = f"the role {roles[0]}" if len(roles) == 1 else f"one of the roles {', '.join(roles)}"
            others = missing_roles(self.operation.roles, roles)
            also = f" This operation also needs {' and '.join(others)}." if others else ""
            return f"{self.settings.user_text} needs {needed}.{also}"
        if self._is_other_refusal:
            return _NO_ROLE_NAMED
        if self.response.retry_after is not None:
            return f"The service requests a wait of {self.response.retry_after:g} s."
        return self.operation.hints.get(self.response.status)

    def _advice_on_sender(self) -> str | None:
        """Return advice about a status that another program may have sent."""
        is_telling = self.response.status in (401, *NOT_OFFERED_STATUSES)
        return self._other_program() if is_telling and not self.response.is_service_error else None

    def _advice_on_offer(self) -> str | None:
        """Return advice about an operation that the service may not offer."""
        if self._is_unknown_path:
            return f"The service does not know this path: check {self.settings.base_url_text}."
        if not self._is_maybe_not_offered:
            return None
        if self.response.status == 403:
            # The advice on the refusal says so.
            return None
        return _NO_SUCH_OBJECT if self._is_about_object else _MAYBE_NOT_OFFERED

    def _other_program(self) -> str:
        """Return advice about a response from another program."""
        return f"Another program or a gateway may have sent this: check {self.settings.base_url_text}."

    def _describe_body(self) -> str:
        """
        Describe a body that is not the service's.

        The text has its type, its length and its first words; for a web page, its title.
        """
        response, size = self.response, count(len(self.response.body), "byte")
        if response.body.startswith(codecs.BOM_UTF8):
            size += " starting with a byte order mark, which JSON does not allow"
        if self.operation.confidential:
            return f"{size}, not shown: it may contain a secret"
        # Decode all of it, because a secret must be redacted before the text is cut.
        text = response.body.decode("utf-8", "replace")
        if response.content_type.lower().startswith("text/html"):
            # Redact first, because a part of a secret would not be recognized.
            title = _TITLE.search(self.auth.redact(text, len(text)))
            named = sanitize(title[1], 60) if title else ""
            return f"a web page, {named!r}" if named else f"a web page of {size}"
        content_type = self.auth.redact(response.content_type, 80) or "not given"
        beginning = self.auth.redact(text, 120)
        return f"content type {content_type}, {size}{', beginning ' + repr(beginning) if beginning else ''}"

    def _error_text(self) -> tuple[str, str | None]:
        """
        Return the message of an error body, and its error code.

        The service has two forms, flat and RPC. A gateway may send anything or nothing: only the first words of
        another form are quoted. If the operation is confidential, only the service's own refusal may be quoted.
        """
        if not self._may_quote_error:
            return f"error response ({self._describe_body()})", None
        data = self.response.data if isinstance(self.response.data, dict) else {}
        texts = [data[key] for key in ("error", "message") if _is_given_text(data.get(key))]
        if not texts:
            return self._describe_other_error(), None
        text = ": ".join(texts)
        if self.operation.confidential:
            text = shorten_urls(text)
        code = data.get("error_code")
        return self.auth.redact(text), self.auth.redact(code, 60) if _is_given_text(code) else None

    @property
    def _may_quote_error(self) -> bool:
        """Whether a message may quote an error body."""
        if not self.operation.confidential:
            return True
        is_refusal = self.response.is_service_error and self.response.status < 500
        return self.operation.quotes_refusals and is_refusal

    def _describe_other_error(self) -> str:
        """Describe an error whose body has neither of the service's forms."""
        reason = self.auth.redact(self.response.reason, 60) or "no reason"
        if not self.response.body.strip():
            return f"{reason}; the response has no body"
        return f"{reason}: not an error of the service, but {self._describe_body()}"


def _is_given_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
