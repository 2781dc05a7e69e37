from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from sandbox_api import Api, Call, Raw, Refused

from airflow_custody.sandbox import Sandbox, SandboxError

CREATE = "/whitelists/addresses"
ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}
StatusOf = Callable[[Sandbox, str], int | None]


def split(response: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), body


def created(sandbox: Sandbox) -> int:
    return len(sandbox.control.whitelist_requests())


@pytest.fixture
def status_of(call: Call) -> StatusOf:
    """Return a function that makes one call, and returns its status or, without a response, None."""

    def status(sandbox: Sandbox, path: str) -> int | None:
        try:
            return call(sandbox, path).status_code
        except requests.ConnectionError:
            return None

    return status


def test_status(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    sandbox.control.add_fault(kind="status", status=503)
    assert "test" in refused(api.get("/health"), 503)
    assert api.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("options", "content_type", "text"),
    [
        (
            {"body": {"code": 3, "message": "m", "details": []}},
            "application/json",
            '{"code": 3, "message": "m", "details": []}',
        ),
        ({"body": [1]}, "application/json", "[1]"),
        ({"body": "plain"}, "text/plain; charset=utf-8", "plain"),
        ({"body": '{"truncated', "content_type": "application/json"}, "application/json", '{"truncated'),
        ({"body": ""}, "text/plain; charset=utf-8", ""),
        ({"headers": {"Content-Type": "x/y", "X-More": "1"}, "body": {}}, "x/y", "{}"),
    ],
)
def test_status_with_a_body(api: Api, sandbox: Sandbox, options: dict[str, Any], content_type: str, text: str) -> None:
    sandbox.control.add_fault(kind="status", status=500, **options)
    response = api.get("/health")
    assert response.status_code == 500
    assert response.headers["content-type"] == content_type
    assert response.text == text
    assert ("x-more" in response.headers) == ("headers" in options)


def test_status_of_success(api: Api, sandbox: Sandbox) -> None:
    for status, text in ((201, "{}"), (202, "{}"), (204, "")):
        sandbox.control.add_fault(kind="status", status=status)
        response = api.delete("/webhooks/x")
        assert (response.status_code, response.text) == (status, text)
    assert api.get("/users/me").status_code == 200


def test_unknown_status(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=599, retry_after=1.5)
    response = api.get("/health")
    assert response.status_code == 599
    assert response.headers["retry-after"] == "1.5"


def test_html(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="html")
    sandbox.control.add_fault(kind="html", status=502, body="<html>gateway</html>")
    first, second = api.get("/health"), api.get("/health")
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/html")
    assert first.text.startswith("<html>")
    assert (second.status_code, second.text) == (502, "<html>gateway</html>")


@pytest.mark.parametrize("status", [None, 301, 307, 308])
def test_redirect(api: Api, sandbox: Sandbox, status: int | None) -> None:
    more = {} if status is None else {"status": status}
    sandbox.control.add_fault(kind="redirect", location="https://elsewhere.example/x", **more)
    response = api.post(CREATE, ADDRESS)
    assert response.status_code == (status or 302)
    assert response.headers["location"] == "https://elsewhere.example/x"
    assert created(sandbox) == 0


@pytest.mark.parametrize("after", [None, 3, "3", "Fri, 31 Dec 2027 23:59:59 GMT", "soon", "-1", ""])
def test_rate_limit(api: Api, sandbox: Sandbox, refused: Refused, after: Any) -> None:
    sandbox.control.add_fault(kind="rate_limit", **({} if after is None else {"retry_after": after}))
    response = api.get("/health")
    refused(response, 429)
    assert response.headers.get("retry-after") == (None if after is None else str(after))


def test_empty(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="empty", times=2)
    response = api.post(CREATE, ADDRESS)
    assert (response.status_code, response.content, response.headers["content-length"]) == (200, b"", "0")
    assert created(sandbox) == 1
    assert api.get("/health").content == b""
    sandbox.control.add_fault(kind="empty", status=204)
    assert api.get("/health").status_code == 204


