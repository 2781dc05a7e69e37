"""
The errors of this package, by type.

::

    CustodyError
    ├── CustodyConfigurationError    a setting is missing or wrong; nothing is sent
    ├── CustodyRequestError          the request is wrong: refused before sending, or 400, 422
    │   └── WhitelistFileError       a whitelist file is wrong, or cannot be read; nothing is sent
    ├── CustodyAuthenticationError   401, or an expired JWT, in which case nothing is sent
    ├── CustodyPermissionError       403
    ├── CustodyNotFoundError         404
    ├── CustodyConflictError         409
    ├── CustodyRateLimitError        429; retryable
    ├── CustodyServerError           5xx to an operation that is safe to repeat; retryable
    ├── CustodyConnectionError       no connection, or no response to an operation that is safe to repeat
    ├── CustodyOutcomeUnknownError   a create or a signature was sent and may have been carried out
    ├── CustodyResponseError         a response that cannot be understood, or a redirect
    ├── CustodyVerificationError     signatures do not prove the service's data
    └── CustodyUnhealthyError        the service responded, and is not healthy; retryable

Each error has a ``code``, which is stable and names the cause; the documentation's page of error codes explains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from airflow_custody.client.error_codes import ErrorCode, known_code, label
from airflow_custody.client.text import lines, sanitize, sentences

if TYPE_CHECKING:
    from typing_extensions import Self

#: Statuses that may mean that an operation is not offered. A 403 also has other causes: see
#: ``CustodyError.not_offered``.
NOT_OFFERED_STATUSES = (403, 404, 405, 501)


class CustodyError(Exception):
    """
    The base of all errors of this package.

    ``str(error)`` is for people. Its lines are the operation and the failure, the advice, and ``[custody/CODE]``.
    Programs use the type and the attributes, never the text. Neither the text nor an attribute ever contains a secret.
    An error never changes: :meth:`with_facts` returns a copy with other attributes.

    :param message: description of the failure, in the service's own words if it sent any.
    :param operation: name of the operation (``"create whitelisting request"``).
    :param method: HTTP method; None if the error has nothing to do with a request.
    :param path: path below ``/api/rest/v1``; None if the error has nothing to do with a request.
    :param status: HTTP status of the response; None if there was none.
    :param error_code: the service's own code (``E900-...``), if the response had one. Not to be confused with ``code``.
    :param retry_after: seconds that the service requests before the next call; None if it requests none.
    :param error_id: the service's id of this particular error, if the response had one. The vendor's support asks for
        it.
    :param required_roles: the roles that the service names in its refusal (403), in lower case; the user needs any one
        of them. Empty: the refusal names no role.
    :param retryable: whether the same call may succeed later; None (default): the type's own default.
    :param setting: name of the setting that is missing or wrong, for :class:`CustodyConfigurationError`.
    :param advice: advice to the user: one or more sentences.
    :param nothing_sent: whether this request certainly did not leave this machine. Default False.
    :param from_service: whether the response is an error body of the service itself. Default False: it may come
        from a gateway, so it proves nothing about the requested object.
    :param code: this package's name for the cause, such as ``token-expired``. It stays the same when texts change. None
        (default): the code of the type. The service's own code is ``error_code``.
    :param why: the reason without the name of its subject (the setting or the request), for texts that already name it.
        Default: the message.
    """

    retryable: bool = False
    #: This package's name for the cause. The service's own code is ``error_code``.
    code: ErrorCode = "unexpected"

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        method: str | None = None,
        path: str | None = None,
        status: int | None = None,
        error_code: str | None = None,
        error_id: str | None = None,
        retry_after: float | None = None,
        required_roles: Iterable[str] = (),
        retryable: bool | None = None,
        setting: str | None = None,
        advice: str | None = None,
        from_service: bool = False,
        nothing_sent: bool = False,
        code: ErrorCode | None = None,
        why: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operation = operation
        self.method = method
        self.path = path
        self.status = status
        self.error_code = error_code
        self.error_id = error_id
        self.retry_after = retry_after
        self.required_roles = tuple(required_roles)
        self.setting = setting
        self.advice = advice
        self.from_service = from_service
        self.nothing_sent = nothing_sent
        self.retryable = type(self).retryable if retryable is None else retryable
        self.code = code or type(self).code
        self.why = why or message

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self):
            raise AttributeError(f"an error does not change: with_facts({name}=...) returns a copy")
        super().__setattr__(name, value)

    def __setstate__(self, state: Mapping[str, Any] | None) -> None:
        # Copying and unpickling first call the constructor with only the message, and then this method.
        vars(self).update(state or {})

    @property
    def transient(self) -> bool:
        """
        Whether a wait continues after this error.

        A wait continues if the service is unavailable or busy, if a response was truncated, or if a listing changed
        while it was read. It ends if the operation is not offered (501), although such an error may be retried. If the
        host does not exist (``unknown-host``), the wait itself decides: it ends, unless an earlier poll has found the
        host.
        """
        return self.retryable and not self.not_offered and isinstance(self, _TRANSIENT)

    @property
    def not_offered(self) -> bool:
        """
        Whether the status may mean that the operation is not available.

        A gateway may respond in the same way, so this is not a proof: see :attr:`not_offered_by_service`. The service's
        own 403 only counts for an operation that this package can do without, and only if the refusal names no role.
        """
        if self.status == 403 and self.from_service:
            return self.code == "not-offered"
        return self.status in NOT_OFFERED_STATUSES

    @property
    def not_offered_by_service(self) -> bool:
        """Whether the service itself reports that the operation is not available."""
        return self.not_offered and self.from_service

    @property
    def is_missing_role(self) -> bool:
        """Whether the service itself reports that the user lacks a role."""
        return self.from_service and self.code == "role-missing"

    @property
    def reason(self) -> str:
        """The failure and its cause, without advice."""
        # Name the path only if there was a response. Otherwise, the operation's name is enough.
        facts = []
        if self.status is not None:
            facts += [f"{self.method} {self.path}"] if self.method else []
            facts.append(f"status {self.status}")
        if self.error_code:
            facts.append(self.error_code)
        if self.error_id:
            facts.append(f"error id {self.error_id}")
        text = f"{self.operation} failed: {self.message}" if self.operation else self.message
        return f"{text.rstrip('.')} ({', '.join(facts)})" if facts else text

    @property
    def text(self) -> str:
        """
        The failure, its cause and the advice, on one line and without the code, for use within another text.
        """
        return " ".join(sentences(self.reason, self.advice).split())

    @property
    def explanation(self) -> str:
        """The reason without the name of its subject (``why``), and the advice, on one line."""
        return " ".join(sentences(self.why, self.advice).split())

    def shorten(self, limit: int = 4000) -> str:
        """
        Return the text and the code on one line.

        :param limit: maximum length of the text in characters; the code is not cut. Default 4000.
        """
        return f"{sanitize(self.text, limit)} {label(self.code)}"

    def render(self, place: str = "", note: str = "") -> str:
        """
        Return the message for people, in several lines: the failure, the advice, and the code.

        :param place: the beginning of the first line. Default empty.
        :param note: the end of the first line. Default empty.
        """
        return lines(f"{place}{self.reason}{note}", self.advice, label(self.code))

    def __str__(self) -> str:
        return self.render()

    def with_facts(self, **facts: object) -> Self:
        """
        Return a copy of this error, with other attributes.

        Its type, traceback and cause stay the same.

        :param facts: the attributes that differ, with their new values.
        """
        copied = copy(self).with_traceback(self.__traceback__)
        vars(copied).update(facts)
        copied.args = (copied.message,)
        copied.__cause__, copied.__context__ = self.__cause__, self.__context__
        copied.__suppress_context__ = self.__suppress_context__
        return copied

    def to_json(self) -> dict[str, object]:
        """
        Return the error as plain JSON data, for another process.

        :return: ``{"type": class name, "message": ..., ...}`` with every attribute that is set.
        """
        facts = {name: getattr(self, name) for name in _facts()}
        if self.why == self.message:
            del facts["why"]
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items() if value}
        return {"type": type(self).__name__, "message": self.message, **given, "retryable": self.retryable}

    @staticmethod
    def from_json(data: Mapping[str, object]) -> CustodyError:
        """
        Build the error that :meth:`to_json` described.

        :param data: the result of :meth:`to_json`, possibly of another version of this package. An unknown type becomes
            a plain :class:`CustodyError`, and an unknown code becomes the code of the type.
        :return: an error of the original type.
        """
        types: dict[str, type[CustodyError]] = {each.__name__: each for each in CustodyError.__subclasses__()}
        types |= {each.__name__: each for each in CustodyRequestError.__subclasses__()}
        facts: dict[str, Any] = {name: data[name] for name in _facts() if data.get(name)}
        facts |= {"code": known_code(data.get("code")), "retryable": data.get("retryable")}
        return types.get(str(data.get("type")), CustodyError)(str(data.get("message") or "unknown error"), **facts)


def _facts() -> Iterable[str]:
    """Return the names of an error's attributes, except its message."""
    return CustodyError.__init__.__kwdefaults__ or ()


