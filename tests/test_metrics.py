"""What is measured, received by a StatsD server over a real socket."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import threading
import time
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import execute, new_dag, run_dag
from apply_tries import ApplyTask, plan, write_rows
from connections import connection_json
from statsd_server import StatsdServer
from task_tries import RowsStore, somebody_creates

from airflow_custody import metrics
from airflow_custody.cli.main import main
from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.client.http.responses import Observation
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.idempotency.store import Store
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.retry_policy import CustodyFailException
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")
ADDRESS = "0x" + "ab" * 20


def create(**kwargs: Any) -> Any:
    arguments = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", "lookup_wait": 0.3, **kwargs}
    return execute(lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **arguments))


# --- calls -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("airflow_db")
def test_a_dag_run_without_tags(statsd: StatsdServer) -> None:
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="health")
    assert run_dag(dag).state == "success"
    assert sorted(each.name for each in statsd.received()) == [
        "custody.api.calls.custody_default.list_health_checks.200",
        "custody.health.healthy.custody_default.all",
    ]


@pytest.mark.usefixtures("airflow_db")
def test_a_dag_run_with_tags(tagged: StatsdServer) -> None:
    with new_dag() as dag:
        CustodyHealthCheckOperator(task_id="health")
    assert run_dag(dag).state == "success"
    assert {each.name: each.tags for each in tagged.received()} == {
        "custody.api.calls": {"conn_id": "custody_default", "operation": "list_health_checks", "status": "200"},
        "custody.health.healthy": {"conn_id": "custody_default", "tenant_id": "all"},
    }


def test_each_exchange_counts_also_one_that_is_tried_again(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer
) -> None:
    # The first retry is made at once.
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, max_retries=1))
    with CustodyHook() as hook:
        for fault in ({"kind": "status", "status": 503}, {"kind": "drop"}):
            sandbox.control.add_fault(**fault)
            hook.get_conn().list_health_checks()
    found = tagged.received()
    assert [each.tags["status"] for each in found if each.type == "c"] == ["503", "200", "none", "200"]


def test_a_response_that_does_not_end_is_none(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, timeout=0.3, max_retries=0))
    sandbox.control.add_fault("trickle", pieces_every=0.2)
    with CustodyHook() as hook, pytest.raises(CustodyError):
        hook.get_conn().list_health_checks()
    assert [each.tags["status"] for each in tagged.received()] == ["none"]


def test_a_response_that_is_too_large_is_none(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, max_response_bytes=1024))
    sandbox.control.add_fault("large", size=4096)
    with CustodyHook() as hook, pytest.raises(CustodyError):
        hook.get_conn().list_health_checks()
    assert {each.tags["status"] for each in tagged.received()} == {"none"}


def test_a_service_that_is_away(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, tagged: StatsdServer) -> None:
    with contextlib.closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        text = connection_json(sandbox).replace(sandbox.url, f"http://127.0.0.1:{port}")
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", text)
        with CustodyHook() as hook, pytest.raises(CustodyError):
            hook.get_conn().list_health_checks()
    assert [each.tags["status"] for each in tagged.received()] == ["none"]


class _TaskHasEnded(BaseException):
    """What Airflow raises in the middle of whatever a task does, as for ``execution_timeout``."""


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no such signal")
def test_a_call_that_ends_with_its_task_is_none(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tagged: StatsdServer
) -> None:
    def end(*_: object) -> None:
        raise _TaskHasEnded

    def end_once_it_is_sent(thread: int) -> None:
        while not sandbox.control.request_log():
            time.sleep(0.01)
        signal.pthread_kill(thread, signal.SIGALRM)

    sandbox.control.add_fault(delay=3600)
    before = signal.signal(signal.SIGALRM, end)
    ending = threading.Thread(target=end_once_it_is_sent, args=(threading.get_ident(),))
    try:
        with CustodyHook() as hook:
            client = hook.get_conn()
            ending.start()
            with pytest.raises(_TaskHasEnded):
                client.list_health_checks()
    finally:
        ending.join(600)
        signal.signal(signal.SIGALRM, before)
    assert [each.tags["status"] for each in tagged.received()] == ["none"]


def test_what_was_not_sent_is_no_call(sandbox: Sandbox, tagged: StatsdServer) -> None:
    def refuse() -> None:
        raise CustodyError("another try has taken over")

    request = WhitelistRequest(label="L", address=ADDRESS, blockchain="ETH")
    with CustodyHook() as hook, pytest.raises(CustodyError, match="taken over"):
        hook.get_conn().create_whitelist_request(request, before_send=refuse)
    assert tagged.received() == []


@pytest.mark.parametrize(("status", "counted"), [(200, "200"), (599, "599"), (600, "other"), (999, "other")])
def test_a_status_that_http_does_not_know_makes_no_series(tagged: StatsdServer, status: int, counted: str) -> None:
    count = metrics.call_observer("c")
    assert count is not None
    count(Observation(status, datetime.now(timezone.utc), operation="get rules"))
    assert {each.tags["status"] for each in tagged.received()} == {counted}


def test_the_command_line_sends_nothing(statsd: StatsdServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--conn-id", "custody_default"]) == 0
    assert statsd.received() == []


# --- creates ---------------------------------------------------------------------------------------------------


def test_a_create_is_sent(statsd: StatsdServer) -> None:
    create()
    # One that is used in place of another one is none.
    create()
    assert statsd.values("custody.creates") == {"custody.creates.custody_default.whitelisting_request.sent": 1}


@pytest.mark.parametrize("fails", ["send", "record"])
def test_a_create_that_ends_with_its_task_was_sent(
    tagged: StatsdServer, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def end(*_: object, **__: object) -> None:
        raise _TaskHasEnded

    if fails == "record":
        monkeypatch.setattr(Store, "record", end)
    else:
        real = CustodyClient.create_whitelist_request

        def send(self: CustodyClient, *arguments: Any, **options: Any) -> None:
            real(self, *arguments, **options)
            raise _TaskHasEnded

        monkeypatch.setattr(CustodyClient, "create_whitelist_request", send)
    with pytest.raises(_TaskHasEnded):
        create()
    assert [each.tags["outcome"] for each in tagged.received() if each.name == "custody.creates"] == ["sent"]


def test_a_create_whose_response_is_lost_is_found(sandbox: Sandbox, tagged: StatsdServer) -> None:
    sandbox.control.add_fault("drop", work=True, method="POST")
    create()
    found = [each for each in tagged.received() if each.name == "custody.creates"]
    assert [each.tags["outcome"] for each in found] == ["sent", "found"]
    assert found[0].tags == {"conn_id": "custody_default", "kind": "whitelisting_request", "outcome": "sent"}


def test_a_create_of_which_nobody_knows(sandbox: Sandbox, tagged: StatsdServer) -> None:
    sandbox.control.add_fault("drop", work=True, method="POST")
    sandbox.control.add_fault("status", method="GET", skip=1, times=None, status=404)
    with pytest.raises(CustodyFailException):
        create()
    found = [each.tags["outcome"] for each in tagged.received() if each.name == "custody.creates"]
    assert found == ["sent", "unknown"]


def test_a_create_that_came_to_nothing_is_not_unknown(sandbox: Sandbox, tagged: StatsdServer) -> None:
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)
    sandbox.control.add_fault("drop", method="POST")
    with pytest.raises(CustodyError):
        create()
    assert [each.tags["outcome"] for each in tagged.received() if each.name == "custody.creates"] == ["sent"]


def test_a_refused_create_was_sent(sandbox: Sandbox, tagged: StatsdServer) -> None:
    sandbox.control.add_fault("rate_limit", method="POST", retry_after=61)
    with pytest.raises(CustodyError):
        create()
    assert [each.tags["outcome"] for each in tagged.received() if each.name == "custody.creates"] == ["sent"]


def test_a_plan_and_what_applies_it(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statsd: StatsdServer, airflow_db: None
) -> None:
    somebody_creates(sandbox, label="Earlier", address="0x" + "00" * 20)
    path = write_rows(tmp_path / "whitelist.yaml", range(1, 9))
    planned = plan(path)
    (age,) = statsd.values("custody.whitelist").values()
    assert 0 <= age < 600
    sandbox.control.add_fault("drop", method="POST", work=True, skip=2, times=2)
    ApplyTask(path, planned["plan_hash"], RowsStore(), lookup_wait=0.3).attempt()
    assert len(sandbox.control.whitelist_requests()) == 9
    assert statsd.values("custody.creates") == {
        "custody.creates.custody_default.whitelisting_request.sent": 8,
        "custody.creates.custody_default.whitelisting_request.found": 2,
    }
    for each in sandbox.control.whitelist_requests():
        sandbox.control.set_whitelist_status(each["id"], "APPROVED")
    plan(path)
    assert statsd.values("custody.whitelist") == {"custody.whitelist.oldest_pending_age_seconds.custody_default": 0}


# --- pending requests ------------------------------------------------------------------------------------------


def test_the_age_of_the_oldest_is_sent_only_if_it_is_known(statsd: StatsdServer) -> None:
    now = datetime.now(timezone.utc)
    moments = [now - timedelta(hours=1), now, now + timedelta(hours=1)]
    metrics.pending_listed("c", partial(iter, moments))
    (age,) = statsd.received()
    assert (age.name, age.type) == ("custody.whitelist.oldest_pending_age_seconds.c", "g")
    assert 3600 <= age.value < 7200
    metrics.pending_listed("c", partial(iter, [None, *moments]))
    assert statsd.received() == []
    metrics.pending_listed("c", partial(iter, moments[2:]))
    assert [each.value for each in statsd.received()] == [0]


# --- webhook calls ---------------------------------------------------------------------------------------------


def test_webhook_calls(statsd: StatsdServer) -> None:
    metrics.calls_read("c", 3)
    metrics.calls_read("c", 0)
    assert [(each.name, each.value, each.type) for each in statsd.received()] == [
        ("custody.webhook_calls.read.c", 3, "c")
    ]


# --- the names -------------------------------------------------------------------------------------------------


def test_no_secret_no_address_no_label_no_url_leaves(
    sandbox: Sandbox, tagged: StatsdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_fault("drop", work=True, method="POST")
    create(label="Treasury of ACME")
    create(if_exists="create")
    with pytest.raises(CustodyError), CustodyHook() as hook:
        hook.get_conn().get_whitelist_request("987654")
    tagged.received()
    assert len(tagged.text) > 500
    for each in (sandbox.token, ADDRESS, "987654", "3711", "ACME", "127.0.0.1", "http", sandbox.url.rpartition(":")[2]):
        assert each not in re.sub(r":[\d.]+\|", ":|", tagged.text)


def test_each_metric_says_what_it_is() -> None:
    for each in metrics.METRICS:
        assert re.fullmatch(r"[A-Z0-9].*\.", each.description), each.name
        assert each.unit, each.name
        assert each.name.endswith("_seconds") == (each.unit == "seconds"), each.name


def test_all_metrics_are_in_the_list() -> None:
    assert {each for each in vars(metrics).values() if isinstance(each, metrics.Metric)} == set(metrics.METRICS)
