"""
This package beside Airflow's HTTP provider: the same faults for both, from the same sandbox.

Each test measures one row of the table in the documentation, and compares it with what stands there.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import AIRFLOW, Run, load, redacted, run_dag
from authorities import Authority
from clocks import SkippingTime
from connections import connection_json
from task_log import TaskLog

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.sandbox import Sandbox

pytest.importorskip("airflow.providers.http.operators.http", reason="the HTTP provider is not installed")
if AIRFLOW < (3, 3):
    pytest.skip("the comparison is measured on Airflow 3.3", allow_module_level=True)

from airflow.providers.http.triggers.http import HttpSensorTrigger

from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "explanation" / "comparison.md"
CREATE = {"method": "POST", "path": "/whitelists/addresses"}
READ = {"method": "GET", "path": "/whitelists/addresses"}
ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
SIDES = ("before", "after")
_ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)

pytestmark = [pytest.mark.usefixtures("airflow_db"), pytest.mark.filterwarnings("ignore")]


def rows() -> dict[str, tuple[str, str]]:
    """Return the measured table of the page: both results by what happens."""
    text = re.sub(r"\s*\{shown\}`[^`]*`", "", PAGE.read_text())
    _, _, section = text.partition("% measured")
    return {name: (theirs, ours) for name, theirs, ours in _ROW.findall(section.partition("% end")[0])}


def check(name: str, theirs: str, ours: str) -> None:
    print(f"| {name} | {theirs} | {ours} |")
    assert rows()[name] == (theirs, ours)


@pytest.fixture
def connections(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Define the connections of both, with a token."""

    def define(token: str) -> None:
        http = {"conn_type": "http", "host": sandbox.url, "password": token}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_HTTP", json.dumps(http))
        custody = json.loads(connection_json(sandbox)) | {"password": token}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(custody))

    define(sandbox.token)
    return define


def run(side: str, *, only_create: bool = True) -> Run:
    """Run the DAG of a side; by default only its task that creates."""
    module = load(ROOT / "docs" / "snippets" / f"migrate_{side}.py")
    dag = module.dag.partial_subset("create") if only_create else module.dag
    return run_dag(dag)


def results(sandbox: Sandbox, measure: Callable[[str], str]) -> list[str]:
    """Return what both sides do: the HTTP provider, then this package."""
    found = []
    for side in SIDES:
        # Without what the other side has asked for.
        sandbox.control.reset()
        found.append(measure(side))
    return found


def number_of_requests(sandbox: Sandbox, before: int) -> str:
    count = len(sandbox.control.whitelist_requests()) - before
    return f"{count} request{'' if count == 1 else 's'}"


def tries_and_calls(sandbox: Sandbox, run: Run) -> str:
    tries, calls = run.tries["create", -1], len(sandbox.control.request_log())
    return f"task {run.state_of('create')}, {tries} tr{'y' if tries == 1 else 'ies'}, {calls} call{'s' * (calls != 1)}"


@pytest.mark.usefixtures("connections")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("response to a create lost, two retries", {"kind": "drop", "work": True}),
        ("gateway's page instead of the response to a create, two retries", {"kind": "html", "work": True}),
        ("503 after the create was processed, two retries", {"kind": "status", "status": 503, "work": True}),
    ],
    ids=["lost", "page", "503"],
)
def test_what_a_create_leaves_at_the_service(sandbox: Sandbox, name: str, fault: dict[str, Any]) -> None:
    def measure(side: str) -> str:
        before = len(sandbox.control.whitelist_requests())
        sandbox.control.add_fault(**CREATE, **fault)
        state = run(side).state_of("create")
        return f"task {state}, {number_of_requests(sandbox, before)}"

    check(name, *results(sandbox, measure))


@pytest.mark.usefixtures("connections")
def test_an_address_with_a_typo(sandbox: Sandbox, tmp_path: Path) -> None:
    def measure(side: str) -> str:
        path = tmp_path / f"{side}.py"
        text = (ROOT / "docs" / "snippets" / f"migrate_{side}.py").read_text()
        path.write_text(text.replace(ADDRESS, ADDRESS[:-1]))
        return tries_and_calls(sandbox, run_dag(load(path).dag.partial_subset("create")))

    check("address that lacks a character, two retries", *results(sandbox, measure))


def test_an_expired_token(sandbox: Sandbox, connections: Callable[[str], None]) -> None:
    connections(sandbox.control.add_token(roles=["TPUser"], jwt=True, expires_in=-60))

    def measure(side: str) -> str:
        return tries_and_calls(sandbox, run(side))

    check("token that has expired (a JWT), two retries", *results(sandbox, measure))


