"""A StatsD server, and Airflow's own metrics turned on in this process, as Airflow turns them on in its own."""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from airflow_runs import AIRFLOW

from airflow_custody import metrics


class Packet(NamedTuple):
    """
    A value that was received.

    :param name: its name, without the prefix.
    :param tags: its tags.
    :param value: the value.
    :param type: ``c``, ``g`` or ``ms``.
    """

    name: str
    tags: dict[str, str]
    value: float
    type: str


class StatsdServer:
    """A StatsD server: a real socket; what is sent to it is there at once."""

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
        #: All that was received, as it came.
        self.text = ""

    def close(self) -> None:
        self._socket.close()

    def received(self) -> list[Packet]:
        """Return what has come since the last call, of this package."""
        found = []
        while (line := self._receive()) is not None:
            self.text += f"{line}\n"
            match = re.fullmatch(r"airflow\.(custody\.[^,:]*)((?:,[^,:=]+=[^,:=]+)*):(-?[\d.]+)\|(c|g|ms)", line)
            if match:
                tags = dict(each.split("=") for each in match[2].split(",") if each)
                found.append(Packet(match[1], tags, float(match[3]), match[4]))
            else:
                assert "custody." not in line.partition(":")[0].removeprefix("airflow.")[:8], line
        return found

    def values(self, *prefixes: str) -> dict[str, float]:
        """Return what was counted, and the last value of each gauge, by name; times are left out."""
        found: dict[str, float] = {}
        for each in self.received():
            if each.name.startswith(prefixes) and each.type != "ms":
                found[each.name] = each.value + (found.get(each.name, 0) if each.type == "c" else 0)
        return found

    def _receive(self) -> str | None:
        try:
            return self._socket.recv(65536).decode("ascii")
        except BlockingIOError:
            return None


@contextmanager
def metrics_on(monkeypatch: pytest.MonkeyPatch, **options: str) -> Iterator[StatsdServer]:
    """
    Turn Airflow's metrics on, to a StatsD server.

    :param options: more options of Airflow's section ``[metrics]``.
    """
    server = StatsdServer()
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    with _initialized(monkeypatch):
        try:
            yield server
        finally:
            server.close()


@contextmanager
def backend(monkeypatch: pytest.MonkeyPatch, factory: Callable[..., Any], **options: str) -> Iterator[None]:
    """
    Have Airflow's metrics go to a backend.

    :param factory: makes it.
    :param options: options of Airflow's section ``[metrics]``.
    """
    for name, value in options.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
    with _initialized(monkeypatch, factory):
        yield


@contextmanager
def _initialized(monkeypatch: pytest.MonkeyPatch, factory: Callable[..., Any] | None = None) -> Iterator[None]:
    # As Airflow's processes do it when they start.
    with monkeypatch.context() as patch:
        patch.setattr(metrics, "_has_warned", False)
        metrics._keeps_tags.cache_clear()
        if AIRFLOW >= (3, 2):
            from airflow.sdk._shared.observability.metrics import stats
            from airflow.sdk.observability.metrics import stats_utils

            before = stats._factory
            stats.initialize(factory=factory or stats_utils.get_stats_factory(), export_legacy_names=True)
            try:
                yield
            finally:
                _close(stats._backend)
                stats._factory, stats._backend = before, None
                metrics._keeps_tags.cache_clear()
            return
        old: Any = importlib.import_module("airflow.stats").Stats
        default = importlib.import_module("airflow.metrics.statsd_logger").get_statsd_logger
        patch.setattr(type(old), "factory", factory or default)
        old.instance = None
        try:
            yield
        finally:
            _close(old.instance)
            old.instance = None
            metrics._keeps_tags.cache_clear()


def _close(made: Any) -> None:
    if (client := getattr(made, "statsd", None)) is not None:
        client.close()
