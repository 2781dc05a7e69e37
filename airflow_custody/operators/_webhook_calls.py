"""The operator that reads the journal of webhook calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowSkipException, Asset

from airflow_custody._base import NOT_GIVEN, ParameterError, check_flags, check_numbers
from airflow_custody.assets import is_plain_conn_id, webhook_calls_asset
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.webhooks.call_events import CallFilter
    from airflow_custody.client.webhooks.journal import CallCursor
    from airflow_custody.client.webhooks.models import WireWebhook
    from airflow_custody.client.webhooks.results import NewCalls
    from airflow_custody.operators._call_place import Place

_STARTS = ("now", "beginning")
_ON_GAP = ("fail", "continue")
#: Maximum number of webhooks that are not enabled in the XCom.
_MAX_REPORTED = 20


class CustodyReadWebhookCallsOperator(CustodyOperator):
    """
    Read the webhook calls that are new since the last run, and emit one asset event that holds them.

    The service writes each call down before it posts it. This task reads that journal: it needs no open port and no
    webhook receiver, and also finds what was written while Airflow was down. Needs the role ``Admin`` or
    ``AdminReadOnly``. The operation is undocumented.

    The event's ``extra`` is ``{"count", "calls", "late_ids", "gap", "more", "cursor", "service", "conn_id",
    "filters"}``; above 64 KiB it has ``call_ids`` instead of ``calls``, and ``since``, when the oldest of them was
    created. A consumer gets the calls of either from :func:`airflow_custody.assets.calls_of`. The next run goes on
    from the ``cursor`` of the asset's last event that a task has emitted, whoever else emits events of the asset.
    Airflow stores the event together with the task's success. So a task that is killed before emits nothing, and its
    next try reads the same calls: each call is emitted at least once, and its id tells repetitions apart. A call that
    the service lists much later than its time of creation says is not found; ``late_ids`` are those that came a little
    late.

    Where nothing is new, the task is skipped, and so is what depends on it in its DAG; there is no event. An event
    without calls (``count`` 0) is emitted by the first run with ``start="now"``, to store the place; after a gap;
    and, where there is no asset state store (Airflow before 3.3), after a day without an event, or, as long as no call
    came after a gap, after minutes.

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
    :param webhook_ids: only calls to these webhooks; None (default): to all, and so for those below. (templated)
    :param webhook_types: only calls to webhooks of these types, such as ``requestStatus.updated``. A call does not say
        its type: the listing of webhooks does. (templated)
    :param event_ids: only calls of these events. (templated)
    :param statuses: only calls whose delivery has one of these statuses when they are read. (templated)
    :param with_payload: whether the event holds what the calls tell. Default True.
    :param max_calls: maximum number of calls per reading; the next run goes on. Default 10000.
    :param on_gap: behaviour if calls may be lost, because the journal was cut off after the last run, the connection
        names another service now, or the asset's cursor is of other filters: ``fail`` (default), or ``continue``: log a
        warning, and say so in the event. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"count": ..., "webhooks": ...}``: how many calls the event holds, and the first 20 webhooks that are not
        enabled, each with ``id``, ``type``, ``status`` and ``timeout_until``. It is not published whether the service
        still writes down their calls. None: this service, or this user, cannot list webhooks.
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
        check_flags(with_payload=with_payload)
        check_numbers({"max_calls": max_calls}, 1, whole=True)
        if asset is None and is_plain_conn_id(custody_conn_id):
            asset = webhook_calls_asset(custody_conn_id)
        if asset is not None:
            if not isinstance(asset, Asset):
                raise ParameterError(f"asset must be an Asset, not {asset!r}")
            self.inlets = _with(asset, self.inlets)
            self.outlets = _with(asset, self.outlets)
        if self.max_active_tis_per_dag is None:
            # Two at the same time would read the same calls.
            self.max_active_tis_per_dag = 1
        self.asset = asset
        self.start = start
        self.webhook_ids = webhook_ids
        self.webhook_types = webhook_types
        self.event_ids = event_ids
        self.statuses = statuses
        self.with_payload = with_payload
        self.max_calls = max_calls
        self.on_gap = on_gap
        self._note_given()

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.text import count
        from airflow_custody.client.webhooks.call_events import CallFilter, to_event
        from airflow_custody.client.webhooks.journal import CallCursor
        from airflow_custody.metrics import calls_read
        from airflow_custody.operators._call_place import CallPlace

        start, on_gap = _choice("start", self.start, _STARTS), _choice("on_gap", self.on_gap, _ON_GAP)
        filters = self._filters()
        asset = self._own_asset(context)
        client = hook.get_conn()
        journal_place = CallPlace(context, asset, self.custody_conn_id, client.settings.base_url, filters, self.log)
        place = journal_place.find()
        gaps = [place.gap] if place.gap else []
        if gaps and on_gap == "fail":
            _fail(gaps)
        new, webhooks, rounds = self._read(client, place, start, CallFilter(**filters))
        if new.gap:
            gaps.append(new.gap)
            if on_gap == "fail":
                _fail(gaps)
        is_first = place.cursor is None and start == "now"
        if not new.calls and not gaps and not is_first:
            kept = journal_place.keep(new.cursor)
            # If the service's clock was set back, what it writes now is below the event's floor.
            is_back = place.cursor is not None and new.cursor.floor < place.cursor.floor
            if kept or (rounds == 1 and not place.must_be_emitted and not is_back):
                raise AirflowSkipException("No new webhook calls.")
        for gap in gaps:
            self.log.warning("Webhook calls may be lost: %s.", gap)
        data = to_event(replace(new, gap="; ".join(gaps)), with_payload=self.with_payload)
        if not place.base_url_changed:
            # If the event is deleted or buried one day, its calls come again, and none is lost.
            journal_place.keep(new.known or place.cursor or (new.cursor if is_first else CallCursor(0, {})))
        context["outlet_events"][asset].extra = journal_place.event_extra(data, new.cursor)
        calls_read(self.custody_conn_id, len(new.calls))
        self.log.info(
            "%s.%s",
            count(len(new.calls), "new webhook call") if new.calls else "No new webhook calls",
            " There are more: the next run goes on." if new.more else "",
        )
        if is_first:
            self.log.info("From now on, calls are read; those from before are not.")
        return {"count": len(new.calls), "webhooks": webhooks}

    def _read(
        self, client: CustodyClient, place: Place, start: str, call_filter: CallFilter
    ) -> tuple[NewCalls, list[dict[str, Any]] | None, int]:
        """
        Read on until there is a call that is selected, or no more.

        :return: the new calls, only the selected ones; the webhooks that are not enabled; and how often more
            calls were read than a run takes at once.
        """
        from airflow_custody.client.webhooks.base_url_change import read_after_base_url_change

        cursor, rounds, late, gaps = place.cursor, 0, set[str](), list[str]()
        known: CallCursor | None = None
        while True:
            if place.base_url_changed and cursor is not None and rounds == 0:
                new = read_after_base_url_change(client, cursor, limit=self.max_calls)
            else:
                new = client.read_webhook_calls(cursor, start=start, limit=self.max_calls)  # type: ignore[arg-type]
            rounds += 1
            known = known if rounds > 1 else new.known
            # After the calls: a webhook that is younger than its first call does not exist.
            listed = self._list_webhooks(client, required=call_filter.needs_types)
            types = {each["id"]: name for each in listed or () if (name := each.get("type"))}
            selected = tuple(call_filter.select(new.calls, types))
            late |= new.late & {each.id for each in selected}
            gaps += [new.gap] if new.gap else []
            if selected or not new.more or gaps:
                break
            cursor = new.cursor
        self._warn_of_what_matches_nothing(listed)
        if new.warning:
            self.log.warning("%s", new.warning)
        found = replace(new, calls=selected, late=frozenset(late), gap="; ".join(gaps), known=known)
        return found, self._report(listed), rounds

    def _list_webhooks(self, client: CustodyClient, *, required: bool) -> list[WireWebhook] | None:
        from airflow_custody.client.errors import CustodyError

        try:
            return list(client.list_webhooks())
        except CustodyError as error:
            if required:
                raise
            if not error.not_offered:
                self.log.warning("Which webhooks are enabled is not known: %s", error.reason)
            return None

    def _report(self, listed: Sequence[WireWebhook] | None) -> list[dict[str, Any]] | None:
        """Log the webhooks that are not enabled or cool down, and return the first of them."""
        from airflow_custody.client.text import sanitize

        if listed is None:
            return None
        found = [each for each in listed if not _is_enabled(each)]
        for each in found[:_MAX_REPORTED]:
            self.log.warning(
                "Webhook %s (%s) is %s%s: it is not known whether the service still writes down its calls.",
                sanitize(each["id"], 60),
                sanitize(each.get("type") or "no type", 60),
                sanitize(each.get("status") or "without a status", 60),
                f" until {sanitize(each['timeoutUntil'], 40)}" if each.get("timeoutUntil") else "",
            )
        return [
            {
                "id": each["id"],
                "type": each.get("type") or "",
                "status": each.get("status") or "",
                "timeout_until": each.get("timeoutUntil") or "",
            }
            for each in found[:_MAX_REPORTED]
        ]

    def _warn_of_what_matches_nothing(self, listed: Sequence[WireWebhook] | None) -> None:
        if listed is None:
            return
        from airflow_custody.client.text import as_list, ascii_lower, sanitize
        from airflow_custody.client.webhooks.types import type_hint

        for name, key in (("webhook_ids", "id"), ("webhook_types", "type")):
            known = {ascii_lower(str(each.get(key))) for each in listed}
            for value in as_list(getattr(self, name) or ()):
                if ascii_lower(str(value)) not in known:
                    hint = type_hint(str(value)) if key == "type" else ""
                    self.log.warning(
                        "%s: there is no webhook with the %s %s now.%s",
                        name,
                        key,
                        sanitize(value, 60),
                        f" {hint}" if hint else "",
                    )

    def _filters(self) -> dict[str, list[str]]:
        """Return the filters that were given, as plain JSON that is the same for the same filters."""
        from airflow_custody.client.arguments import check_names, describe
        from airflow_custody.client.errors import CustodyRequestError
        from airflow_custody.client.text import is_uuid

        given = {
            name: check_names(name, getattr(self, name))
            for name in ("webhook_ids", "webhook_types", "event_ids", "statuses")
        }
        for each in given["webhook_ids"] or ():
            if not is_uuid(each):
                raise CustodyRequestError(
                    f"webhook_ids must be UUIDs, not {describe(each)}; nothing was sent",
                    setting="webhook_ids",
                    code="parameter-wrong",
                )
        return {name: sorted(set(values)) for name, values in given.items() if values is not None}

    def _own_asset(self, context: Context) -> Asset:
        """Return the asset, which must be one that the DAG knows as the task's."""
        from airflow_custody.client.errors import CustodyConfigurationError

        if self.asset is None:
            raise CustodyConfigurationError(
                "custody_conn_id is a template, so the asset must be given; nothing was sent",
                setting="asset",
                advice="For example: asset=webhook_calls_asset('custody_default').",
                code="parameter-wrong",
            )
        if context["ti"].map_index not in (None, -1):
            raise CustodyConfigurationError(
                "the task is mapped, and all its instances would share one cursor; nothing was sent",
                setting="asset",
                advice="Create one task for each in a loop of the DAG file, each with an asset of its own.",
                code="parameter-wrong",
            )
        return self.asset


def _with(asset: Asset, given: Any) -> list[Any]:
    listed = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
    return listed if asset in listed else [*listed, asset]


def _choice(name: str, value: object, choices: Sequence[str]) -> str:
    from airflow_custody.client.arguments import check_text, describe
    from airflow_custody.client.errors import CustodyRequestError

    text = check_text(name, value)
    if text not in choices:
        allowed = " or ".join(repr(each) for each in choices)
        raise CustodyRequestError(
            f"{name} must be {allowed}, not {describe(text)}; nothing was sent", setting=name, code="parameter-wrong"
        )
    return text


def _is_enabled(webhook: Mapping[str, Any]) -> bool:
    from airflow_custody.client.webhooks.state import cooling_until, has_status

    return has_status(webhook, "enabled") and not cooling_until(webhook)


def _fail(gaps: Sequence[str]) -> NoReturn:
    from airflow_custody.client.errors import CustodyError

    raise CustodyError(
        f"webhook calls may be lost: {'; '.join(gaps)}",
        operation="read webhook calls",
        code="calls-missing",
        advice="Find out what is missing. Then run the task once with on_gap='continue'. If it says so again while the "
        "journal is empty, the task runs more rarely than the service is known to keep calls.",
    )
