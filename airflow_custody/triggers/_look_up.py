"""Looking up many requests, of which one may make the look-up fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError, CustodyResponseError
from airflow_custody.client.http.operation import MAX_PAGE_SIZE
from airflow_custody.client.text import count
from airflow_custody.triggers._base import PollResult

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.progress import ListedRequest

#: Maximum number of look-ups in one poll to find the requests that make a look-up of many fail.
MAX_ISOLATING_LOOKUPS = 48
# Statuses with which a service may refuse a whole look-up because of one request in it.
_STATUSES_OF_ONE = (400, 404, 413, 414, 422, 431, 500)


def look_up(client: CustodyClient, ids: Sequence[str]) -> dict[str, PollResult[ListedRequest]]:
    """
    Find where requests are listed.

    A look-up that fails for a reason that one request may have is halved until that request is alone, so that the
    others go on.
    """
    from airflow_custody.client.whitelist.progress import find_listed

    found: dict[str, PollResult[ListedRequest]] = {}
    failed: list[tuple[list[str], CustodyError]] = []
    # In another order each time: if there are too many such requests for one poll, all get their turn.
    shuffled = random.sample(ids, len(ids))
    batches = [shuffled[start : start + MAX_PAGE_SIZE] for start in range(0, len(ids), MAX_PAGE_SIZE)]
    lookups = MAX_ISOLATING_LOOKUPS
    while batches:
        batch = batches.pop()
        try:
            found.update({each: PollResult(listed) for each, listed in find_listed(client, batch).items()})
        except CustodyError as error:
            if not may_be_of_one(error):
                # It is the service's own trouble: the rest would fare no better.
                failed += [(each, error) for each in (batch, *batches)]
                break
            if len(batch) > 1 and lookups > 0:
                lookups -= 2
                batches += [batch[::2], batch[1::2]]
            else:
                failed.append((batch, error))
    works = bool(found)
    for batch, why in failed:
        if works and len(batch) > 1 and may_be_of_one(why):
            # Which of these it is, a later poll will tell.
            why = CustodyResponseError(
                f"one of {count(len(batch), 'request')} makes their look-up fail: {why.reason}",
                code=why.code,
                retryable=True,
            )
        found.update(dict.fromkeys(batch, PollResult(error=why)))
    return found


def may_be_of_one(error: CustodyError) -> bool:
    """Tell whether a look-up of many may have failed because of one of them: a bad id, or an unreadable row."""
    unreadable = isinstance(error, CustodyResponseError) and (error.status is None or error.status < 300)
    return unreadable or error.status in _STATUSES_OF_ONE
