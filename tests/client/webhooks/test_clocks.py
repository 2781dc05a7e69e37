"""The clocks of a reading."""

from __future__ import annotations

import math

import pytest

from airflow_custody.client.webhooks.journal import MAX_SECONDS, CallCursor
from airflow_custody.client.webhooks.results import Clocks


@pytest.mark.parametrize("left", [-5.5, 0.0, 0.5, 5.0])
def test_a_service_at_the_end_of_time_leaves_a_cursor_that_can_be_read(left: float) -> None:
    own = 1_800_000_000.25
    cursor = Clocks(own, MAX_SECONDS - own - left).stamp(CallCursor(0, {}), None, 3)
    assert cursor.read_at == min(MAX_SECONDS, math.floor(MAX_SECONDS - left))
    assert CallCursor.from_json(cursor.to_json()) == cursor
