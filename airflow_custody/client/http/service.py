"""The base class of the operations of each area."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from airflow_custody.client.errors import (
    NOT_OFFERED_STATUSES,
    CustodyAuthenticationError,
    CustodyError,
    CustodyNotFoundError,
    CustodyResponseError,
)
from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.responses import Reply, Response
from airflow_custody.client.http.transport import Transport
from airflow_custody.client.text import lines

log = logging.getLogger(__name__)


class ServiceOperations:
    """
    The base of the operations of one area, such as webhooks.

    :class:`~airflow_custody.client.CustodyClient` combines the operations of all areas.
    """

    #: Sends the requests to the service.
    _transport: Transport

    def _write(
        self,
        operation: Operation,
        *,
        body: Any = None,
        shows: Callable[[Mapping[str, Any]], bool | None],
        read_back: Callable[[], str | None],
        is_deletion: bool = False,
        probe: Callable[[], object] | None = None,
    ) -> None:
        """
        Carry out a write, and return only if it is confirmed.

        A write is confirmed by its response, or by reading the object back.

        A response confirms the write if it is empty, or holds the object in its new state. After any other response,
        the object is read back, for these reasons: any other success, and a refusal without the service's own error
        body, may come from a gateway; the service's own 404 to a deletion may mean that the service does not know the
        operation; its other refusals may mean that an earlier try succeeded; and an interim response (1xx) is not
        final.

        If a documented write is answered with JSON of an unknown form, and the service does not offer to read the
        object back, the write counts as done, because the form of its response is not documented.

        :param operation: the write; doing it twice does no harm.
        :param body: JSON data to send. Default None: no body.
        :param shows: returns whether a JSON object in the response has the new state. False: it has another state, or
            is another object. None: it does not show its state.
        :param read_back: reads the object. Returns None if the object is in its new state, otherwise its state as text.
            Raises a :class:`CustodyError` if the state is unknown.
        :param is_deletion: whether the object must no longer exist. Default False.
        :param probe: for a documented write: sends a documented read. It is used to check the base URL if all other
            responses may also be due to a wrong base URL. Default None: the write is not documented, so only its
            response or reading the object back confirms it.
        :raises CustodyNotFoundError: if the service itself reports that the object does not exist.
        :raises CustodyResponseError: if the write is not confirmed. The error is retryable if the object is in another
            state, or may become readable later.
        """
        is_accepted = False
        try:
            reply: Reply[Any] = self._transport.call(operation, None, body=body)
            is_done = _says_done(reply.response, shows)
            if is_done:
                return
            is_accepted = is_done is None
            doubt = reply.unexpected("it is not empty, and does not have the new state")
        except CustodyError as error:
            if not _may_be_done(error, is_deletion=is_deletion):
                raise
            doubt = error
        is_absent = is_deletion and doubt.from_service and isinstance(doubt, CustodyNotFoundError)
        state, unread = None, None
        try:
            state = read_back()
        except CustodyError as error:
            unread = error
        if doubt.from_service and not is_absent:
            _accept_if_done(operation, doubt, state, unread)
            return
        counts = unread is None
        if unread is not None and (is_absent or is_accepted):
            counts = _is_unreadable(unread, probe, is_absent=is_absent)
        if state is not None or not counts:
            raise self._not_confirmed(operation, doubt, state, unread, is_absent=is_absent)
        if is_absent:
            raise doubt
        if unread is None:
            log.info("%s: done. The response did not confirm it, but reading the object back did.", operation.name)
            return
        log.warning(
            "%s: counts as done because of the response's status %s. The response's body has an unknown form, and the "
            "service does not offer the listing that could confirm the change.",
            operation.name,
            doubt.status,
        )

    def _not_confirmed(
        self,
        operation: Operation,
        doubt: CustodyError,
        state: str | None,
        unread: CustodyError | None,
        *,
        is_absent: bool,
    ) -> CustodyError:
        """
        Return the error for a write that is not confirmed by reading the object back.

        :param operation: the write.
        :param doubt: the error for its response.
        :param state: the object's state; None: it could not be read.
        :param unread: the error of reading the object back; None: it was read.
        :param is_absent: whether the service itself reports that the object to delete does not exist. The error is not
            retryable then, because the service would respond in the same way again.
        """
        advice = "The outcome is unknown. It is safe to repeat."
        why, retryable = f"when it was read back, {state}", not is_absent
        if unread is not None:
            why, retryable = f"reading it back failed too: {unread.reason}", unread.retryable
            if unread.status == 404:
                advice = f"{advice} Check {self._transport.settings.base_url_text}."
        return operation.failed(
            CustodyResponseError,
            f"{doubt.message}; {why}",
            code="outcome-unknown",
            status=doubt.status,
            retryable=retryable,
            advice=lines(None if doubt.status == 200 else doubt.advice, advice),
        )


def _says_done(response: Response, shows: Callable[[Mapping[str, Any]], bool | None]) -> bool | None:
    """Tell whether a 2xx response confirms the write; None: it is JSON that does not show the object's state."""
    if response.says_nothing:
        return True
    if response.no_json or response.says_error:
        return False
    return shows(response.data) if isinstance(response.data, dict) else None


