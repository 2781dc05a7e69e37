"""A plugin of pytest that has coverage write down which test reaches which line."""

from __future__ import annotations

from collections.abc import Iterator

import coverage
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name what runs from here on after the test."""
    if measured := coverage.Coverage.current():
        measured.switch_context(item.nodeid)
    yield
    if measured:
        measured.switch_context("")
