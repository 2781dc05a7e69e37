"""The trigger for the deferrable health sensor and for asset watchers."""

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
from airflow_custody.metrics import measure_health
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
    from airflow_custody.client.health.verdict import HealthVerdict
    from airflow_custody.client.wait_state import WaitState

    CheckHealth = Callable[[HealthCriteria], HealthVerdict]

#: How many seconds after an event the state is saved. Airflow first keeps an event in memory, and usually stores it in
#: its database after a second or two. Because the state is saved later, an event that is lost with a killed triggerer
#: is fired again.
SAVE_DELAY = 10.0
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
    A trigger that waits for a healthy service or watches its health.

    For a deferred task (``fire_on=None``), it fires once: ``{"status": "healthy", "result": ..., "message": ...}``,
    ``{"status": "timeout", "message": ...}`` or ``{"status": "error", "error": ...}``. Errors are always events, never
    exceptions. If a name in ``groups``, ``components``, ``checks`` or ``require_results`` is missing from two listings
    in a row, the wait ends with an error; for ``require_results``, only if all evaluated checks are healthy. A
    connection failure, a truncated response, a 5xx or a 429 does not end the wait: it is logged, and polls become less
    frequent until the service responds again.

    For an ``AssetWatcher``, set ``fire_on``. The trigger then fires each time the service becomes healthy or unhealthy:
    ``{"status": "healthy" | "unhealthy", "result": ... | None, "reason": ...}``. A service that does not respond,
    refuses the credentials, or does not list a name of the criteria is unhealthy. After an event, the next one fires at
    least ten seconds later. On Airflow 3.3, the watcher's state (healthy or unhealthy) is stored with the asset, ten
    seconds after the event, because Airflow must store the event first. If the triggerer restarts within these ten
    seconds, the event is repeated; after them, it is not. On earlier versions of Airflow, nothing is stored: after each
    start, the watcher assumes that the service was healthy before its first poll. Airflow only stores state for a
    watcher of exactly one asset, so give each asset's watcher its own trigger with different arguments. A triggerer
    with ``--queues`` does not run asset watchers: run another triggerer without this option.

    All triggers with the same connection, tenant and interval share one poll. The arguments contain the connection's
    id, but no secrets.

    :param custody_conn_id: id of the Airflow connection; read again at each poll. Default ``custody_default``.
    :param tenant_id: id of the tenant whose checks are evaluated. None (default): all tenants.
    :param groups: exact names of the groups whose checks are evaluated. None (default): all groups.
    :param components: exact names of the components whose checks are evaluated. None (default): all components.
    :param checks: names of the checks that are evaluated. None (default): all checks.
    :param require_results: keys, such as currency codes. At least one check must report each key, and every check that
        reports it must report it as healthy. None (default): no keys.
    :param healthy_statuses: status words that count as healthy, compared without regard to case. Default ``success``.
    :param require_fresh: whether a check past its ``validUntilDate`` counts as not healthy. Default True.
    :param poke_interval: seconds between two polls. Default 60.
    :param deadline: Unix time in seconds after which the wait times out. None (default): no limit.
    :param fire_on: for asset watchers: ``"healthy"``, ``"unhealthy"`` or ``"change"`` (both). None (default): wait
        until the service is healthy, and fire once.
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
        # BaseEventTrigger's default is for asset watchers, which have no queue. A deferred task's trigger may use its
        # queue.
        self.supports_triggerer_queue = fire_on is None
        # With start_from_trigger, the triggerer renders templates. Remember which parameters were given, because none
        # of these may be rendered to None.
        self._given = tuple(name for name in TEMPLATED if getattr(self, name) is not None)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        return serialized(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Subscribe to the shared poll, and fire its events."""
        try:
            # Check this only now, because templates have been rendered by now.
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
        """Fire on each change of state that ``fire_on`` selects."""
        before = await self._load_state()
        while True:
            with self._poll().subscribe(wait) as results:
                while (state := await results.get()) is not None:
                    is_healthy, result = False, None
                    if isinstance(state, CustodyError):
                        reason = f"the service's health is unknown: {state.shorten()}"
                    else:
                        is_healthy, result, reason = state.is_done, dict(state.result), state.summary
                    now = "healthy" if is_healthy else "unhealthy"
                    if now == before:
                        continue
                    self.log.info("Custody became %s: %s", now, reason)
                    if self.fire_on in (now, "change"):
                        yield event(now, result=result, reason=reason)
                        await asyncio.sleep(SAVE_DELAY)
                    await self._save_state(now)
                    before = now
                    # Continue with the latest result, so that a service that keeps changing causes no backlog.
                    while results.qsize() > 1:
                        results.get_nowait()
            # The poll has died, but the watch continues with a new poll.
            await asyncio.sleep(float(self.poke_interval))

    def _state_key(self) -> str:
        """
        Return the key of this watcher's state.

        Other watchers of the same asset have other keys.
        """
        arguments = json.dumps(self.serialize()[1], sort_keys=True, default=str)
        return f"{_STATE_KEY}_{hashlib.sha256(arguments.encode()).hexdigest()[:16]}"

    async def _load_state(self) -> str:
        """
        Return the stored state.

        Without a stored state, return ``healthy``, so that a service that is unhealthy at first fires an event. If the
        state cannot be loaded, try again until it can be, because a guess may hide a change.
        """
        store = getattr(self, "asset_state_store", None)
        while store is not None:
            try:
                state = await ask_store(store, "get", self._state_key(), "healthy")
            except ValueError as exception:
                self._warn("This watcher has no stored state, so a restart may repeat or miss an event", exception)
                break
            except Exception as exception:
                self._warn("The watcher's state cannot be loaded. Until it can be, nothing is watched", exception)
                await asyncio.sleep(max(1.0, float(self.poke_interval)))
            else:
                return state if state in _STATES else "healthy"
        return "healthy"

    async def _save_state(self, state: str) -> None:
        try:
            if (store := getattr(self, "asset_state_store", None)) is not None:
                await ask_store(store, "set", self._state_key(), state)
        except Exception as exception:
            self._warn("The watcher's state cannot be saved, so a restart may repeat or miss an event", exception)

    def _warn(self, text: str, exception: Exception) -> None:
        advice = None
        if isinstance(exception, ValueError):
            advice = (
                "Airflow only stores state for a trigger of exactly one asset. Give each asset's watcher its own "
                "trigger with different arguments, for example another poke_interval."
            )
        why = sanitize(exception, 500)
        self.log.warning("%s", lines(f"{text}: {type(exception).__name__}: {why}", advice))


def _fetch(custody_conn_id: str, client: CustodyClient, waits: Sequence[HealthWait]) -> CheckHealth:
    """
    Fetch a tenant's health listing, and return a function that evaluates it.

    The function caches its verdicts. It runs in a thread, because evaluating ten thousand checks by hundreds of
    criteria would block the event loop.
    """
    # All waits of a poll have the same tenant.
    criteria = waits[0].criteria
    listing = measure_health(lambda: client.list_health_checks(criteria.tenant_id), custody_conn_id, criteria)
    return cache(partial(judge, listing, now=datetime.now(timezone.utc)))
