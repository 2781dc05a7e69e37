"""Whether the service lists what rows have created, and lists the right request under each id."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConflictError, CustodyError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.matching import differing_fields
from airflow_custody.idempotency.create_once import lookup_intervals
from airflow_custody.idempotency.create_rows import Outcome
from airflow_custody.idempotency.rows import Row, RowStore, Window
from airflow_custody.idempotency.whitelist_requests import TrustChecker

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest


class ListedRows:
    """
    Compares what was created with what the service lists.

    :param client: the client.
    :param store: the task's record.
    :param log: the task's log.
    :param lookup_wait: seconds that the service may take to show what it created.
    :param trust: tells what does not verify.
    """

    def __init__(
        self, client: CustodyClient, store: RowStore, log: logging.Logger, *, lookup_wait: float, trust: TrustChecker
    ) -> None:
        self._client = client
        self._trust = trust
        self._store = store
        self._log = log
        self._lookup_wait = lookup_wait

    def check(self, outcome: Outcome, requests: Mapping[str, WhitelistRequest], done: Mapping[str, Row]) -> bool | None:
        """
        Check that each id is that of its row's request.

        A response to another request, on a connection that others share, would give a row the wrong id.

        :return: whether the service lists all of them; None if a row has the id of something else. Then its outcome is
            recorded as unknown.
        """
        listed, missing = self.fetch([*outcome.created.values()])
        wrong: list[tuple[Window, str, Row | None]] = []
        by_address: dict[str, list[WhitelistRequest]] = defaultdict(list)
        for each in requests.values():
            by_address[each.address].append(each)
        # Of what an earlier try has created; unless the service has never listed anything of this task.
        were_listed = listed or self._store.log.is_listed
        gone = {each for key, each in outcome.created.items() if were_listed and key in done}.intersection(
            missing or ()
        )
        if missing and (listed or gone):
            outcome.stopped = outcome.stopped or CustodyConflictError(
                f"the service does not list what it said that it created: {_names(missing)}",
                code="outcome-unknown",
                retryable=True,
            )
        for key, request_id in list(outcome.created.items()):
            if request_id in listed:
                fields = self._differing(requests[key], listed[request_id])
            elif request_id in gone:
                outcome.unknown[key] = (
                    f"request {request_id}, which this task has created, is not listed any more: if it was removed, "
                    "start a new run, which asks for it again"
                )
                del outcome.created[key]
                continue
            else:
                continue
            if unverified := self._trust.why_unverified(listed[request_id]):
                # It stays written down as created: that it is hidden later must not be a reason to send it again.
                outcome.unknown[key] = f"the service named {request_id} as its id, and {unverified}"
                del outcome.created[key]
                continue
            others = [each for each in by_address[requests[key].address] if fields and each != requests[key]]
            if "address" in fields or any(not self._differing(each, listed[request_id]) for each in others):
                outcome.unknown[key] = (
                    f"the service named {request_id} as its id, and shows something else there ({', '.join(fields)})"
                )
                del outcome.created[key]
                if known := self._store.log.row(key):
                    wrong.append((known[0], key, Row("sent")))
            elif fields:
                self._log.warning("Request %s is not quite what was asked for: %s.", request_id, ", ".join(fields))
        self._store.record(wrong)
        self._store.log.is_listed |= bool(listed) and missing == [] and not wrong
        return None if wrong else missing == []

    def fetch(self, ids: Sequence[str]) -> tuple[dict[str, WhitelistEnvelope], list[str] | None]:
        """
        Wait until the service lists what was created: the next plan must see it.

        :return: the listed requests by id, and the ids that are not listed; None: the listing could not be read.
        """
        listed: dict[str, WhitelistEnvelope] = {}
        missing, deadline, intervals = list(ids), time.monotonic() + self._lookup_wait, lookup_intervals()
        while missing:
            try:
                for start in range(0, len(missing), MAX_PAGE_SIZE):
                    batch = missing[start : start + MAX_PAGE_SIZE]
                    listed |= {each.id: each for each in self._client.find_whitelist_requests(ids=batch)}
            except CustodyError as error:
                self._log.warning("Whether the service lists what was created cannot be seen: %s", error)
                return listed, None
            missing = [each for each in missing if each not in listed]
            if not missing or time.monotonic() >= deadline:
                break
            time.sleep(max(0.05, min(next(intervals), deadline - time.monotonic())))
        if missing:
            self._log.warning("The service does not list yet: %s.", _names(missing))
        return listed, missing

    def _differing(self, request: WhitelistRequest, envelope: WhitelistEnvelope) -> list[str]:
        try:
            return differing_fields(request, envelope)
        except CustodyError as error:
            self._log.warning("%s", error)
            return []


def _names(ids: Sequence[str]) -> str:
    return name_some([sanitize(each, 60) for each in ids])