def _is_unreadable(error: CustodyError, probe: Callable[[], object] | None, *, is_absent: bool) -> bool:
    """
    Tell whether a write counts as done although the object cannot be read back.

    The write counts only if the base URL is right. With a wrong base URL, the peer may not know any path.

    :param error: the error of reading the object back.
    :param probe: sends a documented read; None: the write is not documented, so it does not count.
    :param is_absent: whether the service itself reports that the object does not exist. If so, a missing role or a
        gateway may be the reason why the object cannot be read. Otherwise, the service itself must not offer the read.
    """
    if probe is None:
        return False
    if error.from_service and error.status != 404:
        # The service knows the path, so the base URL is right.
        return error.status in NOT_OFFERED_STATUSES and (is_absent or not error.is_missing_role)
    is_page = not error.from_service and error.status is not None and not error.retryable
    if not error.from_service and not (is_absent and is_page):
        return False
    try:
        probe()
        return True
    except CustodyError as other:
        return other.from_service and other.status != 404


def _may_be_done(error: CustodyError, *, is_deletion: bool) -> bool:
    """
    Tell whether a failed write may have been done anyway, so that reading the object back may confirm it.
    """
    if error.status is not None and error.status < 200:
        # The response is not final: the service has begun to process the request.
        return True
    if error.retryable:
        return False
    if not error.from_service:
        return 300 <= (error.status or 0) < 500
    if isinstance(error, CustodyAuthenticationError):
        return False
    # After a forbidden deletion (403), reading back proves nothing: the user may be unable to read the object, too.
    return not is_deletion or error.status in (400, 404, 409)


def _accept_if_done(
    operation: Operation, refusal: CustodyError, state: str | None, unread: CustodyError | None
) -> None:
    """
    Raise the service's own refusal of a write, unless reading the object back shows that it is already done.

    :param operation: the write.
    :param refusal: the refusal.
    :param state: the object's state; None: it is in its new state, or could not be read.
    :param unread: the error of reading the object back; None: it was read.
    """
    if unread is not None and unread.retryable:
        raise unread
    if unread is not None or state is not None:
        raise refusal
    log.warning(
        "%s: rejected (%s), but it is already done, by an earlier try or by another client.",
        operation.name,
        refusal.message.rstrip("."),
    )


def shown_object(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """
    Return the object in the response to a write.

    :param data: the response's body.
    :param keys: keys of the body that may hold the object. The body itself may also be the object.
    :return: the first of these objects that has an ``id``; empty: there is none.
    """
    candidates = [*(data.get(key) for key in keys), data]
    return next((each for each in candidates if isinstance(each, dict) and each.get("id")), {})
