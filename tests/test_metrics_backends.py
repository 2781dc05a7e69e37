"""Where metrics go: what each backend takes, what happens without one and with one that fails."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_runs import AIRFLOW, execute, new_dag, run_dag
from connections import connection_json
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from request_triggers import events
from statsd_server import StatsdServer, backend, metrics_on
from task_tries import somebody_creates

from airflow_custody import metrics, metrics_catalogue
from airflow_custody.client import CustodyClient
from airflow_custody.client.health.criteria import HealthCriteria
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

with warnings.catch_warnings():
    # What Airflow 2 says of its own defaults.
    warnings.simplefilter("ignore", DeprecationWarning)
    package = "airflow.sdk._shared.observability.metrics" if AIRFLOW >= (3, 2) else "airflow.metrics"
    otel_logger, validators = (importlib.import_module(f"{package}.{each}") for each in ("otel_logger", "validators"))

pytestmark = pytest.mark.usefixtures("connection")
ADDRESS = "0x" + "ab" * 20
# The shortest limit: that of OpenTelemetry in Airflow 2, prefix included.
_MAX_NAME = 63


def emit_all(conn_id: str = "custody_default") -> None:
    """Send each metric once."""
    for each in metrics_catalogue.METRICS:
        value: Any = 1 if each.kind != "timer" else timedelta(seconds=1)
        metrics._emit(each, value, conn_id, *each.tags[1:])


@pytest.fixture
def otel(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with backend(monkeypatch, lambda *_: otel_logger.SafeOtelLogger(provider), otel_on="True"):
        yield reader
    provider.shutdown()


def test_opentelemetry_takes_all_with_their_tags(otel: InMemoryMetricReader, caplog: pytest.LogCaptureFixture) -> None:
    emit_all("b\u00fccher & co")
    data = otel.get_metrics_data()
    assert data is not None
    found = {
        each.name: set(point.attributes)
        for scope in data.resource_metrics[0].scope_metrics
        for each in scope.metrics
        for point in each.data.data_points
        if point.attributes
    }
    assert found == {f"airflow.{each.name}": set(each.tags) for each in metrics_catalogue.METRICS}
    assert "cannot be sent" not in caplog.text


@pytest.mark.parametrize("metric", metrics_catalogue.METRICS, ids=lambda each: each.name)
def test_airflow_takes_the_names(metric: metrics_catalogue.Metric) -> None:
    validators.stat_name_otel_handler("airflow", metric.name, max_length=_MAX_NAME)
    longest = ".".join([metric.name, *(["x" * metrics._MAX_VALUE] * len(metric.tags))])
    assert len(validators.stat_name_default_handler(longest)) <= 250


@given(st.text(max_size=300))
def test_airflow_takes_every_value(text: str) -> None:
    value = metrics.tag_value(text)
    assert value
    assert validators.stat_name_default_handler(value, max_length=metrics._MAX_VALUE) == value


def test_long_values_that_differ_at_the_end_stay_apart() -> None:
    values = {metrics.tag_value("x" * 249 + each) for each in "abc"}
    assert len(values) == 3


def test_a_value_keeps_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with metrics_on(monkeypatch) as server:
        metrics.create_counted("a.b c", "webhook", "sent")
        assert [each.name for each in server.received()] == ["custody.creates.a__b_c.webhook.sent"]


@pytest.mark.parametrize("value", ["a" * 250, ".".join("a" * 125), "é." * 125])
def test_names_of_the_longest_values_are_taken(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with metrics_on(monkeypatch) as server:
        for each in metrics_catalogue.METRICS:
            values = [value if tag in ("conn_id", "dag_id", "task_id", "tenant_id") else tag for tag in each.tags]
            metrics._emit(each, timedelta(seconds=1) if each.kind == "timer" else 1, *values)
        names = [each.name for each in server.received()]
    assert len(names) == len(metrics_catalogue.METRICS)
    assert max(len(each) for each in names) <= 250
    assert all(
        each.count(".") == metric.name.count(".") + len(metric.tags)
        for each, metric in zip(names, metrics_catalogue.METRICS, strict=True)
    )


def test_datadog_without_tags_has_the_values_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, Any]] = []
    made = SimpleNamespace(incr=lambda name, count, tags=None: sent.append((name, tags)))
    with backend(monkeypatch, lambda *_: made, statsd_datadog_enabled="True"):
        metrics.create_counted("c", "webhook", "found", 2)
    with backend(monkeypatch, lambda *_: made, statsd_datadog_enabled="True", statsd_datadog_metrics_tags="False"):
        metrics.create_counted("c", "webhook", "found", 2)
    tags = {"conn_id": "c", "kind": "webhook", "outcome": "found"}
    assert [(name, each or None) for name, each in sent] == [
        ("custody.creates", tags),
        ("custody.creates.c.webhook.found", None),
    ]


# --- a backend that fails --------------------------------------------------------------------------------------


class Broken:
    """A backend that fails, as Airflow lets some of their errors pass."""

    def incr(self, *_: object, **__: object) -> None:
        raise ValueError("the metrics backend is away")

    gauge = timing = incr


def no_backend(*_: object) -> Any:
    raise RuntimeError("the metrics backend cannot be made")


@pytest.mark.parametrize("factory", [lambda *_: Broken(), no_backend], ids=["broken", "none"])
def test_a_failing_backend_fails_no_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sandbox: Sandbox, factory: Any
) -> None:
    with backend(monkeypatch, factory, statsd_on="True"):
        execute(lambda: CustodyHealthCheckOperator(task_id="health"))
        arguments: dict[str, Any] = {"task_id": "create", "label": "L", "address": ADDRESS, "blockchain": "ETH"}
        execute(lambda: CustodyCreateWhitelistRequestOperator(**arguments))
        emit_all()
    assert len(sandbox.control.whitelist_requests()) == 1
    warnings = [each for each in caplog.records if each.name == metrics.__name__ and each.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "Metrics cannot be sent" in warnings[0].getMessage()


def test_a_wrong_configuration_fails_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with backend(monkeypatch, no_backend, statsd_on="perhaps"):
        emit_all()
        assert metrics.call_observer("c") is None
    assert "Metrics cannot be sent: AirflowConfigException" in caplog.text


def test_what_cannot_be_measured_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with metrics_on(monkeypatch) as server:
        with metrics.health_listed("c", HealthCriteria()) as checks:
            checks.append(None)  # type: ignore[arg-type]
        metrics.pending_listed("c", lambda: [datetime(2026, 1, 1), datetime.now(timezone.utc)])
        assert server.received() == []
    assert caplog.text.count("Metrics cannot be sent") == 1


def test_an_observer_that_fails_loses_no_response(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    with CustodyClient(sandbox.url, sandbox.token) as client:
        client.observe(lambda observation: 1 / 0)  # type: ignore[arg-type]
        client.observe(seen.append)
        assert client.list_health_checks()
    assert len(seen) == 1
    assert "list health checks: an observer failed: ZeroDivisionError" in caplog.text


# --- without one -----------------------------------------------------------------------------------------------


def test_without_metrics_nothing_is_done(sandbox: Sandbox) -> None:
    metrics._backend.cache_clear()
    assert metrics.call_observer("c") is None
    with CustodyHook() as hook:
        assert hook.get_conn()._transport._observers == []
    with metrics.health_listed("c", HealthCriteria()) as checks:
        checks.append(None)  # type: ignore[arg-type]
    metrics.pending_listed("c", None)  # type: ignore[arg-type]
    emit_all()


# --- Airflow's own processes -----------------------------------------------------------------------------------

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
    os._exit(0 if asyncio.run(both()) == ["healthy", "healthy"] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


def test_in_a_triggerer(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    server = StatsdServer()
    environment = {**os.environ, **server.environment, "AIRFLOW_CONN_CUSTODY_DEFAULT": connection_json(sandbox)}
    ran = subprocess.run([sys.executable, "-c", _IN_A_TRIGGERER], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = server.values("custody.")
    server.close()
    # Two triggers, one poll.
    assert found.pop("custody.api.calls.custody_default.list_health_checks.200") == 1
    assert found["custody.health.checks.custody_default.all.healthy"] > 0


@pytest.mark.parametrize("as_list", [False, True])
def test_a_deferred_sensor(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, as_list: bool) -> None:
    number = somebody_creates(sandbox)
    given = [number] if as_list else number
    trigger = CustodyWhitelistRequestTrigger(request_id=given, poke_interval=0.2)
    # As the triggerer does it.
    vars(trigger)["_task_instance" if AIRFLOW >= (3, 0) else "task_instance"] = SimpleNamespace(
        dag_id="dag", task_id="wait"
    )

    async def wait() -> list[dict[str, Any]]:
        asyncio.get_running_loop().call_later(0.3, sandbox.control.set_whitelist_status, number, "APPROVED")
        return await events(trigger)

    with metrics_on(monkeypatch) as server:
        assert [each["status"] for each in asyncio.run(wait())] == ["effective"]
        found = [each for each in server.received() if each.name.startswith("custody.sensor")]
    assert {(each.name, each.type) for each in found} == {("custody.sensor.pending_age.custody_default.dag.wait", "ms")}
    assert all(0 <= each.value < 60_000 for each in found)


@pytest.mark.usefixtures("airflow_db")
def test_tags_that_are_turned_off(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="health")
    with metrics_on(monkeypatch, statsd_influxdb_enabled="True", statsd_disabled_tags="status") as server:
        assert run_dag(dag).state == "success"
        calls = [each for each in server.received() if each.name == "custody.api.calls"]
    assert [each.tags for each in calls] == [{"conn_id": "custody_default", "operation": "list_health_checks"}]
