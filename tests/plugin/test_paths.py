"""The paths of pages: from each path, the same connection and request are found again."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.plugin.links import MAX_REQUESTS, connection_path, requests_path


@given(st.text(min_size=1), st.from_regex(r"[0-9]{1,19}", fullmatch=True))
def test_a_path_contains_connection_and_request(conn_id: str, request_id: str) -> None:
    try:
        conn_id.encode()
    except UnicodeEncodeError:
        return
    path = requests_path(conn_id, [request_id])
    if not path:
        assert {".", ".."} & set(conn_id.split("/"))
        return
    parts = urlsplit(path)
    assert not parts.query
    assert not parts.fragment
    assert path.isascii()
    quoted_conn_id, quoted_request_id = parts.path.removeprefix("/custody/connections/").split("/requests/")
    assert parts.path == f"/custody/connections/{quoted_conn_id}/requests/{quoted_request_id}"
    assert "/" not in quoted_conn_id + quoted_request_id
    assert unquote(quoted_conn_id) == conn_id
    assert unquote(quoted_request_id) == request_id


@pytest.mark.parametrize("conn_id", ["", ".", "..", "a/../b", "./a"])
def test_an_id_that_a_browser_would_rewrite_has_no_path(conn_id: str) -> None:
    assert connection_path(conn_id) == ""
    assert requests_path(conn_id, ["1"]) == ""


def test_a_path_contains_at_most_a_hundred_requests_and_their_total() -> None:
    assert requests_path("c", []) == ""
    assert requests_path("c", ["1", "2"]) == "/custody/connections/c/requests?ids=1,2"
    path = requests_path("c" * 250, [str(2**64 - 1)] * 5000)
    assert path.count(",") == MAX_REQUESTS - 1
    assert path.endswith("&total=5000")
    assert len(path) < 4096
