"""
What is measured, for Airflow's own metrics, and how it is sent.

They go where Airflow's ``[metrics]`` section says: StatsD, Datadog or OpenTelemetry; without any of these nothing is
done. All names have Airflow's prefix. There is nothing to set, unless you keep a list of metrics: then add
``custody`` to ``metrics_allow_list``.

Where tags are kept, a metric has one name and tags. StatsD without tags (``statsd_influxdb_enabled`` is off, the
default) would drop them, and the gauges of two connections would overwrite each other: there, and only there, the
values follow the name, in the order of the tags: ``airflow.custody.health.checks.custody_default.all.unhealthy``.
What is not a letter, a digit, ``_``, ``-`` or ``.`` becomes ``_``; a point in such a value becomes ``__``, and more
than 60 characters end with a hash. So ``prod/eu`` and ``prod_eu`` share their metrics, as ``prod.eu`` and
``prod__eu`` do without tags: choose other ids. Tags and names hold no secret, no address, no label and no URL.

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

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_custody.metrics_catalogue import (
    API_CALLS,
    API_DURATION,
    CALLS_DELAY,
    CALLS_READ,
    CREATES,
    HEALTH_AGE,
    HEALTH_CHECKS,
    HEALTHY,
    PENDING,
    PENDING_AGE,
    SENSOR_PENDING_AGE,
    Metric,
)

if TYPE_CHECKING:
    from airflow_custody.client.health.criteria import HealthCriteria
    from airflow_custody.client.health.models import HealthCheck
    from airflow_custody.client.http.observation import Observation
    from airflow_custody.client.whitelist.progress import Progress
    from airflow_custody.idempotency.create_once import CreateOutcome

log = logging.getLogger(__name__)

# Three values and a name stay below the 250 characters that Airflow allows.
_MAX_VALUE = 60
_HASH_LENGTH = 8
# What Airflow allows in a name for StatsD; it drops a metric that has anything else in it.
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_.-]")

_has_warned = False


# --- what is measured ----------------------------------------------------------------------------------------


def call_observer(custody_conn_id: str) -> Callable[[Observation], None] | None:
    """
    Return what counts and times the exchanges of a client.

    :param custody_conn_id: id of the client's connection.
    :return: an observer for :meth:`CustodyClient.observe`; None: metrics are off.
    """
    return None if _backend() is None else partial(_count_call, custody_conn_id)


def _count_call(custody_conn_id: str, seen: Observation) -> None:
    if seen.status is None or not seen.is_complete:
        status = "none"
    else:
        # HTTP knows no others, and a series is not to be made for whatever a peer invents.
        status = str(seen.status) if 100 <= seen.status <= 599 else "other"
    _emit(API_CALLS, 1, custody_conn_id, seen.operation, status)
    _emit(API_DURATION, timedelta(seconds=seen.duration), custody_conn_id, seen.operation, status)


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
    try:
        yield checks
    except BaseException:
        if is_measured:
            _emit(HEALTHY, 0, custody_conn_id, _tenant(criteria))
        raise
    if is_measured:
        _health_listed(custody_conn_id, checks, criteria)


def _tenant(criteria: HealthCriteria) -> str:
    return "all" if criteria.tenant_id is None else criteria.tenant_id


def _health_listed(custody_conn_id: str, checks: Sequence[HealthCheck], criteria: HealthCriteria) -> None:
    if _backend() is None:
        return
    try:
        from airflow_custody.client.health.verdict import judge

        all_checks = replace(criteria, groups=None, components=None, checks=None, require_results=None)
        verdict = judge(checks, all_checks)
    except Exception as exception:
        _failed(exception)
        return
    tenant_id = _tenant(criteria)
    # Also of a listing that is wrong as a whole: an empty one has no check that is not healthy.
    _emit(HEALTHY, int(verdict.healthy), custody_conn_id, tenant_id)
    _emit(HEALTH_CHECKS, verdict.total - verdict.unhealthy, custody_conn_id, tenant_id, "healthy")
    _emit(HEALTH_CHECKS, verdict.unhealthy, custody_conn_id, tenant_id, "unhealthy")
    if verdict.oldest_update is not None:
        _emit(HEALTH_AGE, _age(verdict.oldest_update), custody_conn_id, tenant_id)


def create_counted(custody_conn_id: str, kind: str, outcome: CreateOutcome, count: int = 1) -> None:
    """
    Count creates.

    :param custody_conn_id: id of the connection.
    :param kind: the kind of thing that is created: ``whitelisting request``.
    :param outcome: ``sent``: a create has left, whatever came of it; ``found``: one whose response was lost was found
        again; ``unknown``: a person must find out.
    :param count: how many.
    """
    if count:
        _emit(CREATES, count, custody_conn_id, kind, outcome)


def pending_listed(custody_conn_id: str, created: Callable[[], Iterable[datetime | None]]) -> None:
    """
    Measure the whitelisting requests that are pending approval, where all that the service lists were read.

    :param custody_conn_id: id of the connection.
    :param created: returns when each of them was created, None for one that does not say: then the age of the oldest is
        not known, and not sent. Called if metrics are on.
    """
    moments = _moments(created)
    if moments is None:
        return
    _emit(PENDING, len(moments), custody_conn_id)
    if (age := _oldest(moments)) is not None or not moments:
        _emit(PENDING_AGE, age or 0, custody_conn_id)


def pending_polled(custody_conn_id: str, task: Any, progress: Iterable[Progress]) -> None:
    """
    Measure for how long the oldest request has been pending that a sensor waits for, by one poll; if one is pending,
    and all that are say when they were created.

    :param custody_conn_id: id of the connection.
    :param task: has the sensor's ``dag_id`` and ``task_id``; without them nothing is measured.
    :param progress: how far the requests have come.
    """
    dag_id, task_id = getattr(task, "dag_id", None), getattr(task, "task_id", None)
    if not (dag_id and task_id):
        return
    moments = _moments(lambda: [each.created_at for each in progress if each.state == "pending"])
    if (age := _oldest(moments or [])) is not None:
        _emit(SENSOR_PENDING_AGE, timedelta(seconds=age), custody_conn_id, dag_id, task_id)


def _moments(created: Callable[[], Iterable[datetime | None]]) -> list[datetime | None] | None:
    """Return when things were created; None if nobody wants to know, or it cannot be known."""
    if _backend() is None:
        return None
    try:
        moments = list(created())
        _oldest(moments)
    except Exception as exception:
        _failed(exception)
        return None
    return moments


def _oldest(moments: Sequence[datetime | None]) -> float | None:
    """Return the age of the oldest; None if there are none, or one of them is not known."""
    known = [each for each in moments if each is not None]
    return _age(min(known)) if known and len(known) == len(moments) else None


def calls_read(custody_conn_id: str, count: int, oldest_created_at: datetime | None) -> None:
    """
    Measure webhook calls that were read of the service's journal, to be handed on.

    :param custody_conn_id: id of the connection.
    :param count: how many, of those that are new and asked for.
    :param oldest_created_at: when the oldest of them was written down, by the service's clock; None: not known.
    """
    if not count or _backend() is None:
        return
    _emit(CALLS_READ, count, custody_conn_id)
    if oldest_created_at is not None:
        _emit(CALLS_DELAY, timedelta(seconds=_age(oldest_created_at)), custody_conn_id)


def _age(moment: datetime) -> float:
    """Return the seconds since a moment; 0 if it is still to come by this machine's clock."""
    return max(0.0, round((datetime.now(timezone.utc) - moment).total_seconds(), 3))


