"""The trigger behind the health sensor's deferrable mode and behind asset watchers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.errors import CustodyError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.polling import after_error, event, first_event, pause, unforeseen

try:
    from airflow.triggers.base import BaseEventTrigger
except ImportError:  # Airflow 2: no event-driven scheduling, no shared polls
    from airflow.triggers.base import BaseTrigger as BaseEventTrigger  # type: ignore[assignment]

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from airflow_custody.client import HealthCheck
    from airflow_custody.client.health import HealthCriteria, HealthVerdict

_STATE_KEY = "custody_health"

FireOn = Literal["healthy", "unhealthy", "change"]


@dataclass
class Look:
    """Hold what one poll of the service brought: its listing, or the error it ended in."""

    checks: list[HealthCheck] = field(default_factory=list)
    error: CustodyError | None = None
    at: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    _verdicts: dict[HealthCriteria, HealthVerdict] = field(default_factory=dict)

    def verdict(self, criteria: HealthCriteria) -> HealthVerdict:
        """Judge the listing; the same criteria are judged once, however many triggers share the poll."""
        from airflow_custody.client.health import judge

        if criteria not in self._verdicts:
            self._verdicts[criteria] = judge(self.checks, criteria, self.at)
        return self._verdicts[criteria]


class CustodyHealthTrigger(BaseEventTrigger):
    """
    Poll the service's health until it is healthy, or watch it turn.

    For a deferred task (``fire_on=None``) it fires once: ``{"status": "healthy", "result": ...}``,
    ``{"status": "timeout", "message": ...}`` or ``{"status": "error", "error": ...}``. An error is an event, never
    an exception of the trigger. A connection failure, a 5xx or a 429 is not an error: it is logged, and polls become
    rarer until the service answers again.

    For an ``AssetWatcher`` give ``fire_on``: it then fires whenever the service turns healthy or unhealthy, not at
    every poll, with ``{"status": "healthy" | "unhealthy", "result": ... | None, "reason": ...}``. A service that does
    not answer is unhealthy. Where Airflow keeps state for assets (3.3), a restart of the triggerer does not fire
    again; elsewhere the state before the first look is taken to have been healthy.

    On Airflow 3.3 and later all triggers of one connection, tenant and interval share one poll. The arguments hold
    the connection's id and nothing secret.

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
        of the triggerer. None (default): no end.
    :param exponential_backoff: whether polls become rarer while the service is not healthy; such a trigger does not
        share its polls. Default False.
    :param max_wait: greatest number of seconds between two polls then; None (default): no limit but the deadline.
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
        self.groups = _plain(groups)
        self.components = _plain(components)
        self.checks = _plain(checks)
        self.require_results = _plain(require_results)
        self.healthy_statuses = _plain(healthy_statuses)
        self.require_fresh = require_fresh
        self.poke_interval = poke_interval
        self.deadline = deadline
        self.exponential_backoff = exponential_backoff
        self.max_wait = max_wait
        self.fire_on = fire_on

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments, all plain JSON data."""
        names = (
            "custody_conn_id",
            "tenant_id",
            "groups",
            "components",
            "checks",
            "require_results",
            "healthy_statuses",
            "require_fresh",
            "poke_interval",
            "deadline",
            "exponential_backoff",
            "max_wait",
            "fire_on",
        )
        path = f"{CustodyHealthTrigger.__module__}.{CustodyHealthTrigger.__qualname__}"
        return path, {name: getattr(self, name) for name in names}

    # --- the poll, shared where Airflow can -----------------------------------------------------------------

    def shared_stream_key(self) -> Hashable | None:
        """Return what makes two triggers share a poll: the connection, the tenant and the interval."""
        if self.exponential_backoff:
            return None
        return ("custody-health", self.custody_conn_id, str(self.tenant_id), float(self.poke_interval))

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Look]:
        """Poll the service for ever and yield each look at it; a failure is a look as well."""
        hook = CustodyHook(kwargs["custody_conn_id"])
        interval = float(kwargs["poke_interval"])
        polls = failures = 0
        try:
            while True:
                # The same client as in every other mode, in a thread: no second, asynchronous one to differ from it.
                look = await asyncio.to_thread(_look, hook, kwargs["tenant_id"])
                polls += 1
                failures = failures + 1 if look.error else 0
                yield look
                await asyncio.sleep(pause(interval, kwargs, polls, failures, look.error))
        finally:
            hook.close()

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Look]) -> AsyncIterator[TriggerEvent]:
        """Turn the looks, which many triggers may share, into this trigger's own events."""
        from airflow_custody.client.health import HealthCriteria

        try:
            criteria = HealthCriteria.of(self)
        except CustodyError as error:
            yield event("error", error=error.to_json())
            return
        if self.fire_on is None:
            yield await first_event(
                shared_stream,
                partial(self._meaning, criteria),
                deadline=self.deadline,
                interval=float(self.poke_interval),
                log=self.log,
            )
            return
        async for each in self._watch(criteria, shared_stream):
            yield each

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll alone, where the triggerer cannot share polls."""
        stream = self.open_shared_stream(self.serialize()[1])
        try:
            async for each in self.filter_shared_stream(stream):
                yield each
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    # --- what a look means ----------------------------------------------------------------------------------

    def _meaning(self, criteria: HealthCriteria, look: Look) -> TriggerEvent | str:
        """Return what a look ends the wait with, or what was seen if it does not."""
        if look.error is not None:
            return after_error(look.error)
        verdict = look.verdict(criteria)
        if not verdict.healthy:
            return verdict.summary()
        self.log.info("Custody: %s", verdict.summary())
        return event("healthy", result=verdict.to_json())

    async def _watch(self, criteria: HealthCriteria, looks: AsyncIterator[Look]) -> AsyncIterator[TriggerEvent]:
        """Fire whenever the service turns the way that is asked for."""
        before = await self._remembered()
        async for look in looks:
            verdict = None if look.error else look.verdict(criteria)
            now = "healthy" if verdict is not None and verdict.healthy else "unhealthy"
            if now == before:
                continue
            reason = verdict.summary() if verdict is not None else f"the service can not be judged: {look.error}"
            self.log.info("Custody turned %s: %s", now, reason)
            if self.fire_on in (now, "change"):
                result = verdict.to_json() if verdict is not None else None
                yield event(now, result=result, reason=reason)
            # After the event: a triggerer that dies in between fires once more rather than not at all.
            await self._remember(now)
            before = now

    async def _remembered(self) -> str:
        """Return the state before a restart of the triggerer; without one, healthy: the first trouble is news."""
        with contextlib.suppress(Exception):
            if (store := getattr(self, "asset_state_store", None)) is not None:
                return str(await store.aget(_STATE_KEY, "healthy"))
        return "healthy"

    async def _remember(self, state: str) -> None:
        try:
            if (store := getattr(self, "asset_state_store", None)) is not None:
                await store.aset(_STATE_KEY, state)
        except Exception as exception:
            self.log.warning("The state can not be kept; a restart may report it again: %s", exception)


def _look(hook: CustodyHook, tenant_id: str | None) -> Look:
    """Fetch the listing, in a worker thread."""
    try:
        return Look(checks=hook.get_conn().list_health_checks(tenant_id))
    except CustodyError as error:
        return Look(error=error)
    except Exception as exception:
        return Look(error=unforeseen(exception, "look at the health"))


def _plain(names: Iterable[str] | None) -> Any:
    """Return names as a list, which is what travels; a template or a single name stays a string."""
    return names if names is None or isinstance(names, str) else list(names)
