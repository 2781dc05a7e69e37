"""What is measured, and where it goes: received by a StatsD server over a real socket, or by another backend."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_runs import AIRFLOW, execute
from connections import connection_json
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from raw_server import raw_server
from statsd_server import StatsdServer, metrics_on
from task_tries import somebody_creates
from webhook_reads import TYPE, Reader, write_calls

from airflow_custody import metrics
from airflow_custody.cli.main import main
from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.client.http.responses import Observation
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")
ADDRESS = "0x" + "ab" * 20
DATABASE = {"groups": ["database"], "tenant_id": "1"}
NOT_SEARCHED = {"kind": "status", "method": "GET", "skip": 1, "times": None, "status": 404}
LOST = {"kind": "drop", "work": True, "method": "POST"}


class TaskHasEnded(BaseException):
    """What Airflow raises in the middle of whatever a task does, as for ``execution_timeout``."""


def check_health(**arguments: Any) -> Any:
    return execute(lambda: CustodyHealthCheckOperator(task_id="health", **arguments))


def create(**kwargs: Any) -> Any:
    arguments = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", "lookup_wait": 0.3, **kwargs}
    return execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments))


def emit_all(*values: str) -> None:
    """Send each metric once; its tags have these values, and then their own names."""
    for each in metrics.METRICS:
        metrics._emit(each, 1, *(values + each.tags[len(values) :])[: len(each.tags)])


def tag(name: str, lines: list[str]) -> list[str]:
    """Return the values of a tag, in the lines that have it."""
    return [found[1] for each in lines if (found := re.search(rf",{name}=([^,:]+)", each))]


# --- where it goes ---------------------------------------------------------------------------------------------


_IN_A_TRIGGERER = """
import asyncio, os
import airflow.jobs.triggerer_job_runner
from airflow_custody.triggers.health import CustodyHealthTrigger

async def first():
    async for event in CustodyHealthTrigger().run():
        return event.payload["status"]

async def both():
    return await asyncio.gather(first(), first())

