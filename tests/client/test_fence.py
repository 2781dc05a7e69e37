"""The maximum age of a record or a signature at the time when its request is sent."""

from __future__ import annotations

import pytest

from airflow_custody.client.http.fence import is_too_old


@pytest.mark.parametrize(
    ("monotonic", "settable", "expected"),
    [
        pytest.param(0.0, 0.0, False, id="at once"),
        pytest.param(4.9, 4.9, False, id="in time"),
        pytest.param(5.0, 5.0, True, id="too late"),
        pytest.param(0.5, 5.0, True, id="the machine slept, or the clock was set ahead"),
        pytest.param(0.5, -5.0, True, id="the clock was set back"),
        pytest.param(5.0, 0.5, True, id="the clock was set back while time passed"),
    ],
)
def test_neither_clock_may_have_moved_by_the_fence(monotonic: float, settable: float, expected: bool) -> None:
    then = (100.0, 1_700_000_000.0)
    assert is_too_old(then, (then[0] + monotonic, then[1] + settable)) is expected
