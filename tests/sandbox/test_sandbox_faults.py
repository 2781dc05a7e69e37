from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from airflow_custody.sandbox import SandboxError

CREATE = "/whitelists/addresses"
ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}


def split(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(line.lower().split(": ", 1) for line in lines[1:]), body


def created(sandbox):
    return len(sandbox.control.whitelist_requests())


@pytest.fixture
def status_of(call):
    """Make one call and return its status, or None if there is no answer."""

    def status(sandbox, path):
        try:
            return call(sandbox, path).status_code
        except requests.ConnectionError:
            return None

    return status


def test_status(api, sandbox, refused):
    sandbox.control.order_fault(answer="status", status=503)
    assert "test" in refused(api.get("/health"), 503)
    assert api.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("order", "content_type", "text"),
    [
        (
            {"body": {"code": 3, "message": "m", "details": []}},
            "application/json",
            '{"code": 3, "message": "m", "details": []}',
        ),
        ({"body": [1]}, "application/json", "[1]"),
        ({"body": "plain"}, "text/plain; charset=utf-8", "plain"),
        ({"body": '{"cut', "content_type": "application/json"}, "application/json", '{"cut'),
        ({"body": ""}, "text/plain; charset=utf-8", ""),
        ({"headers": {"Content-Type": "x/y", "X-More": "1"}, "body": {}}, "x/y", "{}"),
    ],
)
def test_status_with_a_body(api, sandbox, order, content_type, text):
    sandbox.control.order_fault(answer="status", status=500, **order)
    answer = api.get("/health")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == content_type
    assert answer.text == text
    assert ("x-more" in answer.headers) == ("headers" in order)


def test_status_of_success(api, sandbox):
    for status, text in ((201, "{}"), (202, "{}"), (204, "")):
        sandbox.control.order_fault(answer="status", status=status)
        answer = api.delete("/webhooks/x")
        assert (answer.status_code, answer.text) == (status, text)
    assert api.get("/users/me").status_code == 200


def test_odd_status(api, sandbox):
    sandbox.control.order_fault(answer="status", status=599, retry_after=1.5)
    answer = api.get("/health")
    assert answer.status_code == 599
    assert answer.headers["retry-after"] == "1.5"


def test_html(api, sandbox):
    sandbox.control.order_fault(answer="html")
    sandbox.control.order_fault(answer="html", status=502, body="<html>gateway</html>")
    first, second = api.get("/health"), api.get("/health")
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/html")
    assert first.text.startswith("<html>")
    assert (second.status_code, second.text) == (502, "<html>gateway</html>")


@pytest.mark.parametrize("status", [None, 301, 307, 308])
def test_redirect(api, sandbox, status):
    more = {} if status is None else {"status": status}
    sandbox.control.order_fault(answer="redirect", location="https://elsewhere.example/x", **more)
    answer = api.post(CREATE, ADDRESS)
    assert answer.status_code == (status or 302)
    assert answer.headers["location"] == "https://elsewhere.example/x"
    assert created(sandbox) == 0


@pytest.mark.parametrize("after", [None, 3, "3", "Fri, 31 Dec 2027 23:59:59 GMT", "soon", "-1", ""])
def test_rate_limit(api, sandbox, refused, after):
    sandbox.control.order_fault(answer="rate_limit", **({} if after is None else {"retry_after": after}))
    answer = api.get("/health")
    refused(answer, 429)
    assert answer.headers.get("retry-after") == (None if after is None else str(after))


def test_empty(api, sandbox):
    sandbox.control.order_fault(answer="empty", times=2)
    answer = api.post(CREATE, ADDRESS)
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")
    assert created(sandbox) == 1
    assert api.get("/health").content == b""
    sandbox.control.order_fault(answer="empty", status=204)
    assert api.get("/health").status_code == 204


@pytest.mark.parametrize("answer", ["status", "html", "redirect", "rate_limit", "drop"])
def test_no_work_unless_asked_for(api, sandbox, answer):
    options = {"status": {"status": 500}, "redirect": {"location": "/"}}.get(answer, {})
    for work, count in ((None, 0), (False, 0), (True, 1)):
        more = {} if work is None else {"work": work}
        sandbox.control.order_fault(answer=answer, **options, **more)
        if answer == "drop":
            with pytest.raises(requests.ConnectionError):
                api.post(CREATE, ADDRESS)
        else:
            api.post(CREATE, ADDRESS)
        assert created(sandbox) == count


@pytest.mark.parametrize(
    "answer", ["normal", "empty", "cut_body", "cut_headers", "trickle", "trickle_headers", "large"]
)
def test_work_unless_asked_not_to(sandbox, raw, answer):
    options = {"size": 20} if answer == "large" else {"pieces_every": 0} if "trickle" in answer else {}
    for work, count in ((None, 1), (True, 2), (False, 2)):
        more = {} if work is None else {"work": work}
        sandbox.control.order_fault(answer=answer, **options, **more)
        raw(CREATE, "POST", json.dumps(ADDRESS).encode())
        assert created(sandbox) == count


