"""How far Airflow has read a service's journal of webhook calls, as far as its database says."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.models.asset import AssetEvent, AssetModel
from airflow.utils.session import create_session
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.timestamps import EPOCH, unix_micros
from airflow_custody.client.webhooks.base_url_change import name_service
from airflow_custody.client.webhooks.journal import CLOCK_DIFFERENCE_SECONDS, CallCursor, digest_of

log = logging.getLogger(__name__)

#: The keys of places in the assets' state store; those of watchers go on with ``:`` and the cursor's name.
WATCHER_KEY = "custody_webhook_calls"
TASK_KEY = "custody_read_webhook_calls"
#: A reader that has not read for so long, while another one has, does not count: its DAG may be gone.
GIVEN_UP_AFTER = timedelta(days=7)
_MAX_STATES = 20
_MAX_EVENTS = 5


@dataclass(frozen=True)
class ReadPosition:
    """
    How far Airflow has read a journal.

    :param cursor: what is known of it.
    :param left_out: how many others do not count, as they have not read for :data:`GIVEN_UP_AFTER`. Default 0.
    """

    cursor: CallCursor
    left_out: int = 0

    @property
    def read_until(self) -> datetime:
        """When the newest call that is known was created, by the service's clock."""
        return EPOCH + timedelta(microseconds=max(self.cursor.floor, self.cursor.newest or 0))

    @property
    def read_at(self) -> datetime | None:
        """When the journal was last read, by the clock of the machine that did; None: not known."""
        return None if self.cursor.read_at is None else EPOCH + timedelta(seconds=self.cursor.read_at)

    def knows(self, call_id: str, created_at: datetime | None) -> bool:
        """Tell whether a call was read."""
        created = None if created_at is None else unix_micros(created_at)
        return self.cursor.knows_id(call_id, created) or (created is not None and created < self.cursor.floor)

    def about(self, call_id: str) -> ReadPosition:
        """Return the position without what is known of other calls: those may be many."""
        digest, cursor = digest_of(call_id), self.cursor
        recent = {each: second for each, second in cursor.recent.items() if each == digest}
        undated = tuple(each for each in cursor.undated if each == digest)
        return replace(self, cursor=replace(cursor, recent=recent, undated=undated))


def may_see_positions(user: BaseUser) -> bool:
    """Tell whether a user may know how far a journal was read: who may read assets may."""
    return get_auth_manager().is_authorized_asset(method="GET", user=user)


def find_position(conn_id: str, base_url: str) -> ReadPosition | None:
    """
    Return how far Airflow has read a service's journal with a connection; None if that is not known.

    Of several that read it, the one that is furthest behind counts, unless it has given up: it has not read for
    :data:`GIVEN_UP_AFTER` while another one has.

    :param conn_id: id of the connection. What another one has read may be what another user or tenant sees.
    :param base_url: the service's base URL, which names it in what is stored.
    """
    try:
        with create_session() as session:
            readers = _readers(session, conn_id, name_service(base_url))
        return _furthest_behind([found for each in readers if (found := _position(each)) is not None])
    except Exception:
        log.warning("How far the journal of %r was read cannot be found out", conn_id, exc_info=True)
        return None


def _furthest_behind(positions: Collection[ReadPosition]) -> ReadPosition | None:
    """Return the position of the reader that is furthest behind, of those that still read."""
    last_read = max((each.read_at for each in positions if each.read_at is not None), default=EPOCH)
    # One of which it is not known when it has read may be stuck.
    reading = [each for each in positions if each.read_at is None or last_read - each.read_at <= GIVEN_UP_AFTER]
    found = min(reading, key=lambda each: each.read_until, default=None)
    return None if found is None else replace(found, left_out=len(positions) - len(reading))


def _position(stored: Iterable[Any]) -> ReadPosition | None:
    """Return how far one reader has come, by what is stored of it; None if nothing of that can be read."""
    found: list[ReadPosition] = []
    latest = time.time() + CLOCK_DIFFERENCE_SECONDS
    for each in stored:
        # It may be one of a later version of this package, or somebody else's.
        with suppress(CustodyError, OverflowError):
            cursor = CallCursor.from_json(each)
            if cursor.read_at is not None and cursor.read_at > latest:
                # A clock that was wrong does not say when.
                cursor = replace(cursor, read_at=None)
            position = ReadPosition(cursor)
            if position.read_until > EPOCH:
                found.append(position)
    return max(found, key=lambda position: position.read_until, default=None)


def _readers(session: Session, conn_id: str, service: str) -> list[list[Any]]:
    """Return what is stored of each reader: cursors, of which the furthest counts."""

    def cursor_of(stored: Any) -> list[Any]:
        is_ours = isinstance(stored, dict) and (stored.get("conn_id"), stored.get("service")) == (conn_id, service)
        return [stored.get("cursor")] if is_ours else []

    uri = f"custody://webhook-calls/{quote(conn_id, safe='')}"
    # Tasks that emit events of the same asset go on from each other's cursors: they are one reader.
    tasks: dict[int, list[Any]] = {
        each: [] for each in session.scalars(select(AssetModel.id).where(AssetModel.uri == uri))
    }
    watchers: list[list[Any]] = []
    for asset_id, key, text in _states(session, conn_id):
        found: list[Any] = []
        with suppress(ValueError, RecursionError):
            found = cursor_of(json.loads(text))
        if key != TASK_KEY:
            watchers.append(found)
        elif found:
            tasks.setdefault(asset_id, []).extend(found)
    for asset_id, cursors in tasks.items():
        for extra in _last_extras(session, asset_id):
            cursors.extend(cursor_of(extra))
    return [*tasks.values(), *watchers]


def _last_extras(session: Session, asset_id: int) -> Iterable[Any]:
    """Return the extras of an asset's last events."""
    last_events = (
        select(AssetEvent.extra)
        .where(AssetEvent.asset_id == asset_id)
        .order_by(AssetEvent.timestamp.desc(), AssetEvent.id.desc())
        .limit(_MAX_EVENTS)
    )
    return session.scalars(last_events)


def _states(session: Session, conn_id: str) -> Iterable[Any]:
    """Return asset, key and value of the cursors in the assets' state store, the last written ones."""
    try:
        from airflow.models.asset_state_store import AssetStateStoreModel as State
    except ImportError:
        # Airflow before 3.3.
        return ()
    states = (
        select(State.asset_id, State.key, State.value)
        .where(
            or_(State.key == TASK_KEY, State.key.startswith(f"{WATCHER_KEY}:", autoescape=True)),
            State.value.contains(json.dumps(conn_id), autoescape=True),
        )
        .order_by(State.updated_at.desc())
        .limit(_MAX_STATES)
    )
    return session.execute(states)
