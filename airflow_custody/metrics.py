"""
The metrics of this package, sent through Airflow's own metrics.

The metrics go to the backend that is configured in Airflow's section ``[metrics]``: StatsD, Datadog or OpenTelemetry.
Without a backend, nothing is measured. All names begin with Airflow's prefix. The package needs no setup of its own;
but if you use ``metrics_allow_list``, it must contain ``custody``.

With a backend that supports tags, each metric has one name, and tags. Plain StatsD (``statsd_influxdb_enabled`` is off,
the default) drops tags, so two connections would overwrite each other's gauges. Therefore, with plain StatsD only, the
values of the tags become part of the name, in the order of the tags, as in
``airflow.custody.health.healthy.custody_default.all``.

In the values of tags, all characters other than letters, digits, ``_``, ``-`` and ``.`` are replaced by ``_``, and
values are truncated to 60 characters. If a value is part of a name, its ``.`` is also replaced, by ``__``. This may
make different ids equal: the connections ``prod/eu`` and ``prod_eu`` would share their metrics, so choose distinct ids.
Names and tags never contain secrets, addresses, labels or URLs.

A gauge keeps its last value until a task measures again, so alert on the gauge's age as well. If your backend, like
plain StatsD, does not report the age of a gauge, alert on a lack of calls (``custody.api.calls``). Tasks with different
criteria (``healthy_statuses``, ``require_fresh``) overwrite each other's gauges. On Airflow 2.11, OpenTelemetry only
exports the first set of tags of each gauge in a process: use StatsD instead.

A failing backend never fails a task; the log has a single warning. While a backend hangs, sending a metric delays the
task, as with Airflow's own metrics. StatsD over UDP causes no delay, unless resolving the host's name is slow.
OpenTelemetry on Airflow 3.3 may delay the end of the process by up to 10 seconds (``OTEL_EXPORTER_OTLP_TIMEOUT``). With
a StatsD client of your own (``statsd_custom_client_path``), the delay depends on that client.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, partial
from typing import TYPE_CHECKING, Literal

from airflow.providers.common.compat.sdk import conf

if TYPE_CHECKING:
    from airflow_custody.client.health.models import HealthListing
    from airflow_custody.client.health.verdict import HealthCriteria
    from airflow_custody.client.http.responses import Observation
    from airflow_custody.idempotency.search import CreateOutcome

log = logging.getLogger(__name__)

# Maximum length of a tag's value. It keeps a name with three values below the 250 characters that Airflow allows.
_MAX_VALUE = 60
# Airflow drops a StatsD metric if its name has any of these characters.
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_.-]")

_has_warned = False


@dataclass(frozen=True)
class Metric:
    """
    A metric.

    :param name: its name, without Airflow's prefix.
    :param kind: its kind.
    :param unit: unit of its values.
    :param tags: its tags, in the order in which their values follow the name if the backend has no tags.
    :param description: its meaning, and the cases in which it is not sent.
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
    "Calls to the service. Each retry counts, and so do calls that were interrupted because the task ended. ``status`` "
    "is the HTTP status, or ``none`` if the response is missing or incomplete.",
)
_HEALTHY = Metric(
    "custody.health.healthy",
    "gauge",
    "1 or 0",
    ("conn_id", "tenant_id"),
    "1: all checks in the health listing are healthy. 0: a check is not healthy, or the listing is empty or could not "
    "be read for any reason. Sent each time a task reads the listing. ``tenant_id`` is ``all`` if the task has no "
    "``tenant_id``.",
)
_CREATES = Metric(
    "custody.creates",
    "counter",
    "creates",
    ("conn_id", "kind", "outcome"),
    "Creates by ``outcome``. ``sent``: the create was sent, with any result. ``found``: its response was lost, but the "
    "object was found. ``unknown``: the outcome is unknown, and a user must decide. ``kind`` is "
    "``whitelisting_request`` or ``webhook``.",
)
_PENDING_AGE = Metric(
    "custody.whitelist.oldest_pending_age_seconds",
    "gauge",
    "seconds",
    ("conn_id",),
    "Age of the oldest pending whitelisting request at the service, measured when a whitelist is planned; 0 if no "
    "request is pending. Not sent if a pending request has no creation date.",
)
_CALLS_READ = Metric(
    "custody.webhook_calls.read",
    "counter",
    "calls",
    ("conn_id",),
    "New webhook calls that tasks and watchers have read. A call that several of them read is counted for each.",
)

METRICS = (_CALLS, _HEALTHY, _CREATES, _PENDING_AGE, _CALLS_READ)


# --- measurements --------------------------------------------------------------------------------------------


def call_observer(custody_conn_id: str) -> Callable[[Observation], None] | None:
    """
    Return an observer that counts the calls of a client.

    :param custody_conn_id: id of the client's connection.
    :return: an observer to pass to :meth:`CustodyClient.observe`; None: metrics are off.
    """
    return None if _keeps_tags() is None else partial(_count_call, custody_conn_id)


