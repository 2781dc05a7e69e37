"""Read what the tasks of a test have logged, on either line of Airflow."""

from __future__ import annotations

import pytest
from support.airflow.airflow_runs import AIRFLOW


class TaskLog:
    """The log of the tasks: Airflow 2 writes it through logging, Airflow 3 through structlog to standard output."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
        self._caplog = caplog
        self._capsys = capsys
        self._printed = ""

    @property
    def text(self) -> str:
        if AIRFLOW < (3, 0):
            return self._caplog.text
        printed = self._capsys.readouterr()
        self._printed += printed.out + printed.err
        # What is printed only counts as the log if it has a line of it.
        is_log = any(message in self._printed for message in self._caplog.messages)
        return self._printed if is_log else self._printed + self._caplog.text
