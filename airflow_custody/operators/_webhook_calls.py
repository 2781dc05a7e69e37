"""The operator that reads the journal of webhook calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset

from airflow_custody._base import NOT_GIVEN
from airflow_custody.assets import webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CustodyReadWebhookCallsOperator(CustodyOperator):
    """
    Read the webhook calls that are new since the last run, and emit one asset event that holds them.

    The service writes each call down before it posts it. This task reads that journal: it needs no open port and no
    webhook receiver, and also finds what was written while Airflow was down. Needs the role ``Admin`` or
    ``AdminReadOnly``. The operation is undocumented.

    The event's ``extra`` is ``{"count", "calls", "late_ids", "gap", "more", "filters", "task", "cursor"}``; above 64
    KiB it has ``call_ids`` instead of ``calls``, and ``since``, when the oldest of them was created. A consumer gets
    the calls of either from :func:`airflow_custody.assets.calls_of`. The next run goes on from the ``cursor`` of the
    asset's last event that a task has emitted, whoever else emits events of the asset. Airflow stores the event
    together with the task's success. So a task that is killed before emits nothing, and its next try reads the same
    calls: each call is emitted at least once, and its id tells repetitions apart. A call that appears more than five
    minutes behind one that was created later is not found; ``late_ids`` are those that came a little late.

    Where nothing is new, the task is skipped, and so is what depends on it in its DAG; there is no event. An event
    without calls (``count`` 0) is emitted by the first run with ``start="now"``, to store the place; after a gap;
    and, where there is no asset state store (Airflow before 3.3), if only calls were read that the filters leave out,
    and they are more than ``max_calls``, or the last event is a day old.

    **One asset has one cursor.** Two tasks with the same asset share it, also tasks of two DAGs: what one of them has
    read, the other does not read again, and the log warns of that. If their filters differ, that is a gap. Give each
    its own asset, then. To begin anew, take a new asset, too. One instance of the task runs at a time; it cannot be
    mapped. Airflow's clean-up (``airflow db clean``) may delete its last event when it is switched off for long: then
    it goes on from the asset's state store, and the last event's calls come again. Airflow before 3.3 has none, and it
    begins as if for the first time.

    :param asset: the asset whose events hold the calls, an inlet and outlet of the task. None (default):
        ``webhook_calls_asset(custody_conn_id)``, so it must be given where ``custody_conn_id`` is a template.
    :param start: start of the first run: ``now`` (default) or ``beginning``, with the oldest call that the service
        still lists. It is ignored once the asset has a cursor, whichever task that is of. (templated)
    :param webhook_ids: only calls to these webhooks; default: to all, and so for those below. (templated)
    :param webhook_types: only calls to webhooks of these types, such as ``requestStatus.updated``. A call does not say
        its type: the listing of webhooks does. (templated)
    :param event_ids: only calls of these events. (templated)
    :param statuses: only calls whose delivery has one of these statuses when they are read. (templated)
    :param with_payload: whether the event holds what the calls tell. Default True.
    :param max_calls: maximum number of calls per reading; the next run goes on. Default 10000.
    :param on_gap: behaviour if calls may be lost, because the newest known call is no longer listed, the service's
        clock was set back, or the asset's cursor is another task's with other filters: ``fail`` (default), or
        ``continue``: log a warning, and say so in the event. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"count": ...}``: how many calls the event holds.
    :raises AirflowSkipException: if nothing is new.
    :raises AirflowFailException: if an argument is wrong, or calls may be lost and ``on_gap`` is ``fail``.
    """

    template_fields: Sequence[str] = (
        "start",
        "webhook_ids",
        "webhook_types",
        "event_ids",
        "statuses",
        "on_gap",
        "custody_conn_id",
    )
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        asset: Asset | None = None,
        start: str = "now",
        webhook_ids: Iterable[str] | None = NOT_GIVEN,
        webhook_types: Iterable[str] | None = NOT_GIVEN,
        event_ids: Iterable[str] | None = NOT_GIVEN,
        statuses: Iterable[str] | None = NOT_GIVEN,
        with_payload: bool = True,
        max_calls: int = 10_000,
        on_gap: str = "fail",
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(with_payload=with_payload)
        self._check_numbers({"max_calls": max_calls}, 1, whole=True)
        if asset is not None and not isinstance(asset, Asset):
            self._refuse(f"asset must be an Asset, not {asset!r}")
            asset = None
        self.asset = webhook_calls_asset(custody_conn_id) if asset is None else asset
        self.inlets = _with(self.asset, self.inlets)
        self.outlets = _with(self.asset, self.outlets)
        if self.max_active_tis_per_dag is None:
            # Two at the same time would read the same calls.
            self.max_active_tis_per_dag = 1
        self.start = start
        self.webhook_ids = webhook_ids
        self.webhook_types = webhook_types
        self.event_ids = event_ids
        self.statuses = statuses
        self.with_payload = with_payload
        self.max_calls = max_calls
        self.on_gap = on_gap

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.operators._call_reading import CallReading

        filters = ("webhook_ids", "webhook_types", "event_ids", "statuses")
        reading = CallReading(
            self.custody_conn_id,
            self.asset,
            self.start,
            {name: getattr(self, name) for name in filters},
            self.with_payload,
            self.max_calls,
            self.on_gap,
            self.log,
        )
        return reading.run(context, hook)


def _with(asset: Asset, given: Any) -> list[Any]:
    """Return the given inlets or outlets, with the asset."""
    if not isinstance(given, (list, tuple)):
        given = [given] if given else []
    return list(given) if asset in given else [*given, asset]
