from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from sandbox_api import Api, Raw, Refused

from airflow_custody.sandbox import Sandbox, SandboxError

CREATE = "/whitelists/addresses"
ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}


def split(response: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = response.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), body


def created(sandbox: Sandbox) -> int:
    return len(sandbox.control.whitelist_requests())


def test_status(api: Api, sandbox: Sandbox, refused: Refused) -> None:
    sandbox.control.add_fault(kind="status", status=503)
    assert "test" in refused(api.get("/health"), 503)
    assert api.get("/health").status_code == 200


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


def test_trickle(api: Api, sandbox: Sandbox) -> None:
    whole = api.get("/users/me").content
    sandbox.control.add_fault(kind="trickle", pieces_every=0.002)
    begin = time.perf_counter()
    response = api.get("/users/me", stream=True)
    assert response.content == whole
    assert time.perf_counter() - begin > 0.002 * (len(whole) - 1)
    assert api.get("/users/me").content == whole


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


def test_times_and_skip(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=503, times=2, skip=1)
    assert [api.get("/users/me").status_code for _ in range(5)] == [200, 503, 503, 200, 200]
    assert sandbox.control.faults() == []
    sandbox.control.add_fault(kind="status", status=503, times=None)
    assert [api.get("/users/me").status_code for _ in range(3)] == [503] * 3
    assert len(sandbox.control.faults()) == 1
    sandbox.control.clear_faults()
    assert api.get("/users/me").status_code == 200


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