# The process that runs triggers is forked from the triggerer.
pid = os.fork()
if not pid:
    os._exit(asyncio.run(both()) != ["error", "error"] or asyncio.run(both()) != ["healthy", "healthy"])
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_in_a_triggerer_two_triggers_share_a_poll(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=403)
    with contextlib.closing(StatsdServer()) as server:
        environment = os.environ | server.environment | {"AIRFLOW_CONN_CUSTODY_DEFAULT": connection_json(sandbox)}
        ran = subprocess.run([sys.executable, "-c", _IN_A_TRIGGERER], env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert sorted(server.received()) == [
            "custody.api.calls.custody_default.list_health_checks.200:1|c",
            "custody.api.calls.custody_default.list_health_checks.403:1|c",
            "custody.health.healthy.custody_default.all:0|g",
            "custody.health.healthy.custody_default.all:1|g",
        ]


def test_the_command_line_sends_nothing(statsd: StatsdServer) -> None:
    assert main(["health", "--conn-id", "custody_default"]) == 0
    assert statsd.received() == []


def test_without_metrics_nothing_is_done() -> None:
    metrics._keeps_tags.cache_clear()
    assert metrics.call_observer("c") is None
    metrics.pending_listed("c", lambda: pytest.fail("called"))


def test_opentelemetry_takes_all_with_their_tags(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        # What Airflow 2 says of its own defaults.
        warnings.simplefilter("ignore", DeprecationWarning)
        package = "airflow.sdk._shared.observability.metrics" if AIRFLOW >= (3, 2) else "airflow.metrics"
        logger = importlib.import_module(f"{package}.otel_logger").SafeOtelLogger
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with metrics_on(lambda *_: logger(provider), statsd_on="False", otel_on="True"):
        emit_all("b\u00fccher & co")
        data = reader.get_metrics_data()
    provider.shutdown()
    assert data is not None
    found = {
        each.name: set(point.attributes)
        for scope in data.resource_metrics[0].scope_metrics
        for each in scope.metrics
        for point in each.data.data_points
        if point.attributes
    }
    assert found == {f"airflow.{each.name}": set(each.tags) for each in metrics.METRICS}
    assert "cannot be sent" not in caplog.text


@pytest.mark.parametrize(
    ("options", "name", "tags"),
    [
        ({}, "custody.creates", {"conn_id": "c", "kind": "webhook", "outcome": "found"}),
        ({"statsd_datadog_metrics_tags": "False"}, "custody.creates.c.webhook.found", {}),
    ],
    ids=["tags", "in the name"],
)
def test_datadog(options: dict[str, str], name: str, tags: dict[str, str]) -> None:
    sent: list[Any] = []
    made = SimpleNamespace(incr=lambda name, count, tags=None: sent.append((name, count, tags or {})))
    with metrics_on(lambda *_: made, statsd_datadog_enabled="True", **options):
        metrics.create_counted("c", "webhook", "found", 2)
    assert sent == [(name, 2, tags)]


def test_any_value_is_one_level_of_a_name_that_airflow_takes(statsd: StatsdServer) -> None:
    @given(st.text(max_size=300))
    @example("a" * 250)
    @example(".".join("a" * 125))
    @example("\u00e9." * 125)
    def check(text: str) -> None:
        emit_all(text, text)
        names = [each.partition(":")[0] for each in statsd.received()]
        levels = [each.name.count(".") + len(each.tags) for each in metrics.METRICS]
        assert [each.count(".") for each in names] == levels
        assert max(map(len, names)) <= 250

    check()
    metrics.create_counted("a.b c", "webhook", "sent")
    assert statsd.received() == ["custody.creates.a__b_c.webhook.sent:1|c"]


def test_no_secret_no_address_no_label_no_url_leaves(sandbox: Sandbox, tagged: StatsdServer) -> None:
    sandbox.control.add_fault("drop", work=True, method="POST")
    create(label="Treasury of ACME")
    create(if_exists="create")
    with pytest.raises(CustodyError), CustodyHook() as hook:
        hook.get_conn().get_whitelist_request("987654")
    text = re.sub(r":[\d.]+\|", ":|", "\n".join(tagged.received("")))
    assert len(text) > 500
    for each in (sandbox.token, ADDRESS, "987654", "3711", "ACME", "127.0.0.1", "http", sandbox.url.rpartition(":")[2]):
        assert each not in text


# --- what fails no task ----------------------------------------------------------------------------------------


class Broken:
    """A backend that fails, as Airflow lets some of their errors pass."""

    def incr(self, *_: object, **__: object) -> None:
        raise ValueError("the metrics backend is away")

    gauge = timing = incr


def no_backend(*_: object) -> Any:
    raise RuntimeError("the metrics backend cannot be made")


@pytest.mark.parametrize(
    ("factory", "is_on", "why"),
    [
        (lambda *_: Broken(), "True", "ValueError"),
        (no_backend, "True", "RuntimeError"),
        (no_backend, "perhaps", "AirflowConfigException"),
    ],
    ids=["broken", "none", "wrong configuration"],
)
def test_a_failing_backend_fails_no_task(
    caplog: pytest.LogCaptureFixture, sandbox: Sandbox, factory: Any, is_on: str, why: str
) -> None:
    with metrics_on(factory, statsd_on=is_on):
        check_health()
        create()
    assert len(sandbox.control.whitelist_requests()) == 1
    ours = [each for each in caplog.records if each.name == metrics.__name__ and each.levelno >= logging.WARNING]
    assert [each.getMessage().partition(why)[0] for each in ours] == ["Metrics cannot be sent: "]


def test_what_cannot_be_measured_fails_nothing(tagged: StatsdServer, caplog: pytest.LogCaptureFixture) -> None:
    metrics.pending_listed("c", lambda: [datetime(2026, 1, 1), datetime.now(timezone.utc)])
    assert tagged.received() == []
    assert "Metrics cannot be sent" in caplog.text


def test_an_observer_that_fails_loses_no_response(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    with CustodyClient(sandbox.url, sandbox.token) as client:
        client.observe(lambda observation: 1 / 0)  # type: ignore[arg-type]
        client.observe(seen.append)
        assert client.list_health_checks()
    assert len(seen) == 1
    assert "list health checks: an observer failed: ZeroDivisionError" in caplog.text


# --- calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "extra", "statuses"),
    [
        ({"kind": "status", "status": 503}, {"max_retries": 1}, ["503", "200"]),
        ({"kind": "drop"}, {"max_retries": 1}, ["none", "200"]),
        ({"kind": "drop"}, {"proxy": "http://127.0.0.1:9", "allow_http": True}, ["none"]),
        ({"kind": "large", "size": 4096}, {"max_response_bytes": 1024}, ["none"]),
    ],
    ids=["tried again", "no response", "no connection", "not all of it"],
)
def test_each_exchange_counts(
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    tagged: StatsdServer,
    fault: dict[str, Any],
    extra: dict[str, Any],
    statuses: list[str],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **extra))
    sandbox.control.add_fault(**fault)
    with CustodyHook() as hook, contextlib.suppress(CustodyError):
        hook.get_conn().list_health_checks()
    assert tagged.received() == [
        f"custody.api.calls,conn_id=custody_default,operation=list_health_checks,status={each}:1|c" for each in statuses
    ]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no such signal")
def test_a_call_that_ends_with_its_task(monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer) -> None:
    def end(*_: object) -> None:
        raise TaskHasEnded

    thread, before = threading.get_ident(), signal.signal(signal.SIGALRM, end)
    try:
        with raw_server(lambda _: signal.pthread_kill(thread, signal.SIGALRM)) as (url, _), CustodyHook() as hook:
            connection = json.dumps({"conn_type": "custody", "host": url, "password": "token"})
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection)
            with pytest.raises(TaskHasEnded):
                hook.get_conn().list_health_checks()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert tag("status", tagged.received()) == ["none"]


