"""The trigger behind the health sensor's deferrable mode and behind asset watchers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import as_list
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.triggers._base import (
    PollResult,
    PollSchedule,
    SharedPoll,
    error_event,
    event,
    poll_until,
    wrap_unexpected,
)

try:
    from airflow.triggers.base import BaseEventTrigger
except ImportError:  # Airflow 2 has no event-driven scheduling.
    from airflow.triggers.base import BaseTrigger as BaseEventTrigger  # type: ignore[assignment]

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client import HealthCheck
    from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict

_STATE_KEY = "custody_health"

FireOn = Literal["healthy", "unhealthy", "change"]


@dataclass
class HealthListing:
    """
    The health listing as one poll fetched it.

    :param checks: its entries.
    :param fetched_at: when it was fetched.
    """

    checks: list[HealthCheck]
    fetched_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    _verdicts: dict[HealthCriteria, HealthVerdict] = field(default_factory=dict)

    def verdict(self, criteria: HealthCriteria) -> HealthVerdict:
        """Judge the listing; the same criteria are judged once, however many triggers share the poll."""
        from airflow_custody.client.health.verdict import judge

        if criteria not in self._verdicts:
            self._verdicts[criteria] = judge(self.checks, criteria, self.fetched_at)
        return self._verdicts[criteria]


class CustodyHealthTrigger(BaseEventTrigger):
    """
    A trigger that polls the service's health until it is healthy, or watches it change.

    For a deferred task (``fire_on=None``) it fires once: ``{"status": "healthy", "result": ...}``,
    ``{"status": "timeout", "message": ...}`` or ``{"status": "error", "error": ...}``. An error is an event, never
    an exception of the trigger. A connection failure, a 5xx or a 429 is not an error: it is logged, and polls become
    rarer until the service responds again.

    For an ``AssetWatcher`` give ``fire_on``: it then fires whenever the service becomes healthy or unhealthy, not at
    every poll, with ``{"status": "healthy" | "unhealthy", "result": ... | None, "reason": ...}``. A service that does
    not respond is unhealthy. Where Airflow keeps state for assets (3.3), a restart of the triggerer does not fire
    again; elsewhere the state before the first poll is taken to have been healthy.

    All triggers of one connection, tenant and interval share one poll, unless they back off exponentially. The
    arguments hold the connection's id and nothing secret.

    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param tenant_id: only the checks of this tenant; None (default): of all.
    :param groups: only checks of these groups; None (default): of all.
    :param components: only checks of these components; None (default): of all.
    :param checks: only checks of these names; None (default): all.
    :param require_results: keys that some check must report and that must be healthy.
    :param healthy_statuses: status words that count as healthy. Default ``success``.
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param poke_interval: seconds between two polls. Default 60.
    :param deadline: Unix time in seconds after which the wait times out: wall-clock, so that it survives a restart
        of the triggerer. None (default): no limit.
    :param exponential_backoff: whether polls become rarer while the service is not healthy; such a trigger does not
        share its polls. Default False.
    :param max_wait: maximum number of seconds between two polls then; None (default): no limit but the deadline.
    :param fire_on: for asset watchers: ``"healthy"``, ``"unhealthy"`` or ``"change"``. None (default): wait until
        healthy and fire once.
    """

    def __init__(
        self,
        *,
        custody_conn_id: str = CustodyHook.default_conn_name,
        tenant_id: str | None = None,
        groups: Iterable[str] | None = None,
        components: Iterable[str] | None = None,
        checks: Iterable[str] | None = None,
        require_results: Iterable[str] | None = None,
        healthy_statuses: Iterable[str] = ("success",),
        require_fresh: bool = True,
        poke_interval: float = 60.0,
        deadline: float | None = None,
        exponential_backoff: bool = False,
        max_wait: float | None = None,
        fire_on: FireOn | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if fire_on not in (None, "healthy", "unhealthy", "change"):
            raise ValueError(f"fire_on must be 'healthy', 'unhealthy', 'change' or None, not {fire_on!r}")
        self.custody_conn_id = custody_conn_id
        self.tenant_id = tenant_id
        self.groups = _to_json(groups)
        self.components = _to_json(components)
        self.checks = _to_json(checks)
        self.require_results = _to_json(require_results)
        self.healthy_statuses = _to_json(healthy_statuses)
        self.require_fresh = require_fresh
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.exponential_backoff = exponential_backoff
        self.max_wait = max_wait
        self.fire_on = fire_on

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return (
            f"{CustodyHealthTrigger.__module__}.{CustodyHealthTrigger.__qualname__}",
            {
                "custody_conn_id": self.custody_conn_id,
                "tenant_id": self.tenant_id,
                "groups": self.groups,
                "components": self.components,
                "checks": self.checks,
                "require_results": self.require_results,
                "healthy_statuses": self.healthy_statuses,
                "require_fresh": self.require_fresh,
                "poke_interval": self.poke_interval,
                "deadline": self.deadline,
                "exponential_backoff": self.exponential_backoff,
                "max_wait": self.max_wait,
                "fire_on": self.fire_on,
            },
        )

    # --- Airflow's shared stream (3.3), a thin layer over our shared poll ------------------------------------

    def shared_stream_key(self) -> Hashable | None:
        """Return what makes two triggers share a poll: the connection, the tenant and the interval."""
        if self.exponential_backoff:
            return None
        return ("custody-health", self.custody_conn_id, str(self.tenant_id), float(self.poke_interval))

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[PollResult[HealthListing]]:
        """Yield each result of the shared poll that a trigger with these arguments waits for."""
        trigger = cls(**kwargs)
        schedule = PollSchedule(
            interval=float(trigger.poke_interval),
            exponential_backoff=trigger.exponential_backoff,
            max_wait=trigger.max_wait,
            deadline=trigger.deadline,
        )
        # A trigger that backs off has a rhythm of its own, and so a poll of its own.
        key = trigger.shared_stream_key() or object()
        poll = SharedPoll(key, trigger.custody_conn_id, _fetch, schedule)
        with poll.subscribe(trigger.tenant_id) as results:
            async for result in results:
                yield result

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[PollResult[HealthListing]]
    ) -> AsyncIterator[TriggerEvent]:
        """Turn the poll's results, which many triggers may share, into this trigger's own events."""
        try:
            criteria = self._criteria()
        except CustodyError as error:
            yield error_event(error)
            return
        if self.fire_on is None:
            yield await poll_until(
                shared_stream,
                partial(self._judge, criteria),
                deadline=self.deadline,
                interval=float(self.poke_interval),
                log=self.log,
            )
            return
        async for each in self._watch(criteria, shared_stream):
            yield each

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait where the triggerer itself cannot share streams."""
        stream = self.open_shared_stream(self.serialize()[1])
        try:
            async for each in self.filter_shared_stream(stream):
                yield each
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    # --- what a result means ---------------------------------------------------------------------------------

    def _criteria(self) -> HealthCriteria:
        from airflow_custody.client.health.verdict import HealthCriteria

        return HealthCriteria.of(
            tenant_id=self.tenant_id,
            groups=self.groups,
            components=self.components,
            checks=self.checks,
            require_results=self.require_results,
            healthy_statuses=self.healthy_statuses,
            require_fresh=self.require_fresh,
        )

    def _judge(self, criteria: HealthCriteria, listing: HealthListing) -> TriggerEvent | str:
        """Return the event that ends the wait, or in words why the service is not healthy yet."""
        verdict = listing.verdict(criteria)
        if not verdict.healthy:
            return verdict.summary()
        self.log.info("Custody: %s", verdict.summary())
        return event("healthy", result=verdict.to_json())

    async def _watch(
        self, criteria: HealthCriteria, results: AsyncIterator[PollResult[HealthListing]]
    ) -> AsyncIterator[TriggerEvent]:
        """Fire whenever the service changes the way that is asked for."""
        before = await self._load_state()
        async for result in results:
            verdict = None if result.value is None else result.value.verdict(criteria)
            now = "healthy" if verdict is not None and verdict.healthy else "unhealthy"
            if now == before:
                continue
            reason = verdict.summary() if verdict is not None else f"the service cannot be judged: {result.error}"
            self.log.info("Custody became %s: %s", now, reason)
            if self.fire_on in (now, "change"):
                yield event(now, result=None if verdict is None else verdict.to_json(), reason=reason)
            # After the event: a triggerer that dies in between fires once more rather than not at all.
            await self._save_state(now)
            before = now

    async def _load_state(self) -> str:
        """Return the state before a restart of the triggerer; without one, healthy: the first failure is news."""
        with contextlib.suppress(Exception):
            if (store := getattr(self, "asset_state_store", None)) is not None:
                return str(await store.aget(_STATE_KEY, "healthy"))
        return "healthy"

    async def _save_state(self, state: str) -> None:
        try:
            if (store := getattr(self, "asset_state_store", None)) is not None:
                await store.aset(_STATE_KEY, state)
        except Exception as exception:
            self.log.warning("The state cannot be saved; a restart may report it again: %s", exception)


def _fetch(hook: CustodyHook, tenants: Sequence[str | None]) -> Mapping[str | None, PollResult[HealthListing]]:
    """Fetch the health listing of each tenant."""
    return {tenant_id: _fetch_one(hook, tenant_id) for tenant_id in tenants}


def _fetch_one(hook: CustodyHook, tenant_id: str | None) -> PollResult[HealthListing]:
    try:
        return PollResult(HealthListing(hook.get_conn().list_health_checks(tenant_id)))
    except CustodyError as error:
        return PollResult(error=error)
    except Exception as exception:
        return PollResult(error=wrap_unexpected(exception, "list health checks"))


def _to_json(names: str | Iterable[str] | None) -> Any:
    """Return names as a list, which is what travels; a template or a single name remains a string."""
    return names if names is None or isinstance(names, str) else as_list(names)
