"""Deleting the requests that a plan deletes, each one recorded before and after."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConnectionError, CustodyError, CustodyNotFoundError
from airflow_custody.idempotency.create_rows import WINDOW
from airflow_custody.idempotency.rows import Row, RowStore

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient

#: Prefix of the key of a row to delete; the request's id follows.
DELETE = "delete:"
_CHANGED = "it is not any more what the approved plan deletes: plan again in a new run"
_STOPPED = "the task was stopped before all deletions were sent"


@dataclass(frozen=True)
class Deletions:
    """
    The outcome of deletions.

    :param deleted: the ids of the requests that were deleted.
    :param refused: why others were not, by their id.
    :param unknown: why it cannot be known whether others were, by their id.
    :param left: the ids of those that were not tried.
    :param stopped: the error that ended the deletions early; None: none did.
    """

    deleted: Sequence[str]
    refused: Mapping[str, str]
    unknown: Mapping[str, str]
    left: Sequence[str]
    stopped: CustodyError | None


class DeleteRows:
    """
    Deletes requests, which may be repeated: one that does not exist is deleted.

    :param client: the client.
    :param store: the task's record.
    :param log: the task's log.
    :param comment: why, for the service's history.
    :param max_parallel: maximum number of requests at once.
    """

    def __init__(
        self, client: CustodyClient, store: RowStore, log: logging.Logger, *, comment: str, max_parallel: int
    ) -> None:
        self._client = client
        self._store = store
        self._log = log
        self._comment = comment
        self._max_parallel = max_parallel

    def run(
        self,
        deletes: Mapping[str, str],
        *,
        check: Callable[[Collection[str]], Mapping[str, str]],
        is_stopped: Callable[[], bool],
    ) -> Deletions:
        """
        Delete requests.

        :param deletes: the operation of each, by the request's id.
        :param check: called with the ids of each window before it; returns what the operation of those is by now that
            exist. What is another one is not deleted; a CustodyError ends the deletions.
        :param is_stopped: returns whether nothing more is to be sent.
        :return: their outcome.
        """
        deleted: list[str] = []
        refused: dict[str, str] = {}
        unknown: dict[str, str] = {}
        stopped: CustodyError | None = None
        left = list(deletes)

        was_stopped = CustodyConnectionError(_STOPPED, code="task-stopped", retryable=True)

        def delete(request_id: str) -> CustodyError | None:
            # Asked before each one: a window may take minutes.
            return was_stopped if is_stopped() else self._delete(request_id)

        pool = ThreadPoolExecutor(self._max_parallel, thread_name_prefix="custody-apply")
        try:
            while left and stopped is None:
                if is_stopped():
                    stopped = was_stopped
                    break
                try:
                    now = check(left[:WINDOW])
                except CustodyError as unread:
                    stopped = unread
                    break
                batch, left = left[:WINDOW], left[WINDOW:]
                changed = {each for each in batch if now.get(each, deletes[each]) != deletes[each]}
                refused.update(dict.fromkeys(changed, _CHANGED))
                if not (batch := [each for each in batch if each not in changed]):
                    continue
                begun = {f"{DELETE}{each}": Row("deleting", deletes[each]) for each in batch}
                window = self._store.open(begun, datetime.now(timezone.utc))
                rows: dict[str, Row | None] = {**begun}
                errors = dict(zip(batch, pool.map(delete, batch), strict=True))
                for each, error in errors.items():
                    if error is None:
                        deleted.append(each)
                        rows[f"{DELETE}{each}"] = Row("deleted", deletes[each])
                    elif error is was_stopped:
                        left.append(each)
                        rows[f"{DELETE}{each}"] = None
                    else:
                        (refused if _is_refusal(error) else unknown)[each] = error.reason
                self._store.record((window, key, row) for key, row in rows.items())
                stopped = next((each for each in errors.values() if each is not None and _ends(each)), None)
        finally:
            # After an exception, nothing that has not left yet may leave any more.
            pool.shutdown(cancel_futures=True)
        return Deletions(deleted, refused, unknown, left, stopped)

    def _delete(self, request_id: str) -> CustodyError | None:
        try:
            self._client.delete_whitelist_request(request_id, self._comment)
        except CustodyNotFoundError:
            self._log.info("Whitelisting request %s does not exist any more.", request_id)
        except CustodyError as error:
            self._log.warning("Whitelisting request %s was not deleted: %s", request_id, error)
            return error
        else:
            self._log.info("Whitelisting request %s is deleted.", request_id)
        return None


def _is_refusal(error: CustodyError) -> bool:
    """Tell whether a request was certainly not deleted."""
    return error.nothing_sent or (error.from_service and 400 <= (error.status or 0) < 500)


def _ends(error: CustodyError) -> bool:
    """Tell whether the next deletions would fail as well."""
    return error.transient or error.status in (401, 403)