@pytest.mark.parametrize("kind", ["status", "html", "redirect", "rate_limit", "drop"])
def test_no_work_unless_asked_for(api: Api, sandbox: Sandbox, kind: str) -> None:
    required: dict[str, dict[str, Any]] = {"status": {"status": 500}, "redirect": {"location": "/"}}
    options = required.get(kind, {})
    for work, count in ((None, 0), (False, 0), (True, 1)):
        more = {} if work is None else {"work": work}
        sandbox.control.add_fault(kind=kind, **options, **more)
        if kind == "drop":
            with pytest.raises(requests.ConnectionError):
                api.post(CREATE, ADDRESS)
        else:
            api.post(CREATE, ADDRESS)
        assert created(sandbox) == count


@pytest.mark.parametrize(
    "kind", ["normal", "empty", "truncate_body", "truncate_headers", "trickle", "trickle_headers", "large"]
)
def test_work_unless_asked_not_to(sandbox: Sandbox, raw: Raw, kind: str) -> None:
    options = {"size": 20} if kind == "large" else {"pieces_every": 0} if "trickle" in kind else {}
    for work, count in ((None, 1), (True, 2), (False, 2)):
        more = {} if work is None else {"work": work}
        sandbox.control.add_fault(kind=kind, **options, **more)
        raw(CREATE, "POST", json.dumps(ADDRESS).encode())
        assert created(sandbox) == count


def test_drop(sandbox: Sandbox, raw: Raw) -> None:
    for work in (False, True):
        sandbox.control.add_fault(kind="drop", work=work)
        assert raw(CREATE, "POST", json.dumps(ADDRESS).encode()) == b""
        assert created(sandbox) == int(work)
        assert sandbox.control.request_log()[-1]["status"] is None
        assert sandbox.control.request_log()[-1]["fault"] == "drop"