# --- how it is sent ------------------------------------------------------------------------------------------


class _Backend(NamedTuple):
    """
    Where metrics go.

    :param stats: Airflow's functions.
    :param keeps_tags: whether tags reach their destination.
    """

    stats: Any
    keeps_tags: bool


@cache
def _backend() -> _Backend | None:
    """Return where metrics go, as Airflow's configuration says; None: nowhere."""
    try:
        from airflow.providers.common.compat.sdk import conf

        def is_on(option: str, default: bool = False) -> bool:
            return bool(conf.getboolean("metrics", option, fallback=default))

        # In the order in which Airflow looks.
        if is_on("statsd_datadog_enabled"):
            keeps_tags = is_on("statsd_datadog_metrics_tags", True)
        elif is_on("statsd_on"):
            keeps_tags = is_on("statsd_influxdb_enabled")
        elif is_on("otel_on"):
            keeps_tags = True
        else:
            return None
        from airflow.providers.common.compat.sdk import Stats

        return _Backend(Stats, keeps_tags)
    except Exception as exception:
        _failed(exception)
        return None


def _emit(metric: Metric, value: Any, *values: str) -> None:
    """
    Send a value of a metric.

    :param metric: the metric.
    :param value: a number, or for a timer a duration.
    :param values: the values of its tags, in their order.
    """
    if (backend := _backend()) is None:
        return
    try:
        texts = [tag_value(each, in_name=not backend.keeps_tags) for each in values]
        name, tags = metric.name, dict(zip(metric.tags, texts, strict=True))
        if not backend.keeps_tags:
            name, tags = ".".join([name, *texts]), {}
        if metric.kind == "counter":
            backend.stats.incr(name, value, tags=tags)
        elif metric.kind == "gauge":
            backend.stats.gauge(name, value, tags=tags)
        else:
            backend.stats.timing(name, value, tags=tags)
    except Exception as exception:
        _failed(exception)


def tag_value(value: str, *, in_name: bool = False) -> str:
    """
    Return a tag's value in the characters that every backend takes, and not too long.

    :param value: the value.
    :param in_name: whether it becomes a part of a name, where a point would begin another level. Default False.
    :return: the value; what is too long ends with a hash, so that two values stay apart.
    """
    text = _NOT_ALLOWED.sub("_", value)
    if in_name:
        # As Airflow does it.
        text = text.replace(".", "__")
    if len(text) > _MAX_VALUE:
        digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:_HASH_LENGTH]
        text = f"{text[: _MAX_VALUE - _HASH_LENGTH - 1]}_{digest}"
    return text or "none"


def _failed(exception: Exception) -> None:
    """Tell that metrics cannot be sent: once in a warning, as it would be so at each of them."""
    global _has_warned
    level, _has_warned = logging.DEBUG if _has_warned else logging.WARNING, True
    log.log(level, "Metrics cannot be sent: %s: %s", type(exception).__name__, exception)
