from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.plugin.links import MAX_REQUESTS, connection_path, requests_path


@given(st.text(min_size=1), st.from_regex(r"[0-9]{1,19}", fullmatch=True))
def test_a_path_leads_back_to_what_it_names(conn_id: str, request_id: str) -> None:
    try:
        conn_id.encode()
    except UnicodeEncodeError:
        return
    path = requests_path(conn_id, [request_id])
    if not path:
        assert {".", ".."} & set(conn_id.split("/"))
        return
    parts = urlsplit(path)
    assert (parts.query, parts.fragment) == ("", "")
    assert path.isascii()
    empty, root, connections, conn, requests, number = parts.path.split("/")
    assert (empty, root, connections, requests) == ("", "custody", "connections", "requests")
    assert (unquote(conn), unquote(number)) == (conn_id, request_id)


@pytest.mark.parametrize("conn_id", ["", ".", "..", "a/../b", "./a"])
def test_what_a_browser_would_rewrite_has_no_path(conn_id: str) -> None:
    assert connection_path(conn_id) == ""
    assert requests_path(conn_id, ["1"]) == ""


def test_several_requests_are_named_in_the_query_and_of_many_the_first() -> None:
    assert requests_path("c", ["1", "2"]) == "/custody/connections/c/requests?ids=1,2"
    assert requests_path("c", []) == ""
    path = requests_path("c" * 250, [str(2**64 - 1)] * 5000)
    assert path.count(",") == MAX_REQUESTS - 1
    assert path.endswith("&total=5000")
    assert len(path) < 4096