@pytest.mark.usefixtures("connections")
def test_retry_after(sandbox: Sandbox, waits: SkippingTime) -> None:
    def measure(side: str) -> str:
        sandbox.control.add_fault(kind="rate_limit", retry_after=3, **CREATE)
        before = waits.skipped
        state = run(side).state_of("create")
        first, second = (each["time"] for each in sandbox.control.request_log(**CREATE))
        seconds = second - first + waits.skipped - before
        return f"task {state}, next call {'after' if seconds >= 3 else 'before'} that time"

    check("429 with `Retry-After: 3` to a create, `retry_delay` 1 s", *results(sandbox, measure))


@pytest.mark.parametrize("form", ["plain", "in base64"])
def test_an_error_body_that_echoes_the_token(
    sandbox: Sandbox, connections: Callable[[str], None], task_log: TaskLog, form: str
) -> None:
    def measure(side: str) -> str:
        token = sandbox.control.add_token(roles=["TPUser"], user_id=f"echo-{side}-{form}")
        connections(token)
        echo = token if form == "plain" else base64.b64encode(token.encode()).decode()
        sandbox.control.add_fault(kind="status", status=400, body={"message": "no", "sent": echo}, times=None, **CREATE)
        run(side)
        return "in the log" if echo in redacted(task_log.text) else "not in the log"

    check(f"error body that echoes the token, {form}", *results(sandbox, measure))


async def first_event(trigger: Any, seconds: float) -> str:
    """Return how a trigger ends."""
    events = trigger.run()
    try:
        payload = (await asyncio.wait_for(anext(events), seconds)).payload
    except asyncio.TimeoutError:
        return "still waits"
    except Exception as error:
        return f"fails: {type(error).__name__}"
    finally:
        await events.aclose()
    return f"event: {payload['status'] if isinstance(payload, dict) else 'success'}"


def test_a_private_ca_in_deferrable_mode(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    _, bundle, certificate = authority
    with Sandbox(certfile=certificate, keyfile=certificate) as server:
        extra = {"verify": bundle}
        http = {"conn_type": "http", "host": server.url, "extra": extra}
        custody = {"conn_type": "custody", "host": server.url, "password": server.token, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_HTTP", json.dumps(http))
        monkeypatch.setenv("AIRFLOW_CONN_PRIVATE_CA", json.dumps(custody))
        headers = {"Authorization": f"Bearer {server.token}"}
        theirs = HttpSensorTrigger(endpoint="api/rest/v1/health", http_conn_id="custody_http", headers=headers)
        ours = CustodyHealthTrigger(custody_conn_id="private_ca")
        ended = [asyncio.run(first_event(each, 10)) for each in (theirs, ours)]
    check("private CA (`verify` is the path of its bundle), deferred", *ended)


@pytest.mark.usefixtures("connections")
def test_a_refusal_while_deferred(sandbox: Sandbox) -> None:
    def measure(side: str) -> str:
        sandbox.control.add_fault(kind="status", status=403, body={"message": "no", "code": 7}, times=None)
        theirs = HttpSensorTrigger(endpoint="api/rest/v1/health", http_conn_id="custody_http")
        trigger = theirs if side == "before" else CustodyHealthTrigger()
        ended = asyncio.run(first_event(trigger, 2))
        calls = len(sandbox.control.request_log())
        return f"{ended}, {'more than 20 calls in 2 s' if calls > 20 else f'{calls} call' + 's' * (calls != 1)}"

    check("403 while deferred, `poke_interval` 5 s", *results(sandbox, measure))


@pytest.mark.usefixtures("connections")
def test_twenty_deferred_sensors(sandbox: Sandbox) -> None:
    """Twenty sensors wait for the same request for 3.5 s, and poll every second."""

    with CustodyClient(sandbox.url, sandbox.token) as client:
        number = client.create_whitelist_request(WhitelistRequest(label="Treasury", address=ADDRESS, blockchain="ETH"))

    def measure(side: str) -> str:
        headers = {"Authorization": f"Bearer {sandbox.token}"}

        def trigger() -> Any:
            if side == "before":
                # Not there yet: a 404, the only response that its trigger waits on.
                endpoint = "api/rest/v1/whitelists/addresses/9999"
                return HttpSensorTrigger(endpoint, "custody_http", headers=headers, poke_interval=1)
            return CustodyWhitelistRequestTrigger(request_id=number, poke_interval=1)

        async def wait() -> None:
            await asyncio.gather(*(first_event(trigger(), 3.5) for _ in range(20)))

        asyncio.run(wait())
        calls = len(sandbox.control.request_log())
        return "more than 40 calls" if calls > 40 else "at most 12 calls" if calls <= 12 else f"{calls} calls"

    check("20 sensors wait deferred for the same request for 3.5 s, polling every second", *results(sandbox, measure))
