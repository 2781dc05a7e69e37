"""How far Airflow has read a journal, by what is in its database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow_runs import AIRFLOW

if AIRFLOW < (3, 3):
    pytest.skip("this Airflow has no state store", allow_module_level=True)

from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.asset_state_store import AssetStateStoreModel
from airflow.utils.session import create_session

from airflow_custody.client.webhooks.base_url_change import name_service
from airflow_custody.client.webhooks.journal import CallCursor, digest_of
from airflow_custody.plugin.positions import TASK_KEY, ReadPosition, find_position

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
URL = "https://custody.example.com/tenants"
WATCHER = "custody_webhook_calls:default"
OTHER_WATCHER = "custody_webhook_calls:other"

Write = Callable[..., None]


@pytest.fixture
def write(airflow_db: None) -> Iterator[Write]:
    """Return what writes a state (``key``) or an event (without) of an asset."""
    assets: dict[str, int] = {}

    def write(key: str = "", *, asset: str = "custody://webhook-calls/tenant_a", **stored: Any) -> None:
        with create_session() as session:
            if asset not in assets:
                model = AssetModel(name=asset, uri=asset, group="")
                session.add(model)
                session.flush()
                assets[asset] = model.id
            stored = {"service": name_service(URL), "conn_id": "tenant_a", **stored}
            if key:
                session.add(AssetStateStoreModel(asset_id=assets[asset], key=key, value=json.dumps(stored)))
            else:
                session.add(AssetEvent(asset_id=assets[asset], extra=stored))

    yield write
    with create_session() as session:
        for model, column in ((AssetEvent, "asset_id"), (AssetStateStoreModel, "asset_id"), (AssetModel, "id")):
            session.query(model).filter(getattr(model, column).in_(assets.values())).delete()


def cursor(hours: float, *, read: float | None = None) -> dict[str, Any]:
    """Return a cursor whose newest call is so many hours old, and that was read so many hours ago."""
    second = int((NOW - timedelta(hours=hours)).timestamp())
    read_at = None if read is None else int((NOW - timedelta(hours=read)).timestamp())
    return CallCursor(second * 1_000_000, {digest_of("known"): second * 1_000_000}, read_at=read_at).to_json()


def hours_behind(conn_id: str = "tenant_a") -> float | None:
    found = find_position(conn_id, URL)
    return None if found is None else (NOW - found.read_until) / timedelta(hours=1)


@pytest.mark.parametrize("key", ["", TASK_KEY, WATCHER])
@pytest.mark.parametrize(
    "source",
    [{"conn_id": "tenant_b"}, {"conn_id": None}, {"conn_id": ["tenant_a"]}, {"service": "another"}, {"service": None}],
)
def test_what_another_connection_or_another_service_has_read_is_not_read(
    write: Write, key: str, source: dict[str, Any]
) -> None:
    write(key, cursor=cursor(1), **source)
    assert hours_behind() is None


@pytest.mark.parametrize("key", ["", TASK_KEY, WATCHER])
def test_what_is_read_with_the_connection_counts_whatever_else_is_there(write: Write, key: str) -> None:
    write(key, cursor=cursor(2))
    write(OTHER_WATCHER, cursor=cursor(1), conn_id="tenant_b")
    write("custody_webhook_calls:odd", cursor={"version": 99})
    assert hours_behind() == 2
    assert hours_behind("tenant_b") == 1


def test_the_reader_that_is_furthest_behind_counts(write: Write) -> None:
    write(WATCHER, cursor=cursor(2))
    write(OTHER_WATCHER, cursor=cursor(9))
    write(cursor=cursor(1))
    assert hours_behind() == 9


@pytest.mark.parametrize("asset", ["custody://webhook-calls/tenant_a", "x://own"])
def test_the_events_of_an_asset_and_its_state_are_one_reader(write: Write, asset: str) -> None:
    write(asset=asset, cursor=cursor(9))
    write(TASK_KEY, asset=asset, cursor=cursor(5))
    assert hours_behind() == 5
    write(asset=asset, cursor=cursor(1))
    assert hours_behind() == 1


def test_a_reader_that_has_given_up_does_not_count_while_another_one_reads(write: Write) -> None:
    write(WATCHER, cursor=cursor(200, read=200))
    assert hours_behind() == 200
    write(OTHER_WATCHER, cursor=cursor(3, read=1))
    write(TASK_KEY, cursor=cursor(5, read=20))
    assert hours_behind() == 5
    found = find_position("tenant_a", URL)
    assert found is not None
    assert found.left_out == 1


def test_a_reader_of_which_it_is_not_known_when_it_has_read_may_be_stuck(write: Write) -> None:
    write(WATCHER, cursor=cursor(200))
    write(OTHER_WATCHER, cursor=cursor(3, read=1))
    assert hours_behind() == 200


def test_a_clock_that_was_wrong_makes_nobody_give_up(write: Write) -> None:
    ahead = (NOW - datetime.now(timezone.utc)) / timedelta(hours=1) - 24 * 30
    write(WATCHER, cursor=cursor(2, read=ahead))
    write(OTHER_WATCHER, cursor=cursor(9, read=5))
    assert hours_behind() == 9
    write("custody_webhook_calls:third", cursor=cursor(20, read=ahead))
    found = find_position("tenant_a", URL)
    assert found is not None
    assert (found.read_at, found.left_out) == (None, 0)


def test_a_time_that_no_date_can_have_is_no_reader(write: Write) -> None:
    write(WATCHER, cursor={**cursor(2), "read_at": 253_402_300_800})
    assert hours_behind() is None
    write(OTHER_WATCHER, cursor=cursor(9))
    assert hours_behind() == 9


def test_what_is_kept_of_a_position_is_about_one_call() -> None:
    for known in (
        CallCursor(5, {digest_of("a"): 9, digest_of("b"): 9}),
        CallCursor(5, {}, (digest_of("a"), digest_of("b"))),
    ):
        kept = ReadPosition(known).about("a")
        assert kept.knows("a", None)
        assert not kept.knows("b", None)
