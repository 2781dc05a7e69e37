"""Reads the log of a test's tasks, in Airflow 2 or 3."""

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
        # The printed text is the log if it contains a logged message. Otherwise, also return the log.
        is_log = any(message in self._printed for message in self._caplog.messages)
        return self._printed if is_log else self._printed + self._caplog.text