def test_drop(sandbox, raw):
    for work in (False, True):
        sandbox.control.order_fault(answer="drop", work=work)
        assert raw(CREATE, "POST", json.dumps(ADDRESS).encode()) == b""
        assert created(sandbox) == int(work)
        assert sandbox.control.received()[-1]["status"] is None
        assert sandbox.control.received()[-1]["fault"] == "drop"


def test_cut_body(sandbox, raw):
    whole = split(raw("/users/me"))[2]
    sandbox.control.order_fault(answer="cut_body")
    status, headers, body = split(raw("/users/me"))
    assert status == 200
    assert headers["content-length"] == str(len(whole))
    assert body == whole[: len(whole) // 2]
    for keep in (0, 1, 7):
        sandbox.control.order_fault(answer="cut_body", keep=keep)
        assert split(raw("/users/me"))[2] == whole[:keep]
    assert sandbox.control.received()[-1]["status"] == 200


def test_cut_body_is_seen_by_a_client(api, sandbox):
    sandbox.control.order_fault(answer="cut_body")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        api.get("/health")
    assert api.get("/health").status_code == 200


def test_cut_body_of_a_long_answer(sandbox, raw):
    sandbox.control.set_health_answer({"x": "y" * 5_000_000})
    sandbox.control.order_fault(answer="cut_body")
    assert len(split(raw("/health"))[2]) == (5_000_000 + 8) // 2


def test_cut_headers(sandbox, raw):
    sandbox.control.order_fault(answer="cut_headers")
    answer = raw("/health")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\n\r\n" not in answer
    assert b"content-length" not in answer.lower()


def test_trickle(api, sandbox):
    whole = api.get("/users/me").content
    sandbox.control.order_fault(answer="trickle", piece=len(whole) // 4 + 1, pieces_every=0.05)
    begin = time.perf_counter()
    answer = api.get("/users/me", stream=True)
    first = time.perf_counter() - begin
    assert answer.content == whole
    assert first < 0.05 < 0.14 < time.perf_counter() - begin
    assert api.get("/users/me").content == whole


def test_trickle_headers(sandbox, raw):
    whole = split(raw("/users/me"))
    sandbox.control.order_fault(answer="trickle_headers", piece=30, pieces_every=0.03)
    begin = time.perf_counter()
    status, headers, body = split(raw("/users/me"))
    assert time.perf_counter() - begin > 0.08
    assert (status, body) == (200, whole[2])
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize("answer", ["trickle", "trickle_headers"])
def test_a_client_that_leaves_a_trickle(api, sandbox, answer):
    sandbox.control.order_fault(answer=answer, pieces_every=0.02)
    with api.get("/health", stream=True, timeout=0.1) if answer == "trickle" else pytest.raises(requests.Timeout):
        if answer != "trickle":
            api.get("/health", timeout=0.01)
    api.session.close()
    assert api.get("/health").status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [14, 15, 65_536, 300_000])
def test_large(api, sandbox, size, chunked):
    sandbox.control.order_fault(answer="large", size=size, chunked=chunked)
    answer = api.get("/health")
    assert len(answer.content) == size
    assert set(answer.json()) == {"padding"}
    assert answer.headers.get("content-length") == (None if chunked else str(size))
    assert api.get("/users/me").status_code == 200


def test_a_client_that_leaves_a_large_answer(api, sandbox):
    sandbox.control.order_fault(answer="large", size=2**31)
    with api.get("/health", stream=True) as answer:
        answer.raw.read(10)
    begin = time.perf_counter()
    assert api.get("/health").status_code == 200
    assert time.perf_counter() - begin < 0.5


def test_a_large_answer_holds_up_nobody_else(api, sandbox, status_of):
    sandbox.control.order_fault(answer="large", size=2**31)
    with api.get("/health", stream=True) as answer, ThreadPoolExecutor() as pool:
        reading = pool.submit(lambda: [answer.raw.read(65_536) for _ in range(2_000)])
        while not reading.done():
            begin = time.perf_counter()
            assert status_of(sandbox, "/users/me") == 200
            assert time.perf_counter() - begin < 0.5


def test_delay_before_and_after_the_work(sandbox, api):
    for order, early in (({"delay": 0.15}, 0), ({"delay_after": 0.15}, 1)):
        sandbox.control.reset()
        sandbox.control.order_fault(**order)
        begin = time.perf_counter()
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(api.post, CREATE, ADDRESS)
            time.sleep(0.07)
            assert created(sandbox) == early
            assert answer.result().status_code == 200
        assert time.perf_counter() - begin > 0.15
        assert created(sandbox) == 1
        assert sandbox.control.received()[-1]["fault"] == "normal"


def test_delays_go_with_every_answer(api, sandbox, refused):
    sandbox.control.order_fault(answer="status", status=503, delay=0.05, delay_after=0.05)
    begin = time.perf_counter()
    refused(api.get("/health"), 503)
    assert time.perf_counter() - begin > 0.1


def test_delays_hold_up_nobody_else(api, sandbox, status_of):
    sandbox.control.order_fault(path="/health", delay=0.3, times=5)
    begin = time.perf_counter()
    with ThreadPoolExecutor(6) as pool:
        slow = [pool.submit(status_of, sandbox, "/health") for _ in range(5)]
        time.sleep(0.05)
        assert api.get("/users/me").status_code == 200
        assert time.perf_counter() - begin < 0.25
        assert {one.result() for one in slow} == {200}
    assert time.perf_counter() - begin < 1


def test_work_is_done_for_a_client_that_gave_up(api, sandbox):
    sandbox.control.order_fault(delay=0.1)
    with pytest.raises(requests.Timeout):
        api.post(CREATE, ADDRESS, timeout=0.03)
    deadline = time.monotonic() + 5
    while not created(sandbox) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert created(sandbox) == 1


def test_a_reset_ends_what_is_held_up(api, sandbox):
    sandbox.control.order_fault(delay=0.2)
    with ThreadPoolExecutor() as pool:
        held_up = pool.submit(api.post, CREATE, ADDRESS)
        while not sandbox.control.received():
            time.sleep(0.01)
        sandbox.control.reset()
        with pytest.raises(requests.ConnectionError):
            held_up.result()
    time.sleep(0.21)
    assert created(sandbox) == 0
    sandbox.control.order_fault(delay=0.01)
    assert api.post(CREATE, ADDRESS).status_code == 200


def test_times_and_skip(api, sandbox):
    sandbox.control.order_fault(answer="status", status=503, times=2, skip=1)
    assert [api.get("/users/me").status_code for _ in range(5)] == [200, 503, 503, 200, 200]
    assert sandbox.control.faults() == []
    sandbox.control.order_fault(answer="status", status=503, times=None)
    assert [api.get("/users/me").status_code for _ in range(3)] == [503] * 3
    assert len(sandbox.control.faults()) == 1
    sandbox.control.clear_faults()
    assert api.get("/users/me").status_code == 200


def test_first_match_wins(api, sandbox):
    sandbox.control.order_fault(answer="status", status=501, path="/users")
    sandbox.control.order_fault(answer="status", status=502, times=2)
    sandbox.control.order_fault(answer="status", status=503)
    statuses = [api.get(path).status_code for path in ("/health", "/users/me", "/users/me", "/users/me", "/users/me")]
    assert statuses == [502, 501, 502, 503, 200]


def test_equal_orders_are_two(api, sandbox):
    sandbox.control.order_fault(answer="status", status=503)
    sandbox.control.order_fault(answer="status", status=503)
    assert [api.get("/users/me").status_code for _ in range(3)] == [503, 503, 200]


@pytest.mark.parametrize(
    ("order", "hit"),
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
def test_which_calls(api, sandbox, order, hit):
    sandbox.control.order_fault(answer="status", status=503, **order)
    assert (api.get("/users/me").status_code == 503) is hit


def test_control_routes_have_no_faults(sandbox):
    sandbox.control.order_fault(answer="drop", times=None)
    assert sandbox.control.about()["sandbox"]
    assert sandbox.control.received() == []


@pytest.mark.parametrize(
    ("order", "complaint"),
    [
        ({"answer": "explode"}, "answer"),
        ({"delays": 1}, "delays"),
        ({"delay": -1}, "delay"),
        ({"times": 0}, "times"),
        ({"skip": -1}, "skip"),
        ({"answer": "status"}, "needs status"),
        ({"answer": "status", "status": 99}, "status"),
        ({"answer": "redirect"}, "needs location"),
        ({"answer": "large"}, "needs size"),
        ({"answer": "drop", "status": 500}, "status means nothing"),
        ({"status": 500}, "status means nothing"),
        ({"answer": "rate_limit", "retry_after": "a\r\nb: c"}, "retry_after"),
        ({"answer": "html", "headers": {"a b": "c"}}, "headers"),
        ({"answer": "html", "headers": {"Content-Length": "3"}}, "headers"),
        ({"answer": "redirect", "location": "\u20ac"}, "location"),
    ],
)
def test_bad_orders(sandbox, order, complaint):
    with pytest.raises(SandboxError, match=complaint):
        sandbox.control.order_fault(**order)
    assert sandbox.control.faults() == []


def test_simultaneous_calls_share_no_fault(sandbox, status_of):
    sandbox.control.order_fault(answer="status", status=503, times=10, delay=0.01)
    sandbox.control.order_fault(answer="drop", times=10)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: status_of(sandbox, "/users/me"), range(40)))
    assert (answers.count(503), answers.count(None), answers.count(200)) == (10, 10, 20)
    assert len(sandbox.control.received()) == 40


def test_connections_stay_open(api, sandbox):
    for status in (503, 200, 429):
        sandbox.control.order_fault(answer="status", status=status)
        api.get("/health")
    pools = api.session.get_adapter(sandbox.url).poolmanager.pools
    assert [pools[key].num_connections for key in pools.keys()] == [1]  # noqa: SIM118 - not a dict
