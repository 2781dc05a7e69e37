"""Webhook calls that are read count, whoever reads them."""

from __future__ import annotations

import pytest
from airflow_runs import AIRFLOW
from statsd_server import Packet, StatsdServer, metrics_on
from webhook_reads import TYPE, Reader, write_calls

from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("connection")
READ = "custody.webhook_calls.read.custody_default"


def of_calls(server: StatsdServer) -> list[Packet]:
    return [each for each in server.received() if each.name.startswith("custody.webhook_calls")]


def test_a_task_counts_what_it_emits(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook = str(sandbox.control.add_webhook(type=TYPE)["id"])
    reader = Reader(start="beginning")
    write_calls(sandbox, webhook, 1, 2, 3)
    with metrics_on(monkeypatch) as server:
        assert reader.ids() == ["1", "2", "3"]
        found = of_calls(server)
        assert [(each.name, each.type) for each in found] == [(READ, "c")]
        assert found[0].value == 3
        assert reader.ids() is None
        assert of_calls(server) == []


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="Airflow cannot acknowledge events")
def test_a_watcher_counts_what_it_fires(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from watcher_runs import Store, Triggerer, add_call, run, until

    async def scenario() -> None:
        triggerer, store = Triggerer(), Store()
        triggerer.start(1, store)
        await until(lambda: store.values)
        add_call(sandbox, "a")
        await until(lambda: triggerer.persisted)
        await triggerer.kill()

    add_call(sandbox, "before")
    with metrics_on(monkeypatch) as server:
        run(scenario)
        found = of_calls(server)
    assert [(each.name, each.type) for each in found] == [(READ, "c")]
    assert found[0].value == 1
