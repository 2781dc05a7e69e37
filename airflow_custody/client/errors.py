"""What can go wrong when talking to the custody service, as types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class CustodyError(Exception):
    """
    Say that an operation of the custody service failed, and how.

    ``str(error)`` is for people: the operation, what went wrong, what to do about it. Code decides by the type
    and the attributes, never by the text. Neither ever holds the token.

    :param message: what went wrong: the service's own words where it said anything.
    :param operation: name of the operation, for people (``"create whitelisting request"``).
    :param method: HTTP method; None if the error has nothing to do with a request.
    :param path: path below ``/api/rest/v1``; None likewise.
    :param status: HTTP status of the answer; None if there was no answer.
    :param error_code: the service's own code (``E900-...``), if its answer had one (published knowledge).
    :param retry_after: seconds the service asks to wait before the next call, if it said so.
    :param required_roles: roles that the operation needs, on a missing permission.
    :param retryable: whether the same call may succeed later; None (default): as usual for the type.
    :param setting: name of the setting that is missing or wrong, for :class:`CustodyConfigurationError`.
    :param advice: what to do about it: one or more sentences, for people.
    :param from_gateway: True if the answer was not JSON and so came from something in between.
    """

    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        method: str | None = None,
        path: str | None = None,
        status: int | None = None,
        error_code: str | None = None,
        retry_after: float | None = None,
        required_roles: Iterable[str] = (),
        retryable: bool | None = None,
        setting: str | None = None,
        advice: str | None = None,
        from_gateway: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.operation = operation
        self.method = method
        self.path = path
        self.status = status
        self.error_code = error_code
        self.retry_after = retry_after
        self.required_roles = tuple(required_roles)
        self.setting = setting
        self.advice = advice
        self.from_gateway = from_gateway
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        facts = []
        if self.method:
            facts.append(f"{self.method} {self.path}")
        if self.status is not None:
            facts.append(f"status {self.status}")
        if self.error_code:
            facts.append(self.error_code)
        text = self.message
        if self.operation:
            text = f"{self.operation} failed{' (' + ', '.join(facts) + ')' if facts else ''}: {text}"
        if self.advice:
            text = f"{text.rstrip('.')}. {self.advice}"
        return text

    def to_json(self) -> dict[str, Any]:
        """
        Return the error as plain JSON data, to cross a process border.

        :return: ``{"type": class name, "message": ..., ...}`` with every attribute that is set.
        """
        facts = {name: getattr(self, name) for name in _ATTRIBUTES}
        facts["required_roles"] = list(self.required_roles)
        return {"type": type(self).__name__, **{name: value for name, value in facts.items() if value}} | {
            "retryable": self.retryable
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CustodyError:
        """
        Build the error that :meth:`to_json` described.

        :param data: what :meth:`to_json` returned; an unknown type becomes a plain :class:`CustodyError`.
        :return: an error of the type it was.
        """
        kinds = {kind.__name__: kind for kind in CustodyError.__subclasses__()}
        known = {name: data[name] for name in (*_ATTRIBUTES, "retryable") if data.get(name) is not None}
        message = str(known.pop("message", "unknown error"))
        return kinds.get(str(data.get("type")), CustodyError)(message, **known)


_ATTRIBUTES: tuple[str, ...] = (
    "message",
    "operation",
    "method",
    "path",
    "status",
    "error_code",
    "retry_after",
    "required_roles",
    "setting",
    "advice",
    "from_gateway",
)


class CustodyConfigurationError(CustodyError):
    """Say that a setting is missing or wrong; nothing was sent."""


class CustodyRequestError(CustodyError):
    """Say that the request is wrong: refused before sending, or by the service with 400 or 422."""


class CustodyAuthenticationError(CustodyError):
    """Say that the token is not accepted (401), or is a JWT past its ``exp`` (then nothing was sent)."""


class CustodyPermissionError(CustodyError):
    """Say that the token's user lacks a role (403)."""


class CustodyNotFoundError(CustodyError):
    """Say that the service does not know the object or the path (404)."""


class CustodyConflictError(CustodyError):
    """Say that the service's state does not allow the operation (409)."""


class CustodyRateLimitError(CustodyError):
    """Say that the service asks for fewer calls (429)."""

    retryable: bool = True


class CustodyServerError(CustodyError):
    """Say that the service failed (5xx) on an operation that is safe to repeat."""

    retryable: bool = True


class CustodyConnectionError(CustodyError):
    """Say that there was no connection, or no answer to an operation that is safe to repeat."""

    retryable: bool = True


class CustodyOutcomeUnknownError(CustodyError):
    """
    Say that a create was sent and may have been done.

    Its answer is missing, cut, unreadable (a 2xx without an id) or a 5xx. Never repeated.
    """


class CustodyResponseError(CustodyError):
    """Say that the answer to a read cannot be understood, or that there was a redirect."""


class CustodyUnhealthyError(CustodyError):
    """Say that the service answered and is not healthy by the criteria that were asked for."""

    retryable: bool = True


#: Statuses with which a service says that it does not offer an operation, or not to this user.
NOT_OFFERED = (403, 404, 405, 501)

#: What a wait may sit out: the service is away or busy, nothing says that waiting is in vain.
TRANSIENT_ERRORS: tuple[type[CustodyError], ...] = (
    CustodyConnectionError,
    CustodyServerError,
    CustodyRateLimitError,
)
