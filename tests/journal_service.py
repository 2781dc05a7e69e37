"""The journal of webhook calls of a service in this process, and the clocks that date and read it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow_custody.client.http.listings import CursorPage
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.client.webhooks.models import WebhookCall
from airflow_custody.client.webhooks.operations import LIST_WEBHOOK_CALLS
from airflow_custody.client.webhooks.reading import JournalReader, Order
from airflow_custody.client.webhooks.results import NewCalls

START = datetime(2026, 1, 2, tzinfo=timezone.utc)
PAGE = 100


class Service:
    """
    A journal, and two clocks: the service's and that of the machine that reads.

    :param created: when its calls were created, in seconds from the start.
    """

    def __init__(self, *created: float | None) -> None:
        self.calls: list[WebhookCall] = []
        self.number = 0
        self.clock = 0.0
        self.service_clock: float | None = None
        self.add(*created)

    @property
    def now(self) -> float:
        """The service's time."""
        return self.clock if self.service_clock is None else self.service_clock

    def remove_older(self, seconds: float) -> None:
        """Remove what is older, by the service's clock."""
        first = START + timedelta(seconds=self.now - seconds)
        self.calls = [each for each in self.calls if each.created_at is None or each.created_at >= first]

    def add(self, *created: float | None) -> None:
        for each in created:
            at = None if each is None else START + timedelta(seconds=each)
            self.calls.append(WebhookCall(f"{self.number} at {each}", "w", created_at=at))
            self.number += 1

    def fetch(self, order: Order, name: str | None) -> CursorPage[WebhookCall]:
        first = int(name or 0)
        last = datetime.max.replace(tzinfo=timezone.utc)
        rows = sorted(self.calls, key=lambda call: call.created_at or last, reverse=order == "DESC")
        after = str(first + PAGE) if first + PAGE < len(rows) else None
        date = None if self.service_clock is None else START + timedelta(seconds=self.service_clock)
        return CursorPage([(call.id, call) for call in rows[first : first + PAGE]], after, date)

    @property
    def reader(self) -> JournalReader:
        return JournalReader(LIST_WEBHOOK_CALLS, self.fetch, now=lambda: START.timestamp() + self.clock)

    def read(self, cursor: CallCursor, limit: int = 100_000) -> NewCalls:
        found = self.reader.read_after(CallCursor.from_json(cursor.to_json()), limit)
        assert found.cursor == CallCursor.from_json(found.cursor.to_json())
        return found