def test_truncated_body(sandbox: Sandbox, raw: Raw) -> None:
    whole = split(raw("/users/me"))[2]
    sandbox.control.add_fault(kind="truncate_body")
    status, headers, body = split(raw("/users/me"))
    assert status == 200
    assert headers["content-length"] == str(len(whole))
    assert body == whole[: len(whole) // 2]
    for keep in (0, 1, 7):
        sandbox.control.add_fault(kind="truncate_body", keep=keep)
        assert split(raw("/users/me"))[2] == whole[:keep]
    assert sandbox.control.request_log()[-1]["status"] == 200


def test_a_client_notices_a_truncated_body(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="truncate_body")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        api.get("/health")
    assert api.get("/health").status_code == 200


def test_truncated_body_of_a_long_response(sandbox: Sandbox, raw: Raw) -> None:
    sandbox.control.set_health_response({"x": "y" * 5_000_000})
    sandbox.control.add_fault(kind="truncate_body")
    assert len(split(raw("/health"))[2]) == (5_000_000 + 8) // 2


def test_truncated_headers(sandbox: Sandbox, raw: Raw) -> None:
    sandbox.control.add_fault(kind="truncate_headers")
    response = raw("/health")
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in response
    assert b"content-length" not in response.lower()


def test_trickle(api: Api, sandbox: Sandbox) -> None:
    whole = api.get("/users/me").content
    sandbox.control.add_fault(kind="trickle", piece=len(whole) // 4 + 1, pieces_every=0.05)
    begin = time.perf_counter()
    response = api.get("/users/me", stream=True)
    assert response.content == whole
    assert time.perf_counter() - begin > 0.14
    assert api.get("/users/me").content == whole


def test_trickle_headers(sandbox: Sandbox, raw: Raw) -> None:
    whole = split(raw("/users/me"))
    sandbox.control.add_fault(kind="trickle_headers", piece=30, pieces_every=0.03)
    begin = time.perf_counter()
    status, headers, body = split(raw("/users/me"))
    assert time.perf_counter() - begin > 0.08
    assert (status, body) == (200, whole[2])
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize("kind", ["trickle", "trickle_headers"])
def test_a_client_that_leaves_a_trickle(api: Api, sandbox: Sandbox, kind: str) -> None:
    sandbox.control.add_fault(kind=kind, pieces_every=3600)
    with api.get("/health", stream=True, timeout=60) if kind == "trickle" else pytest.raises(requests.Timeout):
        if kind != "trickle":
            api.get("/health", timeout=0.1)
    api.session.close()
    assert api.get("/health").status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [14, 15, 65_536, 300_000])
def test_large(api: Api, sandbox: Sandbox, size: int, chunked: bool) -> None:
    sandbox.control.add_fault(kind="large", size=size, chunked=chunked)
    response = api.get("/health")
    assert len(response.content) == size
    assert set(response.json()) == {"padding"}
    assert response.headers.get("content-length") == (None if chunked else str(size))
    assert api.get("/users/me").status_code == 200


def test_a_client_that_leaves_a_large_response(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="large", size=2**31)
    with api.get("/health", stream=True) as response:
        response.raw.read(10)
    assert api.get("/health").status_code == 200


def test_a_large_response_delays_no_other_call(api: Api, sandbox: Sandbox, status_of: StatusOf) -> None:
    sandbox.control.add_fault(kind="large", size=2**31)
    with api.get("/health", stream=True) as response, ThreadPoolExecutor() as pool:
        enough = threading.Event()

        def read() -> None:
            while not enough.is_set():
                response.raw.read(65_536)

        reading = pool.submit(read)
        assert [status_of(sandbox, "/users/me") for _ in range(3)] == [200] * 3
        assert not reading.done()
        enough.set()
        reading.result()


def test_delay_before_and_after_the_work(sandbox: Sandbox, api: Api) -> None:
    cases: list[tuple[str, int]] = [("delay", 0), ("delay_after", 1)]
    for name, early in cases:
        lasting: dict[str, Any] = {name: 3600}
        short: dict[str, Any] = {name: 0.15}
        sandbox.control.reset()
        sandbox.control.add_fault(**lasting)
        with ThreadPoolExecutor() as pool:
            response = pool.submit(api.post, CREATE, ADDRESS)
            while not sandbox.control.request_log() or created(sandbox) < early:
                time.sleep(0.01)
            assert created(sandbox) == early
            assert not response.done()
            sandbox.control.reset()
            with pytest.raises(requests.ConnectionError):
                response.result()
        sandbox.control.add_fault(**short)
        begin = time.perf_counter()
        assert api.post(CREATE, ADDRESS).status_code == 200
        assert time.perf_counter() - begin > 0.15
        assert created(sandbox) == 1
        assert sandbox.control.request_log()[-1]["fault"] == "normal"


def test_delays_go_with_every_fault(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    sandbox.control.add_fault(kind="status", status=503, delay=0.05, delay_after=0.05)
    begin = time.perf_counter()
    refused(api.get("/health"), 503)
    assert time.perf_counter() - begin > 0.1


def test_delays_delay_no_other_call(api: Api, sandbox: Sandbox, status_of: StatusOf) -> None:
    sandbox.control.add_fault(path="/health", delay=3600, times=5)
    with ThreadPoolExecutor(6) as pool:
        slow = [pool.submit(status_of, sandbox, "/health") for _ in range(5)]
        # Nor each other.
        while len(sandbox.control.request_log(path="/health")) < 5:
            time.sleep(0.01)
        assert api.get("/users/me").status_code == 200
        assert not any(one.done() for one in slow)
        sandbox.control.reset()


def test_work_is_done_for_a_client_that_gave_up(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(delay=1)
    with pytest.raises(requests.Timeout):
        api.post(CREATE, ADDRESS, timeout=0.5)
    deadline = time.monotonic() + 300
    while not created(sandbox) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert created(sandbox) == 1


def test_a_reset_aborts_delayed_calls(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(delay=3600)
    with ThreadPoolExecutor() as pool:
        delayed = pool.submit(api.post, CREATE, ADDRESS)
        while not sandbox.control.request_log():
            time.sleep(0.01)
        sandbox.control.reset()
        with pytest.raises(requests.ConnectionError):
            delayed.result()
    assert created(sandbox) == 0
    sandbox.control.add_fault(delay=0.01)
    assert api.post(CREATE, ADDRESS).status_code == 200


def test_times_and_skip(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=503, times=2, skip=1)
    assert [api.get("/users/me").status_code for _ in range(5)] == [200, 503, 503, 200, 200]
    assert sandbox.control.faults() == []
    sandbox.control.add_fault(kind="status", status=503, times=None)
    assert [api.get("/users/me").status_code for _ in range(3)] == [503] * 3
    assert len(sandbox.control.faults()) == 1
    sandbox.control.clear_faults()
    assert api.get("/users/me").status_code == 200


def test_first_match_wins(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=501, path="/users")
    sandbox.control.add_fault(kind="status", status=502, times=2)
    sandbox.control.add_fault(kind="status", status=503)
    statuses = [api.get(path).status_code for path in ("/health", "/users/me", "/users/me", "/users/me", "/users/me")]
    assert statuses == [502, 501, 502, 503, 200]


def test_a_fault_for_a_query(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=503, query={"ids": "7"}, times=None)
    sandbox.control.add_fault(kind="status", status=502, query={"tenantId": "2", "x": "y"}, times=None)
    paths = [
        "/whitelists/addresses?ids=6&ids=7&limit=9",
        "/whitelists/addresses?ids=77",
        "/whitelists/addresses",
        "/health?tenantId=2",
        "/health?x=y&tenantId=2",
    ]
    assert [api.get(path).status_code for path in paths] == [503, 200, 200, 200, 502]


def test_equal_faults_are_two(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=503)
    sandbox.control.add_fault(kind="status", status=503)
    assert [api.get("/users/me").status_code for _ in range(3)] == [503, 503, 200]


@pytest.mark.parametrize(
    ("options", "affected"),
    [
        ({}, True),
        ({"method": "GET"}, True),
        ({"method": "get"}, True),
        ({"method": "POST"}, False),
        ({"path": "/users"}, True),
        ({"path": "users/"}, True),
        ({"path": "/users/me"}, True),
        ({"path": "/api/rest/v1/users"}, True),
        ({"path": "/api/rest/v1"}, True),
        ({"path": "/"}, True),
        ({"path": "/user"}, False),
        ({"path": "/users/me/token"}, False),
        ({"path": "/health"}, False),
    ],
)
def test_which_calls(api: Api, sandbox: Sandbox, options: dict[str, Any], affected: bool) -> None:
    sandbox.control.add_fault(kind="status", status=503, **options)
    assert (api.get("/users/me").status_code == 503) is affected


def test_control_routes_have_no_faults(sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="drop", times=None)
    assert sandbox.control.about()["sandbox"]
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "explode"}, "kind"),
        ({"delays": 1}, "delays"),
        ({"delay": -1}, "delay"),
        ({"times": 0}, "times"),
        ({"skip": -1}, "skip"),
        ({"kind": "status"}, "needs status"),
        ({"kind": "status", "status": 99}, "status"),
        ({"kind": "redirect"}, "needs location"),
        ({"kind": "large"}, "needs size"),
        ({"kind": "drop", "status": 500}, "status cannot be used"),
        ({"status": 500}, "status cannot be used"),
        ({"kind": "rate_limit", "retry_after": "a\r\nb: c"}, "retry_after"),
        ({"kind": "html", "headers": {"a b": "c"}}, "headers"),
        ({"kind": "html", "headers": {"Content-Length": "3"}}, "headers"),
        ({"kind": "redirect", "location": "\u20ac"}, "location"),
    ],
)
def test_malformed_faults(sandbox: Sandbox, fault: dict[str, Any], message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        sandbox.control.add_fault(**fault)
    assert sandbox.control.faults() == []


def test_simultaneous_calls_share_no_fault(sandbox: Sandbox, status_of: StatusOf) -> None:
    sandbox.control.add_fault(kind="status", status=503, times=10, delay=0.01)
    sandbox.control.add_fault(kind="drop", times=10)
    with ThreadPoolExecutor(20) as pool:
        responses = list(pool.map(lambda _: status_of(sandbox, "/users/me"), range(40)))
    assert (responses.count(503), responses.count(None), responses.count(200)) == (10, 10, 20)
    assert len(sandbox.control.request_log()) == 40


def test_connections_stay_open(api: Api, sandbox: Sandbox) -> None:
    for status in (503, 200, 429):
        sandbox.control.add_fault(kind="status", status=status)
        api.get("/health")
    adapter = api.session.get_adapter(sandbox.url)
    assert isinstance(adapter, HTTPAdapter)
    pools = adapter.poolmanager.pools
    assert [pools[key].num_connections for key in pools.keys()] == [1]  # noqa: SIM118 - not a dict
