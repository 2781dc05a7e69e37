"""What is measured, and where it is sent: to a StatsD server over a real socket, or to another backend."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from datetime import datetime, timedelta, timezone
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.airflow.airflow_runs import AIRFLOW, execute
from support.airflow.connections import connection_json
from support.airflow.request_triggers import events
from support.airflow.statsd_server import StatsdServer, metrics_on
from support.airflow.task_tries import somebody_creates
from support.airflow.webhook_reads import TYPE, Reader, write_calls

from airflow_custody import metrics
from airflow_custody.cli.main import main
from airflow_custody.client import CustodyError, WhitelistRequest
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers.health import CustodyHealthTrigger

pytestmark = pytest.mark.usefixtures("connection", "waits")
ADDRESS = "0x" + "ab" * 20
DATABASE = {"groups": ["database"], "tenant_id": "1"}
NOT_SEARCHED = {"kind": "status", "method": "GET", "skip": 1, "times": None, "status": 404}
LOST = {"kind": "drop", "work": True, "method": "POST"}


def check_health(**arguments: Any) -> Any:
    return execute(lambda: CustodyHealthCheckOperator(task_id="health", **arguments))


def create(**kwargs: Any) -> Any:
    arguments = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", "lookup_wait": 0.3, **kwargs}
    return execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments))


def emit_all(*values: str) -> None:
    """Send each metric once. Its first tags have these values, and its other tags have their own names as values."""
    for each in metrics.METRICS:
        metrics._emit(each, 1, *(values + each.tags[len(values) :])[: len(each.tags)])


def tag(name: str, lines: list[str]) -> list[str]:
    """Return the values of a tag, in the lines that have it."""
    return [found[1] for each in lines if (found := re.search(rf",{name}=([^,:]+)", each))]


# --- backends ---------------------------------------------------------------------------------------------


def test_two_triggers_share_a_poll(sandbox: Sandbox, statsd: StatsdServer) -> None:
    sandbox.control.add_fault("status", status=403)
    for status in ("error", "healthy"):
        found = asyncio.run(events(CustodyHealthTrigger(), CustodyHealthTrigger()))
        assert [each["status"] for each in found] == [status] * 2
    assert sorted(statsd.received()) == [
        "custody.api.calls.custody_default.list_health_checks.200:1|c",
        "custody.api.calls.custody_default.list_health_checks.403:1|c",
        "custody.health.healthy.custody_default.all:0|g",
        "custody.health.healthy.custody_default.all:1|g",
    ]


def test_the_command_line_sends_nothing(statsd: StatsdServer) -> None:
    assert main(["health", "--conn-id", "custody_default"]) == 0
    assert statsd.received() == []


DATADOG = {"statsd_datadog_enabled": "True"}


@pytest.mark.parametrize(
    ("options", "has_tags"),
    [
        (DATADOG, True),
        ({**DATADOG, "statsd_datadog_metrics_tags": "False"}, False),
    ],
    ids=["Datadog", "Datadog without tags"],
)
def test_another_backend(options: dict[str, str], has_tags: bool) -> None:
    sent: list[Any] = []
    made = SimpleNamespace(incr=lambda name, count, tags=None: sent.append((name, count, tags or {})))
    with metrics_on(lambda *_: made, **options):
        metrics.create_counted("c", "webhook", "found", 2)
    tags = {"conn_id": "c", "kind": "webhook", "outcome": "found"}
    assert sent == [("custody.creates", 2, tags) if has_tags else ("custody.creates.c.webhook.found", 2, {})]


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


def test_metrics_have_no_secret_address_label_or_url(sandbox: Sandbox, tagged: StatsdServer) -> None:
    sandbox.control.add_fault("drop", work=True, method="POST")
    create(label="Treasury of ACME")
    create(if_exists="create")
    with pytest.raises(CustodyError), CustodyHook() as hook:
        hook.get_conn().get_whitelist_request("987654")
    text = re.sub(r":[\d.]+\|", ":|", "\n".join(tagged.received("")))
    assert len(text) > 500
    for each in (sandbox.token, ADDRESS, "987654", "3711", "ACME", "127.0.0.1", "http", sandbox.url.rpartition(":")[2]):
        assert each not in text


# --- failures that do not fail a task ------------------------------------------------------------------------


class Broken:
    """A backend that fails, as Airflow lets some of their errors pass."""

    def incr(self, *_: object, **__: object) -> None:
        raise ValueError("the metrics backend is away")

    gauge = timing = incr


@pytest.mark.parametrize(
    ("is_on", "why"),
    [("True", "ValueError"), ("perhaps", "AirflowConfigException")],
    ids=["broken", "wrong configuration"],
)
def test_a_failing_backend_fails_no_task(
    caplog: pytest.LogCaptureFixture, sandbox: Sandbox, is_on: str, why: str
) -> None:
    with metrics_on(lambda *_: Broken(), statsd_on=is_on):
        check_health()
        create()
    assert len(sandbox.control.whitelist_requests()) == 1
    ours = [each for each in caplog.records if each.name == metrics.__name__ and each.levelno >= logging.WARNING]
    assert [each.getMessage().partition(why)[0] for each in ours] == ["Metrics cannot be sent: "]


def test_a_failed_measurement_fails_no_task(tagged: StatsdServer, caplog: pytest.LogCaptureFixture) -> None:
    metrics.pending_listed("c", lambda: [datetime(2026, 1, 1), datetime.now(timezone.utc)])
    assert tagged.received() == []
    assert "Metrics cannot be sent" in caplog.text


# --- calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "extra", "statuses"),
    [
        ({"kind": "status", "status": 503}, {"max_retries": 1}, ["503", "200"]),
        ({"kind": "drop"}, {"proxy": "http://127.0.0.1:9", "allow_http": True}, ["none"]),
    ],
    ids=["tried again", "no connection"],
)
def test_each_exchange_counts(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer, fault: Any, extra: Any, statuses: list[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **extra))
    sandbox.control.add_fault(**fault)
    with CustodyHook() as hook, contextlib.suppress(CustodyError):
        hook.get_conn().list_health_checks()
    assert tagged.received() == [
        f"custody.api.calls,conn_id=custody_default,operation=list_health_checks,status={each}:1|c" for each in statuses
    ]


def test_a_request_that_was_not_sent_is_not_counted(tagged: StatsdServer) -> None:
    def refuse() -> None:
        raise CustodyError("another try has taken over")

    request = WhitelistRequest(label="L", address=ADDRESS, blockchain="ETH")
    with CustodyHook() as hook, pytest.raises(CustodyError, match="taken over"):
        hook.get_conn().create_whitelist_request(request, before_send=refuse)
    assert tagged.received() == []


# --- health ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "arguments", "line"),
    [
        # The metric covers the whole listing, whatever checks the task selects.
        (lambda control: control.update_health(group="hsm", status="failure"), DATABASE, "custody_default.1:0|g"),
        (lambda control: control.add_fault("drop"), {}, "custody_default.all:0|g"),
        (lambda control: None, {"custody_conn_id": "not_there"}, "not_there.all:0|g"),
    ],
    ids=["another group", "no response", "no connection"],
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
        ([LOST], (), ["sent", "found"]),
        ([LOST, NOT_SEARCHED], CustodyFailException, ["sent", "unknown"]),
    ],
    ids=["created", "lost and found", "unknown"],
)
def test_creates_are_counted_by_outcome(
    sandbox: Sandbox, tagged: StatsdServer, faults: list[dict[str, Any]], fails: Any, outcomes: list[str]
) -> None:
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)
    for fault in faults:
        sandbox.control.add_fault(**fault)
    with pytest.raises(fails) if fails else contextlib.nullcontext():
        create()
    creates = tagged.received("custody.creates")
    prefix = "custody.creates,conn_id=custody_default,kind=whitelisting_request,outcome="
    assert creates == [f"{prefix}{each}:1|c" for each in outcomes]
    if not faults:
        # A request that is reused is not a create.
        create()
        assert tagged.received("custody.creates") == []


# --- pending requests ------------------------------------------------------------------------------------------


def test_the_age_of_the_oldest_is_sent_only_if_it_is_known(statsd: StatsdServer) -> None:
    now = datetime.now(timezone.utc)
    moments = [now - timedelta(hours=1), now, now + timedelta(hours=1)]
    metrics.pending_listed("c", partial(iter, moments))
    (line,) = statsd.received("custody.whitelist.oldest_pending_age_seconds.c:")
    assert 3600 <= float(line.partition(":")[2].removesuffix("|g")) < 7200
    metrics.pending_listed("c", partial(iter, [None, *moments]))
    assert statsd.received() == []
    # No request is pending; and a creation time that is ahead of the clock.
    for none_old in ([], moments[2:]):
        metrics.pending_listed("c", partial(iter, none_old))
        assert statsd.received() == ["custody.whitelist.oldest_pending_age_seconds.c:0|g"]


# --- webhook calls ---------------------------------------------------------------------------------------------


def test_a_task_counts_what_it_emits(sandbox: Sandbox, statsd: StatsdServer) -> None:
    write_calls(sandbox, str(sandbox.control.add_webhook(type=TYPE)["id"]), 1, 2, 3)
    reader = Reader(start="beginning")
    assert reader.ids() == ["1", "2", "3"]
    assert reader.ids() is None
    assert statsd.received("custody.webhook") == ["custody.webhook_calls.read.custody_default:3|c"]


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="Airflow cannot acknowledge events")
def test_a_watcher_counts_what_it_fires(sandbox: Sandbox, statsd: StatsdServer) -> None:
    from support.airflow.watcher_runs import Triggerer, add_call, in_triggerers, until

    @in_triggerers
    async def scenario() -> None:
        triggerer, _ = await Triggerer.watching()
        add_call(sandbox, "a")
        await until(lambda: triggerer.persisted)

    add_call(sandbox, "before")
    scenario()
    assert statsd.received("custody.webhook") == ["custody.webhook_calls.read.custody_default:1|c"]
