"""The journal of webhook calls under another base URL: the same one, or another service's."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_custody.client.webhooks.journal import CallCursor, whole_second
from airflow_custody.client.webhooks.results import NewCalls

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
# The known call is among the oldest of those that are as new as it is.
_PROBE_LIMIT = 1_000
_GAP = (
    "the connection has another base URL now, and the last known call is not listed there: calls of both services may "
    "be lost, those after the last reading at the old one, and those before it at the new one"
)
_GAP_AFTER_NONE = (
    "the connection has another base URL now, and no call was known that could show whether it is the same journal: if "
    "it is another service's, calls of the former one that were not read are lost"
)


def name_service(base_url: str) -> str:
    """Return what names a service in stored places; two spellings of one base URL have one name."""
    scheme, netloc, path, _, _ = urlsplit(base_url)
    host = netloc.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))
    return hashlib.sha256(f"{scheme}://{host}{path.rstrip('/')}".encode()).hexdigest()[:16]


def read_after_base_url_change(client: CustodyClient, cursor: CallCursor, *, limit: int) -> NewCalls:
    """
    Read what is new with the cursor of a journal that had another base URL.

    :param client: of the base URL that it has now.
    :param cursor: the cursor of the journal at the former base URL.
    :param limit: maximum number of calls to return: the oldest.
    :return: the new calls, with a gap if no call shows that it is the same journal.
    :raises CustodyError: if it cannot be read.
    """
    newest = cursor.newest
    if newest is not None:
        second = CallCursor(whole_second(newest), {})
        found = client.read_webhook_calls(second, limit=_PROBE_LIMIT)
        if any(cursor.knows(call) for call in found.calls):
            return client.read_webhook_calls(cursor, limit=limit)
    # Calls known at the other one cannot be missing here.
    new = client.read_webhook_calls(CallCursor(cursor.floor, {}), limit=limit)
    gap = _GAP_AFTER_NONE if newest is None and not cursor.undated else _GAP
    return replace(new, gap="; ".join(filter(None, [gap, new.gap])))
