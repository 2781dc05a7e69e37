"""The operator that reads the journal of webhook calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import Asset

from airflow_custody._base import NOT_GIVEN
from airflow_custody.assets import webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg


class CustodyReadWebhookCallsOperator(CustodyOperator):
    """
    Read new webhook calls, and emit one asset event with them.

    The service records each call in a journal before it posts the call to the webhook. This task reads the journal, so
    it needs neither an open port nor a webhook receiver, and it also finds calls that were made while Airflow was down.
    Needs the role ``Admin`` or ``AdminReadOnly``. The operation is undocumented.

    The event's ``extra`` is ``{"count", "calls", "late_ids", "gap", "more", "filters", "cursor"}``. Each call has the
    ``type``, ``event_at`` and ``data`` of its event, with ids as text (see :class:`WebhookCall`). If the ``extra``
    would be larger than 64 KiB, it has ``call_ids`` instead of ``calls``, and ``since``, the time at which the oldest
    of these calls was created.
    :func:`airflow_custody.assets.calls_of` returns the calls in both cases.

    Each call is emitted at least once, so it may be repeated: recognize repeated calls by their ids. Airflow stores the
    event together with the task's success. A task that is killed before its success emits nothing, and its next try
    reads the same calls. A call is missed only if the service begins to list it after this task has read a call that
    was created more than five minutes later. ``late_ids`` contains the ids of calls that were listed late, but were not
    missed.

    If there are no new calls, the task is skipped, and so are its downstream tasks; no event is emitted. In these
    cases, however, an event without calls (``count`` 0) stores the cursor: in the task's first run; after a gap; if the
    task's last event is a day old; and if the filters leave out all new calls, and the number of new calls is at least
    1000 or exceeds ``max_calls``.

    **The next run continues at the cursor in this task's last event.** Anyone who writes a DAG can emit an event with
    any cursor. Therefore, an event counts only if Airflow has recorded that this task emitted it. If only other tasks
    have events with a cursor, calls may be lost, and ``on_gap`` decides what happens. To avoid this after renaming the
    task, name the old task in ``continue_from``. ``on_gap`` also decides if Airflow's clean-up (``airflow db clean``)
    has deleted the task's last event, as may happen while the DAG is paused for a long time. Before Airflow 3.3, this
    deletion is not noticed, and the task starts as in its first run.

    Give each task its own asset, because a task whose event is not among the asset's last 500 events fails. Use a new
    asset to start over. Only one instance of the task runs at a time, and the task cannot be mapped.

    :param asset: the asset whose events hold the calls. It becomes an inlet and outlet of the task. None (default):
        ``webhook_calls_asset(custody_conn_id)``. Required if ``custody_conn_id`` is a template.
    :param start: where the first run starts: ``now`` (default), or ``beginning``: at the oldest call that the service
        still lists. Ignored if the task already has a cursor. (templated)
    :param webhook_ids: ids of the webhooks whose calls are read. Default: all webhooks. (templated)
    :param webhook_types: types of the webhooks whose calls are read, such as ``currencyStatus.updated``. The types come
        from the listing of webhooks. For a webhook that was deleted, the type in the call's payload is used. Default:
        all types. (templated)
    :param event_ids: ids of the events whose calls are read. Default: all events. (templated)
    :param statuses: delivery statuses, at the time of reading, of the calls that are read. Default: all statuses.
        (templated)
    :param data_statuses: values of ``status`` in the ``data`` of the events whose calls are read, such as ``disabled``.
        A call is also read if its payload does not have the published form. Default: all values. (templated)
    :param with_payload: whether the asset event includes the calls' payloads, and the ``data`` in the payloads. Default
        True.
    :param max_calls: maximum number of calls per run; the next run reads the rest. Default 10000.
    :param on_gap: behaviour if there is a gap, which means that calls may be lost: the newest known call is no longer
        listed; the service's clock was set back by more than five minutes and has not caught up; or the task has no
        cursor, although this or another task has emitted one. ``fail`` (default): the task fails. ``continue``: the
        task logs a warning, and the event describes the gap; without a cursor, the task starts as set in ``start``.
        (templated)
    :param continue_from: the task from whose cursor this task continues while it has none, such as this task under its
        old name. Written as ``<dag_id>/<task_id>``. Default: no other task. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"count": ...}``: the number of calls in the event.
    :raises AirflowSkipException: if there are no new calls.
    :raises AirflowFailException: if an argument is wrong, calls may be lost and ``on_gap`` is ``fail``, or the service
        refuses the reading.
    :raises CustodyError: if the service does not respond as it should; Airflow's retries apply.
    """

    template_fields: Sequence[str] = (
        "start",
        "webhook_ids",
        "webhook_types",
        "event_ids",
        "statuses",
        "data_statuses",
        "on_gap",
        "continue_from",
        "custody_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "webhook_ids": "json",
        "webhook_types": "json",
        "event_ids": "json",
        "statuses": "json",
        "data_statuses": "json",
    }
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        asset: Asset | None = None,
        start: str | XComArg = "now",
        webhook_ids: Iterable[str] | XComArg | None = NOT_GIVEN,
        webhook_types: Iterable[str] | XComArg | None = NOT_GIVEN,
        event_ids: Iterable[str] | XComArg | None = NOT_GIVEN,
        statuses: Iterable[str] | XComArg | None = NOT_GIVEN,
        data_statuses: Iterable[str] | XComArg | None = NOT_GIVEN,
        with_payload: bool = True,
        max_calls: int = 10_000,
        on_gap: str | XComArg = "fail",
        continue_from: str | XComArg = NOT_GIVEN,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(with_payload=with_payload)
        self._check_numbers({"max_calls": max_calls}, 1, whole=True)
        if asset is not None and not isinstance(asset, Asset):
            self._refuse(f"asset must be an Asset, not {asset!r}")
            asset = None
        self.asset = webhook_calls_asset(self.custody_conn_id) if asset is None else asset
        self.inlets = _with(self.asset, self.inlets)
        self.outlets = _with(self.asset, self.outlets)
        if self.max_active_tis_per_dag is None:
            # Allow one instance at a time, because two would read the same calls.
            self.max_active_tis_per_dag = 1
        self.start = start
        self.webhook_ids = webhook_ids
        self.webhook_types = webhook_types
        self.event_ids = event_ids
        self.statuses = statuses
        self.data_statuses = data_statuses
        self.with_payload = with_payload
        self.max_calls = max_calls
        self.on_gap = on_gap
        self.continue_from = continue_from

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.operators._call_reading import read_calls

        return read_calls(self, context, hook)


def _with(asset: Asset, given: Any) -> list[Any]:
    """Return the given inlets or outlets, with the asset added if it is not among them."""
    if not isinstance(given, (list, tuple)):
        given = [given] if given else []
    return list(given) if asset in given else [*given, asset]
