"""All metrics: their names, units and tags, and what each says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """
    A metric.

    :param name: its name, without Airflow's prefix.
    :param kind: what it is.
    :param unit: what its values count, or are measured in.
    :param tags: its tags, in the order in which their values follow the name where there are no tags.
    :param description: what it says, and when it is not sent.
    """

    name: str
    kind: Literal["counter", "gauge", "timer"]
    unit: str
    tags: tuple[str, ...]
    description: str


API_CALLS = Metric(
    "custody.api.calls",
    "counter",
    "calls",
    ("conn_id", "operation", "status"),
    "Calls of the service, each retry included, and those that ended with the task. ``status`` is the HTTP status, or "
    "``none``: no response, or not all of it.",
)
API_DURATION = Metric(
    "custody.api.duration", "timer", "milliseconds", ("conn_id", "operation", "status"), "How long each call took."
)
HEALTHY = Metric(
    "custody.health.healthy",
    "gauge",
    "1 or 0",
    ("conn_id", "tenant_id"),
    "1: the health listing was read, and all of it is healthy. 0: it is not, or is empty, or could not be read, for "
    "whatever reason. Sent each time a task reads it; ``tenant_id`` is ``all`` if no task names one.",
)
HEALTH_CHECKS = Metric(
    "custody.health.checks",
    "gauge",
    "checks",
    ("conn_id", "tenant_id", "state"),
    "Health checks that the service lists, by state: ``healthy`` or ``unhealthy``. All of them, whichever a task asks "
    "for. Not sent if the listing could not be read.",
)
HEALTH_AGE = Metric(
    "custody.health.oldest_result_age_seconds",
    "gauge",
    "seconds",
    ("conn_id", "tenant_id"),
    "Age of the oldest result among them. Not sent if one of them does not say readably when it last ran.",
)
CREATES = Metric(
    "custody.creates",
    "counter",
    "creates",
    ("conn_id", "kind", "outcome"),
    "Creates that were ``sent``, whatever came of them; whose response was lost and that were ``found`` again; of "
    "which it is ``unknown`` whether they exist: a person must look. ``kind`` is ``whitelisting_request`` or "
    "``webhook``.",
)
PENDING = Metric(
    "custody.whitelist.pending",
    "gauge",
    "requests",
    ("conn_id",),
    "Whitelisting requests that are pending approval: all at the service, when a whitelist file is planned. What the "
    "service lists for the connection's user to approve is pending, whatever its status says.",
)
PENDING_AGE = Metric(
    "custody.whitelist.oldest_pending_age_seconds",
    "gauge",
    "seconds",
    ("conn_id",),
    "Age of the oldest of them; 0 if there are none. Not sent if one of them does not say when it was created.",
)
# No gauge: mapped sensors and parallel runs have the same tags, and would overwrite each other.
SENSOR_PENDING_AGE = Metric(
    "custody.sensor.pending_age",
    "timer",
    "milliseconds",
    ("conn_id", "dag_id", "task_id"),
    "Age of the oldest request that a sensor waits for and that is pending, once for each poll. Not sent if none is "
    "pending, or one of them does not say when it was created.",
)
CALLS_READ = Metric(
    "custody.webhook_calls.read",
    "counter",
    "calls",
    ("conn_id",),
    "Webhook calls that were read to be handed on. Each task and each watcher counts its own.",
)
CALLS_DELAY = Metric(
    "custody.webhook_calls.delay",
    "timer",
    "milliseconds",
    ("conn_id",),
    "How old the oldest of them was then, by both machines' clocks.",
)

#: All of them.
METRICS = (
    API_CALLS,
    API_DURATION,
    HEALTHY,
    HEALTH_CHECKS,
    HEALTH_AGE,
    CREATES,
    PENDING,
    PENDING_AGE,
    SENSOR_PENDING_AGE,
    CALLS_READ,
    CALLS_DELAY,
)