def test_what_was_not_sent_is_no_call(tagged: StatsdServer) -> None:
    def refuse() -> None:
        raise CustodyError("another try has taken over")

    request = WhitelistRequest(label="L", address=ADDRESS, blockchain="ETH")
    with CustodyHook() as hook, pytest.raises(CustodyError, match="taken over"):
        hook.get_conn().create_whitelist_request(request, before_send=refuse)
    assert tagged.received() == []


def test_a_status_that_http_does_not_know_makes_no_series(tagged: StatsdServer) -> None:
    count = metrics.call_observer("c")
    assert count is not None
    for status in (100, 599, 600, 999):
        count(Observation(status, operation="get rules"))
    assert tag("status", tagged.received()) == ["100", "599", "other", "other"]


# --- health ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "arguments", "line"),
    [
        (lambda control: None, {}, "custody_default.all:1|g"),
        # The whole listing counts, whatever the task is about.
        (lambda control: control.update_health(group="hsm", status="failure"), DATABASE, "custody_default.1:0|g"),
        (lambda control: control.set_health([]), {}, "custody_default.all:0|g"),
        (lambda control: control.add_fault("status", status=403), {}, "custody_default.all:0|g"),
        (lambda control: control.add_fault("html"), {}, "custody_default.all:0|g"),
        (lambda control: control.add_fault("drop"), {}, "custody_default.all:0|g"),
        (lambda control: None, {"custody_conn_id": "not_there"}, "not_there.all:0|g"),
    ],
    ids=["healthy", "another group", "empty", "refused", "a page", "no response", "no connection"],
)
def test_whether_it_is_healthy_is_sent_whatever_happens(
    sandbox: Sandbox, statsd: StatsdServer, break_it: Any, arguments: dict[str, Any], line: str
) -> None:
    break_it(sandbox.control)
    with contextlib.suppress(CustodyError, CustodyFailException):
        check_health(**arguments)
    assert statsd.received("custody.health") == [f"custody.health.healthy.{line}"]


