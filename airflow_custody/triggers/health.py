"""The trigger behind the health sensor's deferrable mode and behind asset watchers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.arguments import check_seconds, check_text, check_time, plain_names, refuse_missing
from airflow_custody.client.errors import CustodyError
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

    from airflow_custody.client import CustodyClient, HealthCheck
    from airflow_custody.client.health.criteria import HealthCriteria
    from airflow_custody.client.health.verdict import MissingName

_STATE_KEY = "custody_health"
_STATES = ("healthy", "unhealthy")
#: The parameters that the triggerer may render.
TEMPLATED = (
    "custody_conn_id",
    "tenant_id",
    "groups",
    "components",
    "checks",
    "require_results",
    "healthy_statuses",
)

FireOn = Literal["healthy", "unhealthy", "change"]


@dataclass(frozen=True)
class HealthState:
    """
    The verdict on one listing, without the checks that it is about: hundreds of triggers may hold one each.

    :param healthy: whether the service is healthy.
    :param summary: the verdict in one line.
    :param result: the verdict as plain JSON data.
    :param missing: the names that the criteria ask for and that the listing does not have.
    """

    healthy: bool
    summary: str
    result: dict[str, Any]
    missing: frozenset[MissingName]


class CustodyHealthTrigger(BaseEventTrigger):
    """
    A trigger that polls the service's health until it is healthy, or watches it change.

    For a deferred task (``fire_on=None``) it fires once: ``{"status": "healthy", "result": ...}``,
    ``{"status": "timeout", "message": ...}`` or ``{"status": "error", "error": ...}``. An error is an event, never
    an exception of the trigger. A connection failure, a truncated response, a 5xx or a 429 is not an error: it is
    logged, and polls become rarer until the service responds again. A name in ``groups``, ``components``, ``checks`` or
    ``require_results`` that is missing from two listings in a row is an error.

    For an ``AssetWatcher`` give ``fire_on``: it then fires whenever the service becomes healthy or unhealthy, not at
    every poll, with ``{"status": "healthy" | "unhealthy", "result": ... | None, "reason": ...}``. A service that does
    not respond is unhealthy, and so is one that refuses the credentials or lacks a name that the criteria ask for.
    Where Airflow keeps state for assets (3.3), a restart of the triggerer does not fire again; elsewhere the state
    before the first poll is taken to have been healthy. Airflow gives such state to a watcher of exactly one asset:
    give each asset's watcher a trigger with arguments of its own. A triggerer with ``--queues`` takes the deferred
    tasks of its queues, but no asset watchers: for these run one without.

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
        self.groups = plain_names(groups)
        self.components = plain_names(components)
        self.checks = plain_names(checks)
        self.require_results = plain_names(require_results)
        self.healthy_statuses = plain_names(healthy_statuses)
        self.require_fresh = require_fresh
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.exponential_backoff = exponential_backoff
        self.max_wait = max_wait
        self.fire_on = fire_on
        # Airflow's default is that of asset watchers, which have no queue; a deferred task has its own.
        self.supports_triggerer_queue = fire_on is None
        # The triggerer renders templates (start_from_trigger): one that renders to None is refused then.
        self._given = tuple(name for name in TEMPLATED if getattr(self, name) is not None)

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

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for what the shared poll brings for these criteria."""
        try:
            criteria = self._criteria()
        except CustodyError as error:
            yield error_event(error)
            return
        if self.fire_on is not None:
            async for each in self._watch(criteria):
                yield each
            return
        with self._poll().subscribe(criteria) as results:
            yield await poll_until(
                results, self._judge(), deadline=self.deadline, interval=float(self.poke_interval), log=self.log
            )

    def _poll(self) -> SharedPoll[HealthCriteria, HealthState]:
        interval = float(self.poke_interval)
        # A trigger that backs off has a rhythm of its own, and so a poll of its own.
        key = object() if self.exponential_backoff else ("health", self.custody_conn_id, str(self.tenant_id), interval)
        schedule = PollSchedule(interval, self.exponential_backoff, self.max_wait, self.deadline)
        return SharedPoll(key, self.custody_conn_id, partial(_fetch, self.custody_conn_id), schedule)

    def _criteria(self) -> HealthCriteria:
        """Return the criteria, all arguments checked: their templates are rendered by now."""
        from airflow_custody.client.health.criteria import HealthCriteria

        for name in self._given:
            refuse_missing(name, getattr(self, name))
        check_text("custody_conn_id", self.custody_conn_id)
        check_seconds("poke_interval", self.poke_interval)
        if self.deadline is not None:
            check_time("deadline", self.deadline)
        if self.max_wait is not None:
            check_seconds("max_wait", self.max_wait)
        return HealthCriteria.of(
            tenant_id=self.tenant_id,
            groups=self.groups,
            components=self.components,
            checks=self.checks,
            require_results=self.require_results,
            healthy_statuses=self.healthy_statuses,
            require_fresh=self.require_fresh,
        )

    def _judge(self) -> Callable[[HealthState], TriggerEvent | str]:
        """Return what says which event a state ends the wait with, or in words why it does not."""
        missing: frozenset[MissingName] = frozenset()

        def judge(state: HealthState) -> TriggerEvent | str:
            from airflow_custody.client.health.verdict import missing_names_error

            nonlocal missing
            before, missing = missing, state.missing
            if before & missing:
                return error_event(missing_names_error(before & missing, state.summary))
            if not state.healthy:
                return state.summary
            self.log.info("Custody: %s", state.summary)
            return event("healthy", result=state.result)

        return judge

    # --- watching for an asset -------------------------------------------------------------------------------

    async def _watch(self, criteria: HealthCriteria) -> AsyncIterator[TriggerEvent]:
        """Fire on each change of state that ``fire_on`` asks for."""
        before = await self._load_state()
        while True:
            with self._poll().subscribe(criteria) as results:
                async for result in results:
                    state = result.value
                    now = "healthy" if state is not None and state.healthy else "unhealthy"
                    if now == before:
                        continue
                    reason = state.summary if state else f"the service cannot be judged: {result.error}"
                    self.log.info("Custody became %s: %s", now, reason)
                    if self.fire_on in (now, "change"):
                        yield event(now, result=state and state.result, reason=reason)
                    # After the event: a triggerer that dies in between fires once more rather than not at all.
                    await self._save_state(now)
                    before = now
            # The poll has died; a watch goes on.
            await asyncio.sleep(float(self.poke_interval))

    def _state_key(self) -> str:
        """Return the key of this watcher's state: other watchers of the same asset have theirs."""
        arguments = json.dumps(self.serialize()[1], sort_keys=True, default=str)
        return f"{_STATE_KEY}_{hashlib.sha256(arguments.encode()).hexdigest()[:16]}"

    async def _load_state(self) -> str:
        """Return the state before a restart of the triggerer; without one, healthy: the first failure is news."""
        try:
            if (store := getattr(self, "asset_state_store", None)) is not None:
                state = await store.aget(self._state_key(), "healthy")
                return state if state in _STATES else "healthy"
        except Exception as exception:
            self.log.warning("The state cannot be loaded; an old one may be reported again: %s", _why(exception))
        return "healthy"

    async def _save_state(self, state: str) -> None:
        try:
            if (store := getattr(self, "asset_state_store", None)) is not None:
                await store.aset(self._state_key(), state)
        except Exception as exception:
            self.log.warning("The state cannot be saved; a restart may report it again: %s", _why(exception))


