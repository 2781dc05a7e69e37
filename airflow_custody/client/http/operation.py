"""The description of one operation of the service, and its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyError,
    CustodyOutcomeUnknownError,
    CustodyRequestError,
)
from airflow_custody.client.text import ascii_lower

#: Root of the interface, below the base URL.
API_ROOT = "/api/rest/v1"
#: Advice for a request that may have been carried out.
OUTCOME_UNKNOWN_ADVICE = (
    "The request was sent and may have been carried out. It is not sent again. Check in the service whether it took "
    "effect before you run this again."
)


def missing_roles(needed: Iterable[str], own: Iterable[str]) -> list[str]:
    """
    Return the needed roles that a user lacks.

    Names are compared without regard to case.

    :param needed: the roles. Alternatives are written as one role: ``Admin or AdminReadOnly``.
    :param own: the user's roles.
    """
    has = {ascii_lower(each) for each in own}
    return [each for each in needed if has.isdisjoint(ascii_lower(each).split(" or "))]


@dataclass(frozen=True)
class Operation:
    """
    The description of one operation of the service.

    :param name: its name, for people.
    :param method: HTTP method.
    :param path: path below :data:`API_ROOT`.
    :param roles: roles that the user needs, all of them. Alternatives are written as one role:
        ``Admin or AdminReadOnly``.
    :param repeatable: whether sending it twice does no harm. Otherwise, a failed try is repeated only if it certainly
        sent nothing. None (default): True except for a POST.
    :param confidential: whether the request or the response holds a secret. If so, no part of the response is quoted,
        whatever its status. Default False.
    :param quotes_refusals: whether error messages quote the service's refusal of a confidential operation, with URLs
        shortened. Only for operations whose request holds no secret, because a refusal may repeat the request. Default
        False.
    :param documented: whether the API description that this package implements includes it. Undocumented operations
        are known from the vendor's other publications, and not every service offers them. Default True.
    :param optional: whether this package can do without the operation. If so, the service's own 403 that names no role
        counts as "not offered"; otherwise, it is a refusal. Default False.
    :param confirmed_by: how a 2xx response to a write is confirmed; required for every write.
        ``result``: the response must hold the created object or the number of changes; the client method that sends
        the write checks this.
        ``read back``: an empty response, or the object in its new state, confirms the write; after any other response,
        the object is read to check its state (``ServiceOperations._write``). Default None: it is not a write.
    :param hints: advice by status code, in addition to the advice for every operation.
    :param creates: whether a second call would create another object. If so, a refusal that does not come from the
        service itself, for example one from a gateway, leaves the outcome unknown. Default False.
    :param names_objects: whether the path or the body names objects, which may not exist. Default False.
    """

    name: str
    method: str
    path: str
    roles: tuple[str, ...] = ()
    repeatable: bool | None = None
    confidential: bool = False
    quotes_refusals: bool = False
    documented: bool = True
    optional: bool = False
    confirmed_by: Literal["result", "read back"] | None = None
    hints: Mapping[int, str] = field(default_factory=dict)
    creates: bool = False
    names_objects: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether sending the operation twice does no harm."""
        return self.method != "POST" if self.repeatable is None else self.repeatable

    @property
    def is_retried(self) -> bool:
        """Whether a call may send the operation again after it was sent."""
        return self.is_repeatable and self.method != "POST"

    def on(self, identifier: str) -> Operation:
        """Return this operation for one object, its identifier appended to the path."""
        return replace(self, path=f"{self.path}/{identifier}", names_objects=True)

    def failed(
        self, error_type: type[CustodyError], message: str, *, code: ErrorCode | None, **facts: Any
    ) -> CustodyError:
        """
        Return an error that names this operation.

        Without a code, the error has the code of its type.
        """
        return error_type(message, operation=self.name, method=self.method, path=self.path, code=code, **facts)

    def refused(self, message: str, code: ErrorCode = "parameter-wrong") -> CustodyError:
        """Return the error for an invalid request, which was not sent."""
        return CustodyRequestError(f"{message}; nothing is sent", operation=self.name, code=code)

    def after_sending(
        self,
        error_type: type[CustodyError],
        message: str,
        *,
        code: ErrorCode | None,
        advice: str | None = None,
        **facts: Any,
    ) -> CustodyError:
        """
        Return the error for a request that was sent.

        The error has the type ``error_type`` only if repeating the request does no harm. Otherwise, it reports that the
        outcome is unknown.
        """
        if self.is_repeatable:
            return self.failed(error_type, message, code=code, advice=advice, **facts)
        return self.outcome_unknown(message, advice=advice, **facts)

    def outcome_unknown(self, message: str, *, advice: str | None = None, **facts: Any) -> CustodyError:
        """Return the error for a request that may have been carried out."""
        facts |= {"retryable": False, "advice": " ".join(filter(None, [advice, OUTCOME_UNKNOWN_ADVICE]))}
        return self.failed(CustodyOutcomeUnknownError, message, code="outcome-unknown", **facts)