# --- creates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "fails", "outcomes"),
    [
        ([], (), ["sent"]),
        ([{"kind": "rate_limit", "method": "POST", "retry_after": 61}], CustodyError, ["sent"]),
        ([LOST], (), ["sent", "found"]),
        ([{"kind": "drop", "method": "POST"}], CustodyError, ["sent"]),
        ([LOST, NOT_SEARCHED], CustodyFailException, ["sent", "unknown"]),
    ],
    ids=["created", "refused", "lost and found", "came to nothing", "nobody knows"],
)
def test_what_became_of_a_create(
    sandbox: Sandbox, tagged: StatsdServer, faults: list[dict[str, Any]], fails: Any, outcomes: list[str]
) -> None:
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)
    for fault in faults:
        sandbox.control.add_fault(**fault)
    with pytest.raises(fails) if fails else contextlib.nullcontext():
        create()
    creates = tagged.received("custody.creates")
    assert tag("outcome", creates) == outcomes
    assert creates[0] == "custody.creates,conn_id=custody_default,kind=whitelisting_request,outcome=sent:1|c"
    if not faults:
        # One that is used in place of another one is none.
        create()
        assert tagged.received("custody.creates") == []


def test_a_create_that_ends_with_its_task_was_sent(tagged: StatsdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = CustodyClient.create_whitelist_request

    def end(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        raise TaskHasEnded

    monkeypatch.setattr(CustodyClient, "create_whitelist_request", end)
    with pytest.raises(TaskHasEnded):
        create()
    assert tag("outcome", tagged.received("custody.creates")) == ["sent"]


# --- pending requests ------------------------------------------------------------------------------------------


def test_the_age_of_the_oldest_is_sent_only_if_it_is_known(statsd: StatsdServer) -> None:
    now = datetime.now(timezone.utc)
    moments = [now - timedelta(hours=1), now, now + timedelta(hours=1)]
    metrics.pending_listed("c", partial(iter, moments))
    (line,) = statsd.received("custody.whitelist.oldest_pending_age_seconds.c:")
    assert 3600 <= float(line.partition(":")[2].removesuffix("|g")) < 7200
    metrics.pending_listed("c", partial(iter, [None, *moments]))
    assert statsd.received() == []
    # A clock that is ahead.
    metrics.pending_listed("c", partial(iter, moments[2:]))
    assert statsd.received() == ["custody.whitelist.oldest_pending_age_seconds.c:0|g"]


def test_a_plan_sends_it(sandbox: Sandbox, tmp_path: Path, statsd: StatsdServer) -> None:
    (tmp_path / "whitelist.csv").write_text(f"label,address,blockchain\na,{ADDRESS},ETH\n")
    request = somebody_creates(sandbox)
    age = "custody.whitelist.oldest_pending_age_seconds.custody_default:"
    for is_zero in (False, True):
        execute(lambda: CustodyPlanWhitelistOperator(task_id="plan", path=str(tmp_path / "whitelist.csv")))
        (line,) = statsd.received("custody.whitelist")
        assert line.startswith(age)
        assert line.endswith(":0|g") is is_zero
        sandbox.control.set_whitelist_status(request, "APPROVED")


# --- webhook calls ---------------------------------------------------------------------------------------------


def test_a_task_counts_what_it_emits(sandbox: Sandbox, statsd: StatsdServer) -> None:
    reader = Reader(start="beginning")
    write_calls(sandbox, str(sandbox.control.add_webhook(type=TYPE)["id"]), 1, 2, 3)
    assert reader.ids() == ["1", "2", "3"]
    assert statsd.received("custody.webhook") == ["custody.webhook_calls.read.custody_default:3|c"]
    assert reader.ids() is None
    assert statsd.received("custody.webhook") == []


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="Airflow cannot acknowledge events")
def test_a_watcher_counts_what_it_fires(sandbox: Sandbox, statsd: StatsdServer) -> None:
    from watcher_runs import Triggerer, add_call, run, until

    async def scenario() -> None:
        triggerer, _ = await Triggerer.watching()
        add_call(sandbox, "a")
        await until(lambda: triggerer.persisted)
        await triggerer.kill()

    add_call(sandbox, "before")
    run(scenario)
    assert statsd.received("custody.webhook") == ["custody.webhook_calls.read.custody_default:1|c"]
