"""The base of the subjects' operations."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from airflow_custody.client.errors import CustodyError, CustodyNotFoundError, CustodyResponseError
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.responses import Reply
from airflow_custody.client.http.transport import Transport

log = logging.getLogger(__name__)

#: Seconds to wait before an object is read back once more: a listing may lag behind what was written.
READ_BACK_DELAYS = (0.5, 2.0)


class ServiceOperations:
    """
    The base of the subjects' operations, which :class:`~airflow_custody.client.CustodyClient` puts together.

    :param transport: the way to the service.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _write(
        self,
        operation: Operation,
        *,
        body: Any = None,
        shows: Callable[[Mapping[str, Any]], bool | None],
        read_back: Callable[[], str | None],
    ) -> None:
        """
        Carry out a write that needs no particular response, and return only if the service confirms it.

        An empty response confirms it, and so does one that shows the object in its new state. Anything else, and a 404
        that is not the service's own, may be somebody else's: then the object is read back, and again after
        :data:`READ_BACK_DELAYS`. Where the service itself says that it cannot be read, and the response says nothing
        to the contrary, the write passes with a warning in the log.

        :param operation: the write.
        :param body: JSON data to send. Default None: no body.
        :param shows: tells whether a JSON object that came back shows the new state; None: it says nothing about it.
        :param read_back: reads the object. Returns None if it is in its new state, and otherwise says in which state
            it is. Raises a :class:`CustodyError` if that cannot be known.
        :raises CustodyNotFoundError: if the service itself says that there is no such object.
        :raises CustodyResponseError: if the write is not confirmed. It is retryable if the object is still in another
            state, or if it may be possible to read it later.
        """
        says_nothing = False
        refusal: CustodyError | None = None
        try:
            reply: Reply[Any] = self._transport.call(operation, None, body=body)
        except CustodyNotFoundError as error:
            if error.from_service:
                raise
            doubt: CustodyError = operation.failed(
                CustodyResponseError,
                f"the 404 is not the service's own: {error.message}",
                code="outcome-unknown",
                status=error.status,
            )
        except CustodyError as error:
            if error.from_service or error.retryable or not 300 <= (error.status or 0) < 500:
                raise
            # A gateway may refuse what the service has done.
            refusal = doubt = error
        else:
            shown = shows(reply.json) if isinstance(reply.json, dict) and not reply.is_error else False
            if shown or reply.says_nothing:
                return
            says_nothing = shown is None
            doubt = reply.unexpected("it is not empty, and does not show the new state")
        for delay in (0.0, *READ_BACK_DELAYS):
            time.sleep(delay)
            try:
                state = read_back()
            except CustodyError as error:
                unread = error
                break
            if state is None:
                log.info("%s: the response did not confirm it; the service shows that it is done.", operation.name)
                return
        else:
            if refusal is not None:
                raise refusal
            raise _unconfirmed(doubt, f"the service was asked, and {state}", retryable=True)
        if refusal is not None:
            words = "It may have been done all the same: that could not be read back."
            refusal.advice = f"{refusal.advice} {words}" if refusal.advice else words
            raise refusal
        if says_nothing and unread.not_offered and unread.from_service:
            log.warning(
                "%s: the response does not confirm it (%s), and whether it is done could not be read back (%s).",
                operation.name,
                doubt.message,
                unread.reason,
            )
            return
        raise _unconfirmed(doubt, f"reading it back failed too: {unread.reason}", retryable=unread.retryable)

    def _delete(
        self,
        operation: Operation,
        *,
        body: Any = None,
        shows: Callable[[Mapping[str, Any]], bool | None],
        read_back: Callable[[], str | None],
    ) -> None:
        """
        Carry out a deletion as :meth:`_write` does.

        A 404 of the service itself may mean that it does not know the operation. So the object is read back then, too.

        :param read_back: as for :meth:`_write`: returns None if the object certainly does not exist.
        :raises CustodyNotFoundError: if there certainly was no such object; or if the service itself says so of a
            deletion that it is known to offer, and that it does not offer to read the object back.
        :raises CustodyResponseError: if the deletion is not confirmed.
        """
        try:
            self._write(operation, body=body, shows=shows, read_back=read_back)
            return
        except CustodyNotFoundError as error:
            refusal = error
        state, unread = None, None
        try:
            state = read_back()
        except CustodyError as error:
            unread = error
        if unread is not None and not (operation.documented and unread.not_offered and unread.from_service):
            state = f"reading it back failed: {unread.reason}"
        if state is None:
            raise refusal
        raise operation.failed(
            CustodyResponseError,
            f"{refusal.message}; but {state}",
            code="outcome-unknown",
            status=refusal.status,
            advice=refusal.advice,
            from_service=unread is None,
            retryable=unread is not None and unread.retryable,
        )


def shown_object(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any] | None:
    """
    Return the object that a response to a write shows.

    :param data: the response's body.
    :param keys: keys under which it may be; else the body is the object itself.
    :return: the first with an ``id``; None: there is none.
    """
    candidates = [*(data.get(key) for key in keys), data]
    return next((each for each in candidates if isinstance(each, dict) and each.get("id")), None)


def _unconfirmed(doubt: CustodyError, why: str, *, retryable: bool) -> CustodyError:
    return CustodyResponseError(
        f"{doubt.message}; {why}",
        operation=doubt.operation,
        method=doubt.method,
        path=doubt.path,
        status=doubt.status,
        retryable=retryable,
        advice="Whether it was done is not known. Doing it again does no harm.",
        code="outcome-unknown",
    )
