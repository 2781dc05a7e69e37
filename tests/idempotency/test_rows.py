"""What is known of many rows, whichever window says it."""

from __future__ import annotations

import time
from datetime import datetime, timezone

from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.idempotency.rows import Row, RowLog, Window

KEYS = st.sampled_from("abcdef")
ROWS = st.builds(Row, st.sampled_from(["sent", "created", "refused", "found", "deleting", "deleted"]), st.just("x"))


def window(number: int, rows: dict[str, Row]) -> Window:
    return Window("key", number, 1, 0, datetime.now(timezone.utc), rows)


@given(
    st.integers(0, 3),
    st.lists(st.dictionaries(KEYS, ROWS), max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.dictionaries(KEYS, ROWS)), max_size=8),
)
def test_the_last_window_that_knows_a_row_counts(
    first: int, stored: list[dict[str, Row]], changes: list[tuple[int, dict[str, Row]]]
) -> None:
    log = RowLog("plan", 6, first, [window(first + number, rows) for number, rows in enumerate(stored)])
    for number, rows in changes:
        log.put(window(first + min(number, len(log.windows)), rows))
        known = log.rows()
        assert {key: log.row(key) for key in "abcdef" if log.row(key)} == known
        assert log.done == sum(row.state not in ("sent", "deleting") for _, row in known.values())
    assert [each.number for each in log.windows] == list(range(first, first + len(log.windows)))


def test_a_hundred_thousand_rows_take_no_longer_each() -> None:
    log, began = RowLog("plan", 100_000), time.process_time()
    for number in range(2000):
        keys = [f"{number}-{each}" for each in range(50)]
        log.put(window(number, {key: Row("sent") for key in keys}))
        log.put(window(number, {key: Row("created", "1") for key in keys}))
        assert log.done == 50 * (number + 1)
        assert log.row(keys[0]) is not None
    assert time.process_time() - began < 10