def _why(exception: Exception) -> str:
    if isinstance(exception, ValueError):
        return (
            "Airflow keeps state for a trigger of exactly one asset. Give each asset's watcher a trigger with its own "
            f"arguments, for example another poke_interval. ({exception})"
        )
    return f"{type(exception).__name__}: {exception}"


def _fetch(
    custody_conn_id: str, client: CustodyClient, criteria: Sequence[HealthCriteria]
) -> Mapping[HealthCriteria, PollResult[HealthState]]:
    """
    Fetch a tenant's health listing, and judge it by each set of criteria.

    That may be hundreds of times ten thousand checks: work for a thread, and not for the event loop.
    """
    from airflow_custody.metrics import health_listed

    # One poll is for one tenant.
    with health_listed(custody_conn_id, criteria[0]) as checks:
        checks += client.list_health_checks(criteria[0].tenant_id)
        fetched_at = datetime.now(timezone.utc)
    return {each: _judge_by(each, checks, fetched_at) for each in criteria}


def _judge_by(criteria: HealthCriteria, checks: Sequence[HealthCheck], fetched_at: datetime) -> PollResult[HealthState]:
    from airflow_custody.client.health.verdict import judge

    try:
        verdict = judge(checks, criteria, fetched_at)
    except Exception as exception:
        return PollResult(error=wrap_unexpected(exception, "judge health checks"))
    return PollResult(HealthState(verdict.healthy, verdict.summary(), verdict.to_json(), verdict.missing))
