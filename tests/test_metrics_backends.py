"""Where metrics go: what each backend takes, what happens without one and with one that fails."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow_runs import AIRFLOW, execute, new_dag, run_dag
from connections import connection_json
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from statsd_server import StatsdServer, backend, metrics_on

from airflow_custody import metrics
from airflow_custody.client import CustodyClient
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sandbox import Sandbox

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
    for each in metrics.METRICS:
        metrics._emit(each, 1, conn_id, *each.tags[1:])


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
    assert found == {f"airflow.{each.name}": set(each.tags) for each in metrics.METRICS}
    assert "cannot be sent" not in caplog.text


@pytest.mark.parametrize("metric", metrics.METRICS, ids=lambda each: each.name)
def test_airflow_takes_the_names(metric: metrics.Metric) -> None:
    validators.stat_name_otel_handler("airflow", metric.name, max_length=_MAX_NAME)
    longest = ".".join([metric.name, *(["x" * metrics._MAX_VALUE] * len(metric.tags))])
    assert len(validators.stat_name_default_handler(longest)) <= 250


@given(st.text(max_size=300))
def test_airflow_takes_every_value(text: str) -> None:
    value = metrics._tag_value(text)
    assert value
    assert validators.stat_name_default_handler(value, max_length=metrics._MAX_VALUE) == value


def test_a_value_keeps_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    with metrics_on(monkeypatch) as server:
        metrics.create_counted("a.b c", "webhook", "sent")
        assert [each.name for each in server.received()] == ["custody.creates.a__b_c.webhook.sent"]


@pytest.mark.parametrize("value", ["a" * 250, ".".join("a" * 125), "é." * 125])
def test_names_of_the_longest_values_are_taken(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with metrics_on(monkeypatch) as server:
        for each in metrics.METRICS:
            values = [value if tag in ("conn_id", "tenant_id") else tag for tag in each.tags]
            metrics._emit(each, 1, *values)
        names = [each.name for each in server.received()]
    assert len(names) == len(metrics.METRICS)
    assert max(len(each) for each in names) <= 250
    assert all(
        each.count(".") == metric.name.count(".") + len(metric.tags)
        for each, metric in zip(names, metrics.METRICS, strict=True)
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
    metrics._keeps_tags.cache_clear()
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
    assert found == {"custody.health.healthy.custody_default.all": 1}


@pytest.mark.usefixtures("airflow_db")
def test_tags_that_are_turned_off(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="health")
    with metrics_on(monkeypatch, statsd_influxdb_enabled="True", statsd_disabled_tags="status") as server:
        assert run_dag(dag).state == "success"
        calls = [each for each in server.received() if each.name == "custody.api.calls"]
    assert [each.tags for each in calls] == [{"conn_id": "custody_default", "operation": "list_health_checks"}]
