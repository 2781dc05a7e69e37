"""Responses of the service: they become a value or an error, by status and body."""

from __future__ import annotations

import codecs
import math
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import requests
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator
from urllib3.exceptions import InvalidHeader
from urllib3.util.retry import Retry

from airflow_custody.client.auth import Authentication
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
from airflow_custody.client.http.operation import Operation, missing_roles
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


#: The largest count: larger numbers are not exact in every JSON reader.
MAX_COUNT = 2**53 - 1
# A whole number in its shortest form, with at most as many digits as MAX_COUNT.
_COUNT = re.compile("0|[1-9][0-9]{0,15}")
# No id contains white space or another character that is not visible in ASCII.
_ID = re.compile("[!-~]{1,200}")


def is_id(text: str) -> bool:
    """Tell whether a text can be an id."""
    return _ID.fullmatch(text) is not None


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
_OFFER_ADVICE = {
    "": "",
    # _NO_ROLE_NAMED, the advice on the refusal, already mentions this.
    "refused, maybe not offered": "",
    "no such object": "It may not exist, or the service may not offer this undocumented operation.",
    "maybe not offered": "The service may not offer this operation: it is not part of its documented interface.",
    # The base URL is probably wrong.
    "unknown path": "The service does not know this path: check {url}.",
}
_NO_ROLE_NAMED = (
    "The refusal names no role: the operation may be disabled for this tenant, or the object may not be visible to "
    "this user."
)
# The published text of a refusal about roles, which may be part of a longer text. Any one of the roles suffices.
_ROLES_REQUIRED = re.compile(r"one of the '([^']*)' role is required")
_ROLE_NAME = re.compile(r"[a-z]{1,60}")
_MAX_ROLES = 20
_ERROR_ID = re.compile(r"[A-Za-z0-9._-]{1,80}")
# The pattern allows no "<" in the tag. Otherwise, searching a body with many unclosed tags would take long.
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Observation:
    """
    An observation of one exchange with the service: the response, its connection and the peer's clock.

    :param status: the HTTP status of the response; None: there was no response.
    :param received_at: time of the response or the failure, by this machine's clock.
    :param date: time of sending by its ``Date`` header; None if missing or unreadable.
    :param tls_version: the TLS version; empty: the connection has no TLS, or its version is not known.
    :param certificate_ends: expiry of the peer's certificate; None if it is not known, for example because certificates
        are not verified.
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
        Return the observation of a response.

        :param response: the response. Its body must be unread, because reading it may close the connection.
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
    :param data: the body as JSON data; not in its ``repr`` either.
    :param no_json: the reason why the body is not JSON, is nested too deeply, repeats a key, or has too many values;
        empty if it is usable.
    :param truncated: why the body is not complete; None if it is.
    :param date_header: its ``Date`` header; None if missing.
    """

    status: int
    reason: str
    content_type: str
    location: str | None
    retry_after: float | None
    body: bytes = field(repr=False)
    data: Any = field(repr=False)
    no_json: str
    truncated: str | None
    date_header: str | None

    @property
    def date(self) -> datetime | None:
        """The time of sending by the service's clock, in UTC; None if missing or unreadable."""
        return parse_date(self.date_header)

    @property
    def is_service_error(self) -> bool:
        """
        Whether the body is an error body of the service.

        The service has two forms of error bodies, flat and RPC. Both have a numeric ``code`` beside the ``message``; a
        gateway's body does not. A redirect never comes from the service itself.
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
    def says_nothing(self) -> bool:
        """
        Whether there is no body, or an empty object.

        An empty object says nothing, because the service leaves out empty values.
        """
        return not self.body.strip() or self.data == {}


@cache
def _validator(shape: Any) -> SchemaValidator:
    return SchemaValidator(_failing_fast(TypeAdapter(shape).core_schema))


def _failing_fast(schema: Any) -> Any:
    """
    Return a schema of pydantic whose lists report only their first fault.

    Each reported fault takes about a kilobyte of memory, but only the first fault is used.
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
            checks the body, including :attr:`Response.says_error`.
        :raises CustodyError: if the status is not a success (the type of the error depends on the status), or if the
            body is truncated, does not fit the shape or reports a failure.
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
        if response.no_json:
            raise self.unexpected(response.no_json)
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

        An empty object is an empty listing, because the service leaves out empty values. Any other object without these
        keys comes from another program, for example ``{"status": "UP"}``.

        :raises CustodyError: if the body is not empty, and has none of these keys.
        """
        if not self.response.data.keys() & set(keys) and self.response.data != {}:
            raise self.unexpected(f"it has no {keys[0]!r}")

    def rows(self, key: str, *others: str) -> list[tuple[str, Any]]:
        """
        Return the rows of a page of a listing, each with its id.

        :param key: the key of the rows.
        :param others: the other keys of a page. A page without rows must have one of them, or be empty: see
            :meth:`require_any_key`.
        :raises CustodyError: if the page has none of these keys, or the id of a row is missing or unusable.
        """
        self.require_any_key(key, *others)
        rows = self.body.get(key) or []  # type: ignore[attr-defined]
        given = [row.get("id") for row in rows]
        ids = [str(each) if type(each) in (str, int) else "" for each in given]
        if not all(map(is_id, ids)):
            raise self.unexpected("a row has no usable 'id'")
        return list(zip(ids, rows, strict=True))

    def count(self, name: str) -> int | None:
        """
        Return a number that the service has counted; None: it is absent.

        :param name: the key of the number.
        :raises CustodyError: if it is not a whole number in its shortest form, or too large to be exact.
        """
        value = self.body.get(name)  # type: ignore[attr-defined]
        if value is None:
            return None
        text = str(value) if type(value) in (int, str) else ""
        if not _COUNT.fullmatch(text) or int(text) > MAX_COUNT:
            raise self.unexpected(f"its {name!r} is not a number")
        return int(text)

    def _status_error(self) -> CustodyError:
        """Return the error for a status other than 2xx."""
        operation, response = self.operation, self.response
        status = response.status
        if status < 200:
            # A server is processing the request, so a create may still be carried out.
            return self.unexpected("it is not a final response")
        if status < 400:
            return self._redirect()
        own = response.is_service_error
        meaning = _MEANINGS.get(status, _SERVER_FAILED if status >= 500 else _REQUEST_REFUSED)
        # A gateway's refusal does not prove that nothing was created.
        is_refused = meaning.is_refusal and (own or not operation.creates)
        is_outcome_unknown = not is_refused and not operation.is_repeatable
        roles = self._required_roles()
        offer = self._offer(roles)
        text, error_code = self._error_text()
        facts: dict[str, Any] = {
            "status": status,
            "error_code": error_code,
            "error_id": self._error_id,
            "retry_after": response.retry_after,
            "from_service": own,
            "required_roles": roles,
        }
        advice = [self._advice_on_refusal(roles)] if meaning.is_refusal else []
        if status in (401, *NOT_OFFERED_STATUSES) and not own:
            advice.append(self._other_program())
        advice.append(_OFFER_ADVICE[offer].format(url=self.settings.base_url_text))
        facts["advice"] = " ".join(filter(None, advice)) or None
        if is_outcome_unknown:
            return operation.outcome_unknown(text, **facts)
        code = meaning.code
        if status in (403, 404, 405) and not own:
            # A program other than the service may have refused the operation.
            code = "response-unusable"
        elif offer.endswith("maybe not offered"):
            code = "not-offered"
        elif roles:
            code = "role-missing"
        return operation.failed(meaning.error_type, text, code=code, **facts)

    def _redirect(self) -> CustodyError:
        """Return the error for a redirect."""
        is_quoted = self.response.location and not self.operation.confidential
        target = f" to {self.auth.redact(self.response.location)}" if is_quoted else ""
        return self.operation.failed(
            CustodyResponseError,
            f"the service redirects{target}; redirects are not followed",
            code="response-unusable",
            status=self.response.status,
            error_code=self._error_text()[1],
            retry_after=self.response.retry_after,
            advice="The base URL must be the service's own.",
        )

    def _required_roles(self) -> tuple[str, ...]:
        """Return the roles of which the user needs one; empty: this is not the service's own refusal about roles."""
        if self.response.status != 403 or not self.response.is_service_error:
            return ()
        return tuple(self.auth.redact(each, 60) for each in parse_required_roles(self.response.data["message"]))

    def _offer(self, roles: Sequence[str]) -> str:
        """
        Return a key of ``_OFFER_ADVICE``: what an error status reveals about whether the service offers the operation.

        :param roles: the roles that the service names in its refusal.
        """
        operation, status, own = self.operation, self.response.status, self.response.is_service_error
        if status == 403:
            # The 403 is a refusal, unless this package can do without the operation.
            return "refused, maybe not offered" if operation.optional and own and not roles else ""
        if status in NOT_OFFERED_STATUSES and not operation.documented:
            is_about_object = status == 404 and own and operation.names_objects
            return "no such object" if is_about_object else "maybe not offered"
        if status == 404 and not operation.names_objects and 404 not in operation.hints:
            return "unknown path"
        return ""

    def _advice_on_refusal(self, roles: Sequence[str]) -> str | None:
        """
        Return advice about a refusal, by its status.

        :param roles: the roles of which the user needs one, if the service itself refuses for lack of a role.
        """
        response = self.response
        if response.status == 401:
            return self.auth.advice
        if roles:
            needed = f"the role {roles[0]}" if len(roles) == 1 else f"one of the roles {', '.join(roles)}"
            others = missing_roles(self.operation.roles, roles)
            also = f" This operation also needs {' and '.join(others)}." if others else ""
            return f"{self.settings.user_text} needs {needed}.{also}"
        if response.status == 403 and response.is_service_error:
            return _NO_ROLE_NAMED
        if response.retry_after is not None:
            return f"The service requests a wait of {response.retry_after:g} s."
        return self.operation.hints.get(response.status)

    @property
    def _error_id(self) -> str | None:
        """
        The id of this particular error, from the service's error body; None: it has no id.

        Text in any other form than an id's is ignored, because it may repeat a secret.
        """
        details = self.response.data.get("details") if self.response.is_service_error else None
        ids = [each.get("id") for each in details if isinstance(each, dict)] if isinstance(details, list) else []
        texts = [str(each) for each in ids if type(each) in (str, int)]
        found = next(filter(_ERROR_ID.fullmatch, texts), None)
        return self.auth.redact(found, 80) if found else None

    def _other_program(self) -> str:
        """Return advice about a response from another program."""
        return f"Another program or a gateway may have sent this: check {self.settings.base_url_text}."

    def _describe_body(self) -> str:
        """
        Describe a body that is not the service's.

        The description has the body's type, length and first words; for a web page, its title.
        """
        response, size = self.response, count(len(self.response.body), "byte")
        if response.body.startswith(codecs.BOM_UTF8):
            size += " starting with a byte order mark, which JSON does not allow"
        if self.operation.confidential:
            return f"{size}, not shown: it may contain a secret"
        # Decode the whole body, because secrets must be redacted before the text is cut.
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

        The service's error bodies have two forms, flat and RPC. A body of any other form may come from a gateway, so
        only its first words are quoted. If the operation is confidential, at most the service's own refusal is quoted.
        """
        response, operation = self.response, self.operation
        is_quoted_refusal = operation.quotes_refusals and response.is_service_error and response.status < 500
        if operation.confidential and not is_quoted_refusal:
            return f"error response ({self._describe_body()})", None
        data = response.data if isinstance(response.data, dict) else {}
        texts = [data[key] for key in ("error", "message") if _is_given_text(data.get(key))]
        if not texts:
            reason = self.auth.redact(response.reason, 60) or "no reason"
            if not response.body.strip():
                return f"{reason}; the response has no body", None
            return f"{reason}: not an error of the service, but {self._describe_body()}", None
        text = ": ".join(texts)
        if operation.confidential:
            text = shorten_urls(text)
        code = data.get("error_code")
        return self.auth.redact(text), self.auth.redact(code, 60) if _is_given_text(code) else None


def _is_given_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
