"""The links from a task to its whitelisting requests. Operators import them, so nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf
from airflow.version import version

from airflow_custody.plugin import PATH

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey

#: Maximum number of requests on a page, and in a link. They are fetched from the service in one go.
MAX_REQUESTS = 100
_VERSION = tuple(int(part) for part in version.split(".")[:2])
# From this version on, Airflow has pages of plugins, and takes links from XCom.
_HAS_PAGES = _VERSION >= (3, 1)
# From this version on, its frame shows the page whose path follows.
_FRAME = "/plugin/custody" if _VERSION >= (3, 3) else ""


class CustodyRequestLink(BaseOperatorLink):
    """
    The link "Custody request" of a task: to the page of its whitelisting request, or of all of them.

    Airflow asks for it in the worker when the task ends or is deferred, also when it fails, and keeps it as XCom.
    """

    name = "Custody request"

    @property
    def xcom_key(self) -> str:
        """The XCom key under which Airflow keeps the link."""
        return "_link_CustodyRequestLink"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """
        Return the link.

        :param operator: the task's operator, after it ran.
        :param ti_key: not used.
        :return: the URL; only its path where ``[api] base_url`` is not set. Empty if no request is known, or
            if the page is switched off.
        """
        if not conf.getboolean("custody", "page", fallback=True):
            return ""
        try:
            request_ids = operator.linked_request_ids()
        except Exception:
            # It ended before its ids were checked. Airflow would log that as an error of its own.
            return ""
        conn_id = operator.custody_conn_id
        if not isinstance(conn_id, str) or "{{" in conn_id:
            # It was not rendered.
            return ""
        path = requests_path(conn_id, request_ids)
        base_url = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
        # The frame takes a number sign in a path for the end of the path.
        frame = f"{_FRAME}{urlsplit(base_url).path}" if _FRAME and "#" not in conn_id else ""
        return f"{base_url}{frame}{path}" if path else ""


#: The links of the operators and sensors that are about whitelisting requests; none where there is no page.
REQUEST_LINKS: tuple[BaseOperatorLink, ...] = (CustodyRequestLink(),) if _HAS_PAGES else ()


def connection_path(conn_id: str) -> str:
    """
    Return the path of a connection's page.

    :param conn_id: the connection's id. Airflow allows slashes and number signs in it.
    :return: the path; empty if no browser would take it as it is: a part of it is ``.`` or ``..``.
    """
    if not conn_id or any(part in (".", "..") for part in conn_id.split("/")):
        return ""
    return f"{PATH}/connections/{quote(conn_id, safe='')}"


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
