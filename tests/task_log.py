"""What the tasks of a test have logged."""

from __future__ import annotations

import pytest


class TaskLog:
    """The log of the tasks: Airflow 2 writes it through logging, Airflow 3 through structlog to standard output."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
        self._caplog = caplog
        self._capsys = capsys
        self._printed = ""

    @property
    def text(self) -> str:
        printed = self._capsys.readouterr()
        self._printed += printed.out + printed.err
        return self._printed if "]" in self._printed else self._printed + self._caplog.text
