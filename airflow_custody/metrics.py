"""
The metrics of this package, sent through Airflow's own metrics.

They go where Airflow's ``[metrics]`` section says: StatsD, Datadog or OpenTelemetry; without any of these nothing is
done. All names have Airflow's prefix. There is nothing to set, unless you keep a list of metrics: then add
``custody`` to ``metrics_allow_list``.

Where tags are kept, a metric has one name and tags. StatsD without tags (``statsd_influxdb_enabled`` is off, the
default) would drop them, and the gauges of two connections would overwrite each other: there, and only there, the
values follow the name, in the order of the tags: ``airflow.custody.health.healthy.custody_default.all``.
What is not a letter, a digit, ``_``, ``-`` or ``.`` becomes ``_``; a point in such a value becomes ``__``, and more
than 60 characters are cut off. So ``prod/eu`` and ``prod_eu`` share their metrics: choose other ids. Tags and names
hold no secret, no address, no label and no URL.

A gauge keeps its last value until a task measures again: alert on its age, too; where your backend knows none, as
plain StatsD, alert on the calls. Tasks that judge differently (``healthy_statuses``, ``require_fresh``,
``effective_statuses``) overwrite each other's gauges. On Airflow 2.11, OpenTelemetry exports only the first set of
tags of each gauge in a process: use StatsD there.

A failing backend never fails a task: one warning in the log says so. One that hangs delays a task as it does for
Airflow's own metrics: StatsD's UDP not at all, unless its host's name is slow to be resolved; OpenTelemetry on
Airflow 3.3 by 10 seconds at the end of the process (``OTEL_EXPORTER_OTLP_TIMEOUT``); a StatsD client of your own
(``statsd_custom_client_path``) by as long as it waits.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from airflow_custody.client.health.models import HealthCheck
    from airflow_custody.client.health.verdict import HealthCriteria
    from airflow_custody.client.http.responses import Observation
    from airflow_custody.idempotency.search import CreateOutcome

log = logging.getLogger(__name__)

# Three values and a name stay below the 250 characters that Airflow allows.
_MAX_VALUE = 60
# What Airflow allows in a name for StatsD; it drops a metric that has anything else in it.
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_.-]")

_has_warned = False


@dataclass(frozen=True)
class Metric:
    """
    A metric.

    :param name: its name, without Airflow's prefix.
    :param kind: its kind.
    :param unit: unit of its values.
    :param tags: its tags, in the order in which their values follow the name where there are no tags.
    :param description: its meaning, and when it is not sent.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    tags: tuple[str, ...]
    description: str


_CALLS = Metric(
    "custody.api.calls",
    "counter",
    "calls",
    ("conn_id", "operation", "status"),
    "Calls of the service, each retry included, and those that ended with the task. ``status`` is the HTTP status, or "
    "``none``: no response, or not all of it.",
)
_HEALTHY = Metric(
    "custody.health.healthy",
    "gauge",
    "1 or 0",
    ("conn_id", "tenant_id"),
    "1: the health listing was read, and all of it is healthy. 0: it is not, or is empty, or could not be read, for "
    "whatever reason. Sent each time a task reads it; ``tenant_id`` is ``all`` if no task names one.",
)
_CREATES = Metric(
    "custody.creates",
    "counter",
    "creates",
    ("conn_id", "kind", "outcome"),
    "Creates that were ``sent``, whatever came of them; whose response was lost and that were ``found`` again; of "
    "which it is ``unknown`` whether they exist: a person must look. ``kind`` is ``whitelisting_request`` or "
    "``webhook``.",
)
_PENDING_AGE = Metric(
    "custody.whitelist.oldest_pending_age_seconds",
    "gauge",
    "seconds",
    ("conn_id",),
    "Age of the oldest whitelisting request that is pending approval, of all at the service, when a whitelist file is "
    "planned; 0 if there are none. Not sent if one of them does not say when it was created.",
)
_CALLS_READ = Metric(
    "custody.webhook_calls.read",
    "counter",
    "calls",
    ("conn_id",),
    "Webhook calls that were read to be handed on. Each task and each watcher counts its own.",
)

#: All of them.
METRICS = (_CALLS, _HEALTHY, _CREATES, _PENDING_AGE, _CALLS_READ)


# --- measurements --------------------------------------------------------------------------------------------


def call_observer(custody_conn_id: str) -> Callable[[Observation], None] | None:
    """
    Return an observer that counts the exchanges of a client.

    :param custody_conn_id: id of the client's connection.
    :return: an observer for :meth:`CustodyClient.observe`; None: metrics are off.
    """
    return None if _keeps_tags() is None else partial(_count_call, custody_conn_id)


def _count_call(custody_conn_id: str, seen: Observation) -> None:
    status = "none" if seen.status is None or not seen.is_complete else str(seen.status)
    _emit(_CALLS, 1, custody_conn_id, seen.operation, status)


