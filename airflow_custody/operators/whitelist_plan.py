"""The operators that plan and apply a whitelist."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_custody._base import NOT_GIVEN
from airflow_custody.client.arguments import LOOKUP_WAIT, check_flag, check_names, check_text
from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError, WhitelistFileError
from airflow_custody.client.text import count, lines, sanitize
from airflow_custody.client.verification.trust import what_to_do
from airflow_custody.hooks._advice import name_connection
from airflow_custody.hooks._storage import check_path
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.metrics import create_counted, pending_listed
from airflow_custody.operators import whitelist
from airflow_custody.operators._base import CustodyCreateOperator, WhitelistEventTask
from airflow_custody.operators._base_plan import check_hash, check_plan, read_whitelist, source_of
from airflow_custody.plugin.links import REQUEST_LINKS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, ObjectStoragePath, XComArg

    from airflow_custody.client import WhitelistRequest
    from airflow_custody.client.errors import CustodyError
    from airflow_custody.client.whitelist.files.reading import WhitelistFile
    from airflow_custody.client.whitelist.plans.plan import RowState, WhitelistPlan
    from airflow_custody.client.whitelist.plans.source import PlanSource
    from airflow_custody.idempotency.create import Outcome

_UNVERIFIED: tuple[RowState, ...] = ("unverified",)


class CustodyPlanWhitelistOperator(WhitelistEventTask):
    """
    Compare a whitelist file with the service, and plan the differences.

    The task changes nothing at the service. It reads the file and all requests at the service, and checks each payload
    against its hash. Each row of the file, and each request that is not in the file, gets one of these states:
    ``create`` (not requested yet), ``replace`` (the request differs, and a new one is created), ``later`` (left for a
    later run, because this plan is only a part), ``pending`` (requested and pending approval; never requested again),
    ``unchanged`` (in effect), ``differs`` (the request differs, and is not replaced), ``duplicate`` (in effect, for the
    same destination as an ``unchanged`` request), ``undeclared`` (at the service but not in the file), ``rejected``
    (requested and rejected; not requested again), ``unreadable`` (the payload does not match its hash, or cannot be
    read), ``unverified`` (see below). The log contains every row. If the file has a fault, or a page of the listing
    cannot be read, nothing is planned. If the service lists its currencies (undocumented), the task fails if a row to
    create is on a chain that is listed and not enabled; a chain that is not listed causes a warning.

    If the connection pins super-administrators' keys, each request is verified: a request in effect must be signed
    according to the rules, and each signature of a pending request must be valid. A request that fails this
    verification is ``unverified``: it is reported, but neither created again nor deleted.

    If there are more operations than ``at_most``, or more than one approval can show, the plan is only a part: the
    first operations, in the order of the file. The report begins with their number, and the next run plans the rest.
    All creations come before the first deletion, so a part deletes requests that are not in the file only if it
    contains all remaining creations.

    The plan's hash covers the service, and the effects of applying the plan: the creations with the requests that they
    replace; the deletions, each with its state (pending or in effect); the ``unverified`` requests; and ``only``. Other
    observations do not change the hash. Needs the role ``TPUser``. The listing is undocumented.

    :param path: the file, in YAML, JSON or CSV: a path, or a URL or ``ObjectStoragePath`` (``s3://CONN_ID@bucket/key``)
        that is read with its Airflow connection. A relative path starts at the folder of the DAG file, and must stay
        within the DAG bundle. (templated)
    :param rows: the whitelist itself, instead of ``path``: a list of dictionaries with the same keys as the rows of a
        file, from an upstream task (``rows=upstream.output``) or a template; or the list as JSON text. (templated)
    :param prune: whether to delete duplicates, and requests that are not in the file. A request in effect that is not
        in the file is kept while a row of the file is pending, rejected or unreadable, because it may be that row's old
        address. If several requests are in effect
        for a row's destination, the request that equals the row is kept; if several equal it, the one with the lowest
        id. If none equals the row, ``prune`` deletes none of them. Default False.
    :param replace: whether a row gets a new request if the request in effect differs in label, links, kinds or exchange
        account. Applying the plan creates the new request, and does not delete the old one. A task that completes the
        plan, or a later plan, deletes the old request once the new one is in effect, and verified if keys are pinned.
        Default False. (templated)
    :param only: the scope of the plan: a value, or a list of values, for one or more of ``blockchain``, ``customer_id``
        and ``visibility_group_id``. A row of the file outside the scope is a fault. Requests outside the scope are
        neither reported nor deleted; a row ``differs`` if such a request has the row's destination. Unreadable and
        unverified requests are always reported. Default: everything. (templated)
    :param fail_on_changes: whether the task fails if the service differs from the file. This makes the task a
        reconciliation: all states except ``pending`` and ``unchanged`` are changes, even without ``prune``. Default
        False.
    :param fail_on_pending: whether the task also fails if a row of the file is ``pending``. Use it when all requests
        should have been signed. Default False.
    :param skip_if_nothing_to_do: whether the task is skipped, and with it its downstream tasks, if the plan has no
        operations. Default False.
    :param at_most: maximum number of operations, each a creation or a deletion. The rest of a larger plan is left for
        the next run; ``counts["later"]`` is its number. Default None: as many operations as the report for one approval
        can show, about 640 short rows. A larger number has the same effect.
    :param max_creates: maximum number of creations. If a plan exceeds this limit or one of the following limits, the
        task logs the plan, and fails. The limits serve to find faulty files, so they apply to the whole plan, even if
        only a part of it is applied; raise them for a first load. Default 100. None: no limit.
    :param max_deletes: maximum number of deletions. Default 10; None: no limit.
    :param max_delete_percent: maximum number of deletions, in per cent of the requests in the plan's scope. Applies
        from ten requests up. Default 30; None: no limit.
    :param must_keep: addresses or labels that must be in the file. Default: none. (templated)
    :param check_address: whether an address that is certainly invalid for its chain is a fault of the file. Default
        True.
    :param ignore: ids of requests that you have inspected, and that must not block a row: requests that cannot be read,
        or that may be for another destination because of the name of their chain or network. The plan's hash covers
        them. Default: none. (templated)
    :param omit_if_none: names of fields of ``rows`` that are left out of a row if their value is None, instead of being
        refused. Default: none of them.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"plan_hash": ..., "counts": {state: number}, "report": ..., "question": ..., "parts": ..., "source":
        ...}``. ``report`` is Markdown for the approver, and contains every operation of this plan in full. ``question``
        asks for the approval. ``parts`` names everything that the hash covers, so that the apply task can name
        differences. ``source`` contains the path and the settings for the apply task and, if the plan is only a part,
        the number of its operations. The XCom is pushed even if the task is skipped, or fails because of changes or a
        limit. Each of the values also has its own XCom key (``plan.output["report"]``).
    :raises AirflowFailException: if the file has faults, a limit is exceeded, ``fail_on_changes`` or
        ``fail_on_pending`` finds a difference, a chain is not enabled, a single operation is too long for a report, or
        the service refuses the listing.
    :raises AirflowSkipException: if applying would do nothing, and ``skip_if_nothing_to_do`` is True.
    :raises CustodyError: if the service cannot be read; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("path", "replace", "only", "rows", "ignore", "custody_conn_id", "must_keep")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "only": "json",
        "rows": "json",
        "ignore": "json",
        "must_keep": "json",
    }
    ui_color = "#dce6f5"

    def __init__(
        self,
        *,
        path: str | ObjectStoragePath | XComArg = NOT_GIVEN,
        rows: str | Iterable[Mapping[str, object]] | XComArg = NOT_GIVEN,
        prune: bool = False,
        replace: bool | str | XComArg = False,
        only: Mapping[str, object] | XComArg = NOT_GIVEN,
        fail_on_changes: bool = False,
        fail_on_pending: bool = False,
        skip_if_nothing_to_do: bool = False,
        at_most: int | None = None,
        max_creates: int | None = 100,
        max_deletes: int | None = 10,
        max_delete_percent: float | None = 30,
        must_keep: Iterable[str] | XComArg = (),
        check_address: bool = True,
        ignore: Iterable[str | int] | XComArg = (),
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(prune=prune, check_address=check_address)
        if (path is NOT_GIVEN) == (rows is NOT_GIVEN):
            self._refuse("give either path or rows: the whitelist is either a file or a list of rows")
        if self.omit_if_none and rows is NOT_GIVEN:
            self._refuse("omit_if_none applies only to rows: in a file, leave out fields without a value")
        self._check_flags(
            fail_on_changes=fail_on_changes,
            fail_on_pending=fail_on_pending,
            skip_if_nothing_to_do=skip_if_nothing_to_do,
        )
        numbers = {"max_creates": max_creates, "max_deletes": max_deletes}
        # Do not check a limit that is None, because None means that there is no limit.
        self._check_numbers({name: value for name, value in numbers.items() if value is not None}, whole=True)
        if at_most is not None:
            self._check_numbers({"at_most": at_most}, 1, whole=True)
        if max_delete_percent is not None:
            self._check_numbers({"max_delete_percent": max_delete_percent})
        self.path = path
        self.rows = rows
        self.prune = prune
        self.replace = replace
        self.only = only
        self.check_address = check_address
        self.ignore = ignore
        self.fail_on_changes = fail_on_changes
        self.fail_on_pending = fail_on_pending
        self.skip_if_nothing_to_do = skip_if_nothing_to_do
        self.at_most = at_most
        self.max_creates = max_creates
        self.max_deletes = max_deletes
        self.max_delete_percent = max_delete_percent
        self.must_keep = must_keep

    @classmethod
    def _optional_parameters(cls) -> set[str]:
        """Return the names that ``omit_if_none`` may contain, including a row's optional fields."""
        of_a_row = whitelist.CustodyCreateWhitelistRequestOperator._optional_parameters()
        return (super()._optional_parameters() - {"path", "rows"}) | of_a_row

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.whitelist.chains import check_chains
        from airflow_custody.client.whitelist.plans.plan import PlanLimits, check_only
        from airflow_custody.client.whitelist.plans.planner import check_ignored, make_plan
        from airflow_custody.client.whitelist.plans.report import (
            approval_question,
            part_to_approve,
            plan_to_markdown,
            plan_to_text,
        )
        from airflow_custody.client.whitelist.plans.source import PlanSource
        from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name

        source = PlanSource(
            path=check_path(self.path) if self.rows is None else None,
            prune=self.prune,
            replace=check_flag("replace", self.replace),
            only={} if self.only is None else check_only(self.only),
            ignore=check_ignored(self.ignore),
            check_address=self.check_address,
            omit_if_none=[*self.omit_if_none],
            at_most=None,
        )
        settings = source.plan_settings()
        limits = PlanLimits(
            max_creates=self.max_creates,
            max_deletes=self.max_deletes,
            max_delete_percent=self.max_delete_percent,
            must_keep=check_names("must_keep", self.must_keep, may_be_empty=True) or (),
        )
        file = read_whitelist(source, self, self.rows, context)
        client = hook.get_conn()
        snapshot = read_snapshot(client)
        pending = [each.shown for each in snapshot if each.reported == "pending"]
        pending_listed(self.custody_conn_id, lambda: [each.created_at for each in pending])
        whole = make_plan(file.rows, snapshot, settings, service=service_name(client), name=file.name)
        warnings = check_chains(client, whole.new_requests)
        for each in warnings:
            self.log.warning("%s", each)
        # Add the warnings before the plan is cut into parts: the report contains them, so fewer operations fit into it.
        whole = dataclasses.replace(whole, warnings=tuple(filter(None, [*warnings, file.unchecked_text])))
        plan = part_to_approve(whole, self.at_most)
        self.log.info("%s", plan_to_text(plan))
        result = {
            "plan_hash": plan.plan_hash,
            "counts": plan.counts,
            "report": plan_to_markdown(plan),
            "question": approval_question(plan),
            "parts": plan.parts,
            "source": {**source.model_dump(), "at_most": len(plan.operations) if plan.counts["later"] else None},
        }
        stop = self._stop(plan, limits.faults(whole), name=file.name, replace=settings.replace)
        if stop is not None:
            self._push(context, result)
            raise stop
        # Emit the event if keys are pinned and every row is unchanged: then every row is in effect, and verified.
        if snapshot.pins is not None and {row.state for row in plan.rows if row.where} == {"unchanged"}:
            self._emit(context, "verified", {"plan_hash": plan.plan_hash}, plan.counts)
        return result

    def _stop(self, plan: WhitelistPlan, faults: Sequence[str], *, name: str, replace: bool) -> Exception | None:
        """Log warnings about a plan, and return the exception that ends the task; None if the task succeeds."""
        if faults:
            return CustodyRequestError(
                f"the plan is over its limits, and nothing is sent: {'; '.join(faults)}",
                advice="See the log for the plan. If it is intended, raise the limit in the DAG.",
                code="plan-over-limits",
            )
        advice = self._warn(plan, replace=replace)
        is_pending = self.fail_on_pending and plan.counts["pending"]
        if is_pending or (self.fail_on_changes and plan.has_changes):
            return self._has_changes(plan, name, advice)
        if self.skip_if_nothing_to_do and not plan.operations:
            return AirflowSkipException("nothing to do: applying the plan would change nothing")
        return None

    def _warn(self, plan: WhitelistPlan, *, replace: bool) -> str:
        """Log warnings about a plan that is within the task's limits, and return advice about its differences."""
        from airflow_custody.client.whitelist.hidden import warn_of_hidden
        from airflow_custody.client.whitelist.plans.plan import advice_on_differences, changes_text

        if plan.hidden:
            self.log.warning("%s", warn_of_hidden(plan.hidden))
        differs = advice_on_differences(plan, replace=replace)
        if differs:
            self.log.warning("%s", differs)
        ids = list(dict.fromkeys(row.request_id for row in plan.rows if row.state == "unverified"))
        unverified = name_connection(what_to_do(ids), str(self.custody_conn_id)) if ids else ""
        if unverified:
            self.log.warning(
                "%s",
                lines(
                    f"These requests could not be verified by signatures: {changes_text(plan, _UNVERIFIED)}.",
                    "Applying the plan does not change them.",
                    unverified,
                ),
            )
        pending = plan.counts["pending"]
        if pending:
            rows = f"{count(pending, 'row')} of the file {'is' if pending == 1 else 'are'} pending"
            self.log.warning(
                "%s",
                lines(
                    f"{rows}: applying the plan neither requests them again, nor passes them on for signing.",
                    "If an earlier run created these requests, clear that run's failed tasks, or sign at the service.",
                ),
            )
        return lines(unverified, differs)

    def _has_changes(self, plan: WhitelistPlan, name: str, advice: str) -> CustodyError:
        """Return the error that `fail_on_changes` or `fail_on_pending` raises for a plan."""
        from airflow_custody.client.whitelist.plans.plan import CHANGES, changes_text

        changes = CHANGES if self.fail_on_changes else ()
        states: tuple[RowState, ...] = (*changes, "pending") if self.fail_on_pending else changes
        return CustodyConflictError(
            f"the service differs from {sanitize(name, 200)}: {changes_text(plan, states)}",
            advice=lines(advice, "See the log for the whole plan."),
            code="plan-has-changes",
        )


class CustodyApplyWhitelistPlanOperator(WhitelistEventTask, CustodyCreateOperator):
    """
    Apply an approved plan: create each missing request at most once.

    The first try makes the plan again. If the hash of this plan is not the approved hash, the file or the service has
    changed, so the try stops. Otherwise it records the plan in Airflow's task state store (3.3). Each later try, after
    a retry, a kill or a clear, executes the rest of the recorded plan, and checks each operation against the current
    listing of the service. If the file has changed, the later try sends nothing more. Before Airflow 3.3, there is no
    task state store, so each try acts as a first try, and stops if an earlier try has sent anything.

    Rows are recorded before and after they are sent, 100 at a time. A refused row does not stop the other rows; the
    task fails at the end, with a table. After a lost response, the service is searched for the request before the row
    is sent again. After a status 429, a row is sent again without a search, up to 20 times. If the outcome of a row
    stays unknown, the log explains how to decide. Nothing prevents two tasks from applying plans at the same time, so
    use ``max_active_runs=1``, or a pool with one slot.

    The requests have no effect until they are signed. Needs the roles ``WhitelistedAddressCreator`` and ``TPUser``.
    Killing the task does not withdraw requests. Listing and deleting are undocumented.

    :param plan: the result of :class:`CustodyPlanWhitelistOperator`, ``plan.output``, or the same as JSON text. It
        contains the file's path and the settings. They need not be trusted, because the operations that are planned
        with them must have the approved hash. (templated)
    :param plan_hash: the hash of the approved plan. (templated)
    :param rows: the same rows as for the plan. Leave it out if the plan has a file. (templated)
    :param max_parallel: maximum number of requests at once, from 1 to 32. Default 4.
    :param lookup_wait: seconds that the service may take to list what it created. Default 30.
    :param comment: why requests are deleted, for the service's history. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"plan_hash": ..., "counts": {"created": ..., "deleted": ..., "found": ..., "refused": ..., "unknown":
        ..., "left": ...}, "request_ids": [...], "completion": ...}``: the ids of the created requests, and the input of
        :class:`CustodyCompleteWhitelistPlanOperator`. The XCom ``requests`` contains their contents, for the parameter
        ``expected`` of the signing task. Each value also has its own XCom key (``apply.output["request_ids"]``). A task
        that fails also pushes the XComs in two cases: if it has executed the plan, but not every row; and, without
        ``completion``, if the plan has changed. After any other failure, such as a file or a service that cannot be
        read, no XComs are pushed.
    :raises AirflowFailException: if the plan is not the approved one, a row was refused, the outcome of a row is
        unknown, or the service refuses the listing.
    :raises CustodyError: if rows are left to be sent, or the service cannot be read; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("plan", "plan_hash", "rows", "comment", "custody_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json", "rows": "json"}
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"
    _is_killed = False

    def __init__(
        self,
        *,
        plan: Mapping[str, object] | str | XComArg,
        plan_hash: str | XComArg,
        rows: str | Iterable[Mapping[str, object]] | XComArg = NOT_GIVEN,
        max_parallel: int = 4,
        lookup_wait: float = LOOKUP_WAIT,
        comment: str | XComArg = "replaced, duplicate, or not in the whitelist file: {{ dag.dag_id }}, {{ run_id }}",
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        # Run one instance at a time, because the next run must find the requests that this run creates.
        if kwargs.get("max_active_tis_per_dag") is None:
            kwargs["max_active_tis_per_dag"] = 1
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_numbers({"lookup_wait": lookup_wait})
        self._check_numbers({"max_parallel": max_parallel}, 1, 32, whole=True)
        self.plan = plan
        self.plan_hash = plan_hash
        self.rows = rows
        self.max_parallel = max_parallel
        self.lookup_wait = lookup_wait
        self.comment = comment

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.whitelist.plans.report import plan_to_text
        from airflow_custody.idempotency import apply_plan, plan_failure, whitelist_creation

        plan_hash, comment = check_hash(self.plan_hash), check_text("comment", self.comment)
        plan = check_plan(self.plan, "nothing is sent")
        source = source_of(plan)
        file = self._read_file(source, context)
        # If the hashes differ, this plan was made after the approval, so its parts are not those of the approved plan.
        parts = plan.get("parts") if plan.get("plan_hash") == plan_hash else None
        applying = apply_plan.ApplyPlan(
            context,
            hook.get_conn(),
            self.log,  # type: ignore[arg-type]
            source.plan_settings(),
            file,
            plan_hash,
            at_most=source.at_most,
            parts={str(key): str(name) for key, name in parts.items()} if isinstance(parts, Mapping) else {},
            comment=comment,
            max_parallel=self.max_parallel,
            lookup_wait=self.lookup_wait,
            report=partial(create_counted, self.custody_conn_id, whitelist_creation.WhitelistCreation.what),
            is_stopped=lambda: self._is_killed,
        )
        try:
            outcome, left = applying.run()
        except apply_plan.PlanChangedError as error:
            if error.plan is not None:
                self.log.info("%s", plan_to_text(error.plan))
            # Push no completion, because the task that completes plans must not take this plan for an applied one.
            self._push_outcome(context, applying.requests, error.outcome, {})
            raise
        completion = {"completion": None if left is None else left.model_dump()}
        result = self._push_outcome(context, applying.requests, outcome, completion)
        numbers = (f"{number} {state}" for state, number in result["counts"].items() if number)
        done = ", ".join(numbers) or "nothing to do"
        has_store = context.get("task_state_store") is not None
        failure = plan_failure.plan_failure(outcome, applying.places, done, has_store=has_store)
        if failure is not None:
            raise failure
        self.log.info("Applied: %s.", done)
        if result["counts"]["created"] or result["counts"]["deleted"]:
            self._emit(context, "applied", {"plan_hash": plan_hash}, result["counts"])
        return result

    def _read_file(self, source: PlanSource, context: Context) -> WhitelistFile:
        """
        Read the plan's whitelist again.

        :raises CustodyRequestError: if the whitelist cannot be read or has faults, or if only the plan or only this
            task has rows.
        """
        if (source.path is None) == (self.rows is None):
            has = "rows, so this task needs" if source.path is None else "a file, so this task must not have"
            raise CustodyRequestError(
                f"the plan has {has} rows=; nothing is sent", setting="rows", code="parameter-wrong"
            )
        try:
            return read_whitelist(source, self, self.rows, context)
        except WhitelistFileError as error:
            if source.path is None or error.retryable:
                raise
            # The plan task could read its file, so this file has changed, or the path was edited. Airflow users can
            # edit the path in the XCom to name any file, so do not quote the file.
            raise WhitelistFileError(
                f"{sanitize(source.path, 200)} is no longer a readable whitelist; nothing is sent",
                setting="path",
                advice="Restore the approved file, and clear this task; or start a new run, which plans again.",
                code="file-wrong",
            ) from None

    def on_kill(self) -> None:
        """Send no more rows. The record of the sent rows is kept, so that a later try can continue."""
        self._is_killed = True

    def _push_outcome(
        self,
        context: Context,
        requests: Mapping[str, WhitelistRequest],
        outcome: Outcome,
        completion: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Push the outcome to XCom, even if the task fails afterwards."""
        states = ("created", "deleted", "found", "refused", "unknown", "left")
        # Leave out requests whose rows are no longer in the file: if the file has changed, an earlier try may have
        # created such requests.
        own = {key: request_id for key, request_id in outcome.created.items() if key in requests}
        self._linked_ids = tuple(own.values())
        result = {
            "plan_hash": self.plan_hash,
            "counts": {state: len(getattr(outcome, state)) for state in states},
            "request_ids": list(self._linked_ids),
            **completion,
        }
        # The signing task compares these contents with the requests at the service.
        created = [{"id": request_id, **requests[key].model_dump(exclude_none=True)} for key, request_id in own.items()]
        context["ti"].xcom_push(key="requests", value=created)
        self._push(context, result)
        return result
