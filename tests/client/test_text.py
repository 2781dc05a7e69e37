from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client.text import as_list, count, has_unprintable, sanitize


@given(st.text(max_size=2000), st.integers(2, 300))
def test_sanitize_returns_one_printable_line_of_that_length(text: str, limit: int) -> None:
    line = sanitize(text, limit)
    assert len(line) <= limit
    assert not has_unprintable(line)


def test_a_number_has_the_right_noun() -> None:
    assert [count(number, "byte") for number in (0, 1, 2)] == ["0 bytes", "1 byte", "2 bytes"]


def test_one_string_is_a_list_of_one() -> None:
    assert as_list("hsm") == ["hsm"]
    assert as_list(iter(["a", "b"])) == ["a", "b"]