class CustodyConfigurationError(CustodyError):
    """Raised when a setting is missing or wrong; nothing is sent."""

    code: ErrorCode = "setting-wrong"


class CustodyRequestError(CustodyError):
    """
    Raised when the request is wrong: it was refused before sending, or the service rejected it with 400 or 422.
    """

    code: ErrorCode = "parameter-wrong"


class WhitelistFileError(CustodyRequestError):
    """
    Raised when a whitelist file is wrong or unreadable; nothing is sent.

    :param message: the number of faults, and the first faults, one per line.
    :param faults: all faults in the order of the file, each with its place: ``line 12: address: ...``.
    :param facts: same as for :class:`CustodyError`.
    """

    code: ErrorCode = "file-wrong"

    def __init__(self, message: str, *, faults: Iterable[str] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.faults = tuple(faults)


class CustodyAuthenticationError(CustodyError):
    """
    Raised when the credentials are rejected (401), or have expired.

    If the token is an expired JWT, nothing is sent.
    """

    code: ErrorCode = "credentials-refused"


class CustodyPermissionError(CustodyError):
    """
    Raised when the operation is forbidden (403).

    The code is ``role-missing`` if the service names a role that the user lacks.
    """

    code: ErrorCode = "request-refused"


class CustodyNotFoundError(CustodyError):
    """Raised when the object or the path does not exist (404)."""

    code: ErrorCode = "not-found"


class CustodyConflictError(CustodyError):
    """Raised when the service's state does not allow the operation (409)."""

    code: ErrorCode = "request-refused"


class CustodyRateLimitError(CustodyError):
    """Raised when the service limits the rate of calls (429)."""

    retryable: bool = True
    code: ErrorCode = "rate-limited"


class CustodyServerError(CustodyError):
    """Raised when the service fails (5xx) in an operation that is safe to repeat."""

    retryable: bool = True
    code: ErrorCode = "service-failed"


class CustodyConnectionError(CustodyError):
    """
    Raised when there is no connection, or no response to an operation that is safe to repeat.
    """

    retryable: bool = True
    code: ErrorCode = "unreachable"


class CustodyOutcomeUnknownError(CustodyError):
    """
    Raised when a request was sent and may have been carried out.

    It is raised only for operations that must not be repeated: creates and signatures. Either the response is missing,
    truncated, unreadable (such as a 2xx without an id), interim (1xx) or a 5xx; or a create was refused, but not by the
    service itself. The client does not repeat the request.
    """

    code: ErrorCode = "outcome-unknown"


class CustodyResponseError(CustodyError):
    """
    Raised when responses cannot be used or are inconsistent, when a write is not confirmed, and on a redirect.

    For a create or a signature, an unusable response raises :class:`CustodyOutcomeUnknownError` instead, but a redirect
    raises this error.
    """

    code: ErrorCode = "response-unusable"


class CustodyVerificationError(CustodyError):
    """Raised when the service's data cannot be verified with the pinned keys."""

    code: ErrorCode = "not-verified"


class CustodyUnhealthyError(CustodyError):
    """Raised when the service is not healthy by the given criteria."""

    retryable: bool = True
    code: ErrorCode = "not-healthy"


#: Types of errors that are transient if the error is retryable.
_TRANSIENT = (CustodyConnectionError, CustodyServerError, CustodyRateLimitError, CustodyResponseError)
