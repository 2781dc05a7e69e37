"""The paths of the pages below Airflow's base URL. Imports nothing heavy, as operators link there."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

#: The path at which the pages are mounted.
ROOT = "/custody"
#: Maximum number of requests on a page, and in a link. They are fetched from the service in one go.
MAX_REQUESTS = 100


def connection_path(conn_id: str) -> str:
    """
    Return the path of a connection's page.

    :param conn_id: the connection's id. Airflow allows slashes and number signs in it.
    :return: the path; empty if no browser would take it as it is: a part of it is ``.`` or ``..``.
    """
    if not conn_id or any(part in (".", "..") for part in conn_id.split("/")):
        return ""
    return f"{ROOT}/connections/{quote(conn_id, safe='')}"


def requests_path(conn_id: str, request_ids: Sequence[str]) -> str:
    """
    Return the path of the page that shows whitelisting requests: of one all there is, of several a list.

    :param conn_id: the connection's id.
    :param request_ids: the requests' ids; of many, the first hundred are named, and their number.
    :return: the path; empty if there is no such page.
    """
    connection = connection_path(conn_id)
    if not connection or not request_ids:
        return ""
    if len(request_ids) == 1:
        return f"{connection}/requests/{quote(request_ids[0], safe='')}"
    named = ",".join(quote(each, safe="") for each in request_ids[:MAX_REQUESTS])
    total = f"&total={len(request_ids)}" if len(request_ids) > MAX_REQUESTS else ""
    return f"{connection}/requests?ids={named}{total}"
