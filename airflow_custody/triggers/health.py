"""The trigger behind the health sensor's deferrable mode and behind asset watchers."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timezone
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.arguments import plain_names, refuse_missing
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.health.verdict import HealthCriteria, HealthWait, judge
from airflow_custody.client.text import lines, sanitize
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.metrics import health_listed
from airflow_custody.triggers._base import (
    SharedPoll,
    ask_store,
    check_timing,
    error_event,
    event,
    serialized,
    wait_until_done,
)

try:
    from airflow.triggers.base import BaseEventTrigger
except ImportError:  # Airflow 2 has no event-driven scheduling.
    from airflow.triggers.base import BaseTrigger as BaseEventTrigger  # type: ignore[assignment]

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.health.verdict import HealthCriteria, HealthVerdict, HealthWait
    from airflow_custody.client.wait_state import WaitState

    CheckHealth = Callable[[HealthCriteria], HealthVerdict]

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


class CustodyHealthTrigger(BaseEventTrigger):
    """
    A trigger that polls the service's health until it is healthy, or watches it change.

    For a deferred task (``fire_on=None``) it fires once: ``{"status": "healthy", "result": ..., "message": ...}``,
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

    All triggers of one connection, tenant and interval share one poll. The arguments hold the connection's id and
    nothing secret.

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
        self.fire_on = fire_on
        # Airflow's default is that of asset watchers, which have no queue; a deferred task has its own.
        self.supports_triggerer_queue = fire_on is None
        # The triggerer renders templates (start_from_trigger): one that renders to None is refused then.
        self._given = tuple(name for name in TEMPLATED if getattr(self, name) is not None)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return serialized(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for what the shared poll brings for these criteria."""
        try:
            # Their templates are rendered by now.
            for name in self._given:
                refuse_missing(name, getattr(self, name))
            check_timing(self.custody_conn_id, self.poke_interval, self.deadline)
            wait = HealthWait(HealthCriteria.from_fields(self))
        except CustodyError as error:
            yield error_event(error)
            return
        if self.fire_on is not None:
            async for each in self._watch(wait):
                yield each
            return
        interval = float(self.poke_interval)
        yield await wait_until_done(
            self._poll(), wait, "healthy", deadline=self.deadline, interval=interval, log=self.log
        )

    def _poll(self) -> SharedPoll[WaitState]:
        interval = float(self.poke_interval)
        key = ("health", self.custody_conn_id, str(self.tenant_id), interval)
        return SharedPoll(key, self.custody_conn_id, partial(_fetch, self.custody_conn_id), interval)

    # --- watching for an asset -------------------------------------------------------------------------------

    async def _watch(self, wait: HealthWait) -> AsyncIterator[TriggerEvent]:
        """Fire on each change of state that ``fire_on`` asks for."""
        before = await self._load_state()
        while True:
            with self._poll().subscribe(wait) as results:
                while (state := await results.get()) is not None:
                    is_healthy, result = False, None
                    if isinstance(state, CustodyError):
                        reason = f"the service cannot be judged: {state.shorten()}"
                    else:
                        is_healthy, result, reason = state.is_done, dict(state.result), state.summary
                    now = "healthy" if is_healthy else "unhealthy"
                    if now == before:
                        continue
                    self.log.info("Custody became %s: %s", now, reason)
                    if self.fire_on in (now, "change"):
                        yield event(now, result=result, reason=reason)
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
                state = await ask_store(store, "get", self._state_key(), "healthy")
                return state if state in _STATES else "healthy"
        except Exception as exception:
            self._warn("The state cannot be loaded; an old one may be reported again", exception)
        return "healthy"

    async def _save_state(self, state: str) -> None:
        try:
            if (store := getattr(self, "asset_state_store", None)) is not None:
                await ask_store(store, "set", self._state_key(), state)
        except Exception as exception:
            self._warn("The state cannot be saved; a restart may report it again", exception)

    def _warn(self, text: str, exception: Exception) -> None:
        advice = None
        if isinstance(exception, ValueError):
            advice = (
                "Airflow keeps state for a trigger of exactly one asset. Give each asset's watcher a trigger with its "
                "own arguments, for example another poke_interval."
            )
        why = sanitize(exception, 500)
        self.log.warning("%s", lines(f"{text}: {type(exception).__name__}: {why}", advice))


def _fetch(custody_conn_id: str, client: CustodyClient, waits: Sequence[HealthWait]) -> CheckHealth:
    """
    Fetch a tenant's health listing, and return what judges it by each set of criteria once.

    That may be hundreds of times ten thousand checks: work for a thread, and not for the event loop.
    """
    # One poll is for one tenant.
    criteria = waits[0].criteria
    with health_listed(custody_conn_id, criteria) as checks:
        checks += client.list_health_checks(criteria.tenant_id)
    return cache(partial(judge, checks, now=datetime.now(timezone.utc)))