@contextmanager
def health_listed(
    custody_conn_id: str, criteria: HealthCriteria, *, is_measured: bool = True
) -> Iterator[list[HealthCheck]]:
    """
    Measure the health listing that the block reads: all checks in it, whichever of them a task is about.

    If the block raises, the service is not known to be healthy, and counts as not healthy.

    :param custody_conn_id: id of the connection.
    :param criteria: the task's; its status words, and whether results must be fresh, say what is healthy.
    :param is_measured: whether anything is sent. Default True.
    :return: a list, to which the block adds the checks.
    """
    checks: list[HealthCheck] = []

    def is_healthy() -> int:
        from airflow_custody.client.health.verdict import judge

        all_checks = replace(criteria, groups=None, components=None, checks=None, require_results=None)
        return int(judge(checks, all_checks).healthy)

    value: Value = 0
    try:
        yield checks
        value = is_healthy
    finally:
        if is_measured:
            _emit(_HEALTHY, value, custody_conn_id, "all" if criteria.tenant_id is None else criteria.tenant_id)


def create_counted(custody_conn_id: str, kind: str, outcome: CreateOutcome, count: int = 1) -> None:
    """
    Count creates.

    :param custody_conn_id: id of the connection.
    :param kind: the kind of thing that is created: ``whitelisting request``.
    :param outcome: ``sent``: a create has left, whatever came of it; ``found``: one whose response was lost was found
        again; ``unknown``: a person must find out.
    :param count: number of creates.
    """
    _emit(_CREATES, count, custody_conn_id, kind, outcome)


def pending_listed(custody_conn_id: str, created: Callable[[], Iterable[datetime | None]]) -> None:
    """
    Measure the whitelisting requests that are pending approval, where all that the service lists were read.

    :param custody_conn_id: id of the connection.
    :param created: returns when each of them was created, None for one that does not say: then the age of the oldest is
        not known, and not sent. Called if metrics are on.
    """

    def oldest_age() -> float | None:
        moments = list(created())
        known = [each for each in moments if each is not None]
        if len(known) < len(moments):
            return None
        now = datetime.now(timezone.utc)
        # A creation time ahead of this machine's clock counts as now.
        return max((round((now - each).total_seconds(), 3) for each in known), default=0.0)

    _emit(_PENDING_AGE, oldest_age, custody_conn_id)


def calls_read(custody_conn_id: str, count: int) -> None:
    """
    Count webhook calls that were read of the service's journal, to be handed on.

    :param custody_conn_id: id of the connection.
    :param count: number of new calls that match the filter.
    """
    _emit(_CALLS_READ, count, custody_conn_id)


# --- sending -------------------------------------------------------------------------------------------------

#: A value, or a function that returns it; None: it is not known, and not sent.
Value = float | Callable[[], float | None]


@cache
def _keeps_tags() -> bool | None:
    """Return whether tags reach their destination, as Airflow's configuration says; None: nothing is sent."""
    try:

        def is_on(option: str, default: bool = False) -> bool:
            return bool(conf.getboolean("metrics", option, fallback=default))

        # In Airflow's own order.
        if is_on("statsd_datadog_enabled"):
            return is_on("statsd_datadog_metrics_tags", True)
        if is_on("statsd_on"):
            return is_on("statsd_influxdb_enabled")
        return True if is_on("otel_on") else None
    except Exception as exception:
        _failed(exception)
        return None


def _emit(metric: Metric, value: Value, *values: str) -> None:
    """
    Send a value of a metric; a counter's 0 is not sent.

    :param metric: the metric.
    :param value: the value; called, if it is to be, only where metrics are on.
    :param values: the values of its tags, in their order.
    """
    if (keeps_tags := _keeps_tags()) is None:
        return
    try:
        from airflow.providers.common.compat.sdk import Stats

        number = value() if callable(value) else value
        texts = [_tag_value(each) for each in values]
        name, tags = metric.name, dict(zip(metric.tags, texts, strict=True))
        if not keeps_tags:
            # A point would begin another level. Airflow does the same.
            name, tags = ".".join([name, *(each.replace(".", "__")[:_MAX_VALUE] for each in texts)]), {}
        if metric.kind == "gauge" and number is not None:
            Stats.gauge(name, max(0, number), tags=tags)
        elif number:
            Stats.incr(name, int(number), tags=tags)
    except Exception as exception:
        _failed(exception)


def _tag_value(value: str) -> str:
    """Return a tag's value in the characters that every backend takes, and not too long."""
    return _NOT_ALLOWED.sub("_", value)[:_MAX_VALUE] or "none"


def _failed(exception: Exception) -> None:
    """Log that metrics cannot be sent, as a warning only the first time."""
    global _has_warned
    level, _has_warned = logging.DEBUG if _has_warned else logging.WARNING, True
    log.log(level, "Metrics cannot be sent: %s: %s", type(exception).__name__, exception)
