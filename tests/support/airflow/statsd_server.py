"""A StatsD server, and a function that turns on Airflow's metrics."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW

from airflow_custody import metrics


class StatsdServer:
    """A StatsD server on a real socket, which receives metrics without delay."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.environment = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self._socket.getsockname()[1]),
        }

    def close(self) -> None:
        self._socket.close()

    def received(self, prefix: str = "custody.") -> list[str]:
        """
        Return this package's metrics that were received since the last call.

        A line has the form ``custody.name,tag=value:1|c``.
        """
        lines: list[str] = []
        while True:
            try:
                line = self._socket.recv(65536).decode("ascii")
            except BlockingIOError:
                return lines
            if line.startswith(f"airflow.{prefix}"):
                lines.append(line.removeprefix("airflow."))


@contextmanager
def metrics_on(factory: Callable[..., Any] | None = None, **options: Any) -> Iterator[StatsdServer]:
    """
    Turn Airflow's metrics on, as its processes do when they start.

    :param factory: makes a backend. Default: one that sends to the server.
    :param options: more options of Airflow's section ``[metrics]``.
    """
    server = StatsdServer()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        for name, value in options.items():
            patch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
        patch.setattr(metrics, "_has_warned", False)
        stats: Any
        if AIRFLOW >= (3, 2):
            from airflow.sdk._shared.observability.metrics import stats
            from airflow.sdk.observability.metrics import stats_utils

            made = "_backend"
            patch.setattr(stats, "_factory", stats._factory)
            stats.initialize(factory=factory or stats_utils.get_stats_factory(), export_legacy_names=True)
        else:
            stats, made = importlib.import_module("airflow.stats").Stats, "instance"
            default = importlib.import_module("airflow.metrics.statsd_logger").get_statsd_logger
            patch.setattr(type(stats), "factory", factory or default)
        patch.setattr(stats, made, None)
        metrics._keeps_tags.cache_clear()
        try:
            yield server
        finally:
            if client := getattr(getattr(stats, made), "statsd", None):
                client.close()
            server.close()
    metrics._keeps_tags.cache_clear()
