from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from support.service.sandbox_api import ETH, PATH, Api

from airflow_custody.sandbox import Sandbox, SandboxError

ADDRESS = {"blockchain": "ETH", "label": "x", "address": ETH}
ELSEWHERE = "https://elsewhere.example/x"


def created(sandbox: Sandbox) -> int:
    return len(sandbox.control.whitelist_requests())


@pytest.mark.parametrize(
    ("fault", "status", "seen"),
    [
        ({"kind": "status", "status": 503}, 503, b"a fault added by a test"),
        ({"kind": "status", "status": 404, "body": {"message": "no route"}}, 404, b'{"message": "no route"}'),
        ({"kind": "html", "status": 502, "body": "<html>gateway</html>"}, 502, b"\r\n\r\n<html>gateway</html>"),
        ({"kind": "redirect", "location": ELSEWHERE, "status": 308}, 308, b"location: " + ELSEWHERE.encode()),
        ({"kind": "rate_limit", "retry_after": 3}, 429, b"retry-after: 3\r\n"),
        ({"kind": "rate_limit", "retry_after": "soon"}, 429, b"retry-after: soon\r\n"),
        ({"kind": "empty"}, 200, b"content-length: 0"),
        ({"kind": "drop"}, None, b""),
        ({}, 200, b'{"result":{"id":'),
        ({"kind": "truncate_body"}, 200, b"content-length: "),
        ({"kind": "truncate_headers"}, 200, b"content-"),
        ({"kind": "trickle", "pieces_every": 0}, 200, b'{"result":{"id":'),
        ({"kind": "large", "size": 20}, 200, b'{"padding":"xxxxxx"}'),
        ({"kind": "large", "size": 20, "chunked": True}, 200, b"transfer-encoding: chunked"),
    ],
    ids=str,
)
def test_a_fault_has_its_response_and_does_the_work_or_not(
    sandbox: Sandbox, raw: Callable[..., bytes], fault: dict[str, Any], status: int | None, seen: bytes
) -> None:
    does_work = fault.get("kind") not in ("status", "html", "redirect", "rate_limit", "drop")
    expected = 0
    for work in (None, False, True):
        sandbox.control.add_fault(**fault, work=work)
        response = raw(PATH, "POST", json.dumps(ADDRESS).encode())
        expected += does_work if work is None else work
        assert created(sandbox) == expected
        assert sandbox.control.request_log()[-1]["status"] == status
        assert sandbox.control.faults() == []
    assert response.startswith(f"HTTP/1.1 {status} ".encode() if status else b"")
    assert seen.lower() in response.lower()
    assert bool(response) is (status is not None)


@pytest.mark.parametrize(("delay", "early"), [("delay", 0), ("delay_after", 1)])
def test_a_delay_before_or_after_the_work(sandbox: Sandbox, api: Api, delay: str, early: int) -> None:
    lasting: dict[str, Any] = {delay: 3600}
    sandbox.control.add_fault(**lasting)
    with ThreadPoolExecutor() as pool:
        response = pool.submit(api.post, PATH, ADDRESS)
        while not sandbox.control.request_log() or created(sandbox) < early:
            time.sleep(0.01)
        assert created(sandbox) == early
        assert not response.done()
        # A reset aborts the delayed call.
        sandbox.control.reset()
        with pytest.raises(requests.ConnectionError):
            response.result()
    short: dict[str, Any] = {delay: 0.15}
    sandbox.control.add_fault(**short)
    begin = time.perf_counter()
    assert api.post(PATH, ADDRESS).status_code == 200
    assert time.perf_counter() - begin > 0.15


def test_times_and_skip(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_fault(kind="status", status=503, times=2, skip=1)
    assert [api.get("/users/me").status_code for _ in range(5)] == [200, 503, 503, 200, 200]
    sandbox.control.add_fault(kind="status", status=503, times=None)
    assert [api.get("/users/me").status_code for _ in range(3)] == [503] * 3
    assert len(sandbox.control.faults()) == 1
    sandbox.control.clear_faults()
    assert api.get("/users/me").status_code == 200


@pytest.mark.parametrize(
    ("options", "path", "affected"),
    [
        ({}, "/users/me", True),
        ({"method": "POST"}, "/users/me", False),
        ({"path": "/api/rest/v1/users"}, "/users/me", True),
        ({"path": "/user"}, "/users/me", False),
        ({"query": {"ids": "7"}}, f"{PATH}?ids=6&ids=7&limit=9", True),
        ({"query": {"ids": "7"}}, f"{PATH}?ids=77", False),
        ({"query": {"tenantId": "2", "x": "y"}}, "/health?tenantId=2", False),
        ({"query": {"tenantId": "2", "x": "y"}}, "/health?x=y&tenantId=2", True),
    ],
    ids=str,
)
def test_which_calls(api: Api, sandbox: Sandbox, options: dict[str, Any], path: str, affected: bool) -> None:
    sandbox.control.add_fault(kind="status", status=503, **options)
    assert (api.get(path).status_code == 503) is affected


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"delays": 1}, "delays"),
        ({"kind": "rate_limit", "retry_after": "a\r\nb: c"}, "retry_after"),
        ({"kind": "redirect", "location": "\u20ac"}, "location"),
    ],
    ids=str,
)
def test_malformed_faults(sandbox: Sandbox, fault: dict[str, Any], message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        sandbox.control.add_fault(**fault)
    assert sandbox.control.faults() == []
