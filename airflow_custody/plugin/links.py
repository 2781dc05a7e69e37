"""The links from a task to the Custody page. Operators import this module, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf
from airflow.version import version

from airflow_custody.plugin import PATH

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey

#: Maximum number of requests in a link, and on a page. The service returns at most this many in one response.
MAX_REQUESTS = 100
_VERSION = tuple(int(part) for part in version.split(".")[:2])
# Since this version, plugins can have pages, and Airflow reads links from XCom.
_HAS_PAGES = _VERSION >= (3, 1)
# Since this version, a link can open a page inside Airflow's frame: the page's path follows the path of the frame.
_FRAME = "/plugin/custody" if _VERSION >= (3, 3) else ""


class CustodyPageLink(BaseOperatorLink):
    """
    The link "Custody page" from a task to the page of its connection.

    Airflow calls :meth:`get_link` in the worker when the task ends, fails or is deferred, and stores the link as an
    XCom.
    """

    name = "Custody page"

    @property
    def xcom_key(self) -> str:
        """The XCom key of the link."""
        return "_link_CustodyPageLink"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """
        Return the link.

        :param operator: the task's operator, after it ran.
        :param ti_key: not used.
        :return: the URL; only its path if ``[api] base_url`` is not set. Empty if the connection's id is not known, or
            if the page is switched off.
        """
        conn_id = _conn_id_of(operator)
        return _url(conn_id, connection_path(conn_id))


class CustodyRequestLink(BaseOperatorLink):
    """The link "Custody request" from a task to the page of its whitelisting requests."""

    name = "Custody request"

    @property
    def xcom_key(self) -> str:
        """The XCom key of the link."""
        return "_link_CustodyRequestLink"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """
        Return the link.

        :param operator: the task's operator, after it ran.
        :param ti_key: not used.
        :return: the URL, in the same form as for :class:`CustodyPageLink`. It is also empty if no request is known.
        """
        try:
            request_ids = operator.linked_request_ids()
        except Exception:
            # The ids are malformed, because the task ended before it checked them. Return no link instead of raising
            # the error, because Airflow would log it as an error of the link.
            return ""
        conn_id = _conn_id_of(operator)
        return _url(conn_id, requests_path(conn_id, request_ids))


#: The links of operators and sensors; none if Airflow cannot show the page.
PAGE_LINKS: tuple[BaseOperatorLink, ...] = (CustodyPageLink(),) if _HAS_PAGES else ()
#: The links of operators and sensors for whitelisting requests; none if Airflow cannot show the page.
REQUEST_LINKS: tuple[BaseOperatorLink, ...] = (CustodyRequestLink(), *PAGE_LINKS) if _HAS_PAGES else ()


def _conn_id_of(operator: Any) -> str:
    """Return the id of a task's connection; empty if it was not rendered, or if the page is switched off."""
    conn_id = operator.custody_conn_id
    is_rendered = isinstance(conn_id, str) and "{{" not in conn_id
    return conn_id if is_rendered and conf.getboolean("custody", "page", fallback=True) else ""


def _url(conn_id: str, path: str) -> str:
    """Return the URL of a page of a connection; empty if there is no such page."""
    base_url = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    # Do not open the page in Airflow's frame if the id contains a number sign, because the frame cuts the path there.
    frame = f"{_FRAME}{urlsplit(base_url).path}" if _FRAME and "#" not in conn_id else ""
    return f"{base_url}{frame}{path}" if path else ""


def connection_path(conn_id: str) -> str:
    """
    Return the path of a connection's page.

    :param conn_id: the connection's id. It may contain slashes and number signs.
    :return: the path; empty if browsers would rewrite it, because a part of it is ``.`` or ``..``.
    """
    if not conn_id or any(part in (".", "..") for part in conn_id.split("/")):
        return ""
    return f"{PATH}/connections/{quote(conn_id, safe='')}"


def requests_path(conn_id: str, request_ids: Sequence[str]) -> str:
    """
    Return the path of the page of one whitelisting request, or of the page that lists several.

    :param conn_id: the connection's id.
    :param request_ids: the requests' ids. The path contains at most a hundred of them, and their total number.
    :return: the path; empty if there is no such page.
    """
    connection = connection_path(conn_id)
    if not connection or not request_ids:
        return ""
    if len(request_ids) == 1:
        return f"{connection}/requests/{quote(request_ids[0], safe='')}"
    named = ",".join(quote(request_id, safe="") for request_id in request_ids[:MAX_REQUESTS])
    total = f"&total={len(request_ids)}" if len(request_ids) > MAX_REQUESTS else ""
    return f"{connection}/requests?ids={named}{total}"