def _count_call(custody_conn_id: str, seen: Observation) -> None:
    status = "none" if seen.status is None or not seen.is_complete else str(seen.status)
    _emit(_CALLS, 1, custody_conn_id, seen.operation, status)


def measure_health(
    read: Callable[[], HealthListing], custody_conn_id: str, criteria: HealthCriteria, *, is_measured: bool = True
) -> HealthListing:
    """
    Read a health listing, and send whether the service is healthy.

    For the metric, all checks in the listing are evaluated, regardless of the task's filters, and a service whose
    listing cannot be read counts as not healthy.

    :param read: reads the listing. An error that it raises is passed on.
    :param custody_conn_id: id of the connection.
    :param criteria: the task's criteria. Only the tenant, the healthy status words and ``require_fresh`` are used.
    :param is_measured: whether the metric is sent. Default True.
    :return: the listing.
    """
    value: Value = 0
    try:
        listing = read()
        value = partial(_is_healthy, listing, criteria)
        return listing
    finally:
        if is_measured:
            _emit(_HEALTHY, value, custody_conn_id, "all" if criteria.tenant_id is None else criteria.tenant_id)


def _is_healthy(listing: HealthListing, criteria: HealthCriteria) -> int:
    from airflow_custody.client.health.verdict import judge

    all_checks = replace(criteria, groups=None, components=None, checks=None, require_results=None)
    return int(judge(listing, all_checks).healthy)


def create_counted(custody_conn_id: str, kind: str, outcome: CreateOutcome, count: int = 1) -> None:
    """
    Count creates.

    :param custody_conn_id: id of the connection.
    :param kind: the kind of the created object, such as ``whitelisting request``.
    :param outcome: ``sent``: a create was sent, with any outcome; ``found``: its response was lost, but the object was
        found; ``unknown``: its outcome is unknown.
    :param count: number of creates.
    """
    _emit(_CREATES, count, custody_conn_id, kind, outcome)


def pending_listed(custody_conn_id: str, created: Callable[[], Iterable[datetime | None]]) -> None:
    """
    Measure the age of the oldest pending whitelisting request.

    Call this only if all requests of the service were read, because the oldest one may be any of them.

    :param custody_conn_id: id of the connection.
    :param created: returns the creation times of all pending requests. It is called only if metrics are on. If a
        creation time is None, the oldest age is unknown, and nothing is sent.
    """

    def oldest_age() -> float | None:
        moments = list(created())
        known = [each for each in moments if each is not None]
        if len(known) < len(moments):
            return None
        now = datetime.now(timezone.utc)
        # If a creation time is ahead of this machine's clock, the age is 0.
        return max((round((now - each).total_seconds(), 3) for each in known), default=0.0)

    _emit(_PENDING_AGE, oldest_age, custody_conn_id)


def calls_read(custody_conn_id: str, count: int) -> None:
    """
    Count new webhook calls that were read from the service's journal.

    :param custody_conn_id: id of the connection.
    :param count: number of new calls that match the filter.
    """
    _emit(_CALLS_READ, count, custody_conn_id)


# --- sending -------------------------------------------------------------------------------------------------

#: A value, or a function that returns the value; None: the value is unknown, and is not sent.
Value = float | Callable[[], float | None]


@cache
def _keeps_tags() -> bool | None:
    """Return whether the configured metrics backend keeps tags; None: metrics are off."""
    try:

        def is_on(option: str, default: bool = False) -> bool:
            return bool(conf.getboolean("metrics", option, fallback=default))

        # Check the options in the same order as Airflow, because several may be on, and Airflow uses the first.
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
    Send a value of a metric. A counter's 0 is not sent.

    :param metric: the metric.
    :param value: the value. A function is called only if metrics are on.
    :param values: the values of the metric's tags, in the same order.
    """
    if (keeps_tags := _keeps_tags()) is None:
        return
    try:
        from airflow.providers.common.compat.sdk import Stats

        number = value() if callable(value) else value
        texts = [_tag_value(each) for each in values]
        name, tags = metric.name, dict(zip(metric.tags, texts, strict=True))
        if not keeps_tags:
            # Replace dots by "__", like Airflow, because a dot begins a new level of the name.
            name, tags = ".".join([name, *(each.replace(".", "__")[:_MAX_VALUE] for each in texts)]), {}
        if metric.kind == "gauge" and number is not None:
            Stats.gauge(name, max(0, number), tags=tags)
        elif number:
            Stats.incr(name, int(number), tags=tags)
    except Exception as exception:
        _failed(exception)


def _tag_value(value: str) -> str:
    """Return a tag's value with a length and characters that backends accept."""
    return _NOT_ALLOWED.sub("_", value)[:_MAX_VALUE] or "none"


def _failed(exception: Exception) -> None:
    """Log that metrics cannot be sent: the first time as a warning, then at the level DEBUG."""
    global _has_warned
    level, _has_warned = logging.DEBUG if _has_warned else logging.WARNING, True
    log.log(level, "Metrics cannot be sent: %s: %s", type(exception).__name__, exception)
