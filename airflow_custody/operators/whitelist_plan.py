"""The operators that plan and apply a whitelist that is kept as a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_custody._base import LOOKUP_WAIT, check_flags, check_numbers
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyCreateOperator
from airflow_custody.operators._base_plan import WhitelistFileTask, check_hash
from airflow_custody.plugin.links import REQUEST_LINKS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.idempotency.apply_plan import Applied, ApplyPlan

# XCom keeps what the plan does, so that applying can say what has changed, for plans of this size.
_MAX_OPERATIONS = 5000
_OVER_LIMITS = "The log has the whole plan. If it is meant, raise the limit in the DAG."


class CustodyPlanWhitelistOperator(WhitelistFileTask):
    """
    Plan what must be done so that the service has what a whitelist file says. Changes nothing.

    Reads the file and all that the service lists, checks each payload against its hash, and finds for each row of the
    file, and for each request that is in no file, one of these states: ``create`` (nobody has asked for it),
    ``pending`` (asked for, and pending approval: never asked for again), ``unchanged`` (in effect), ``differs``,
    ``undeclared`` (at the service and not in the file), ``rejected``, ``unreadable`` (its payload is not what its hash
    says), ``unverified``. The log has the whole plan. If the file has a fault, or one page of the listing cannot be
    read, nothing is planned.

    If the connection pins super-administrators' keys, each request is verified: one that is in effect must be signed as
    the rules ask, and each signature of a pending one must be valid. What does not verify is ``unverified``, and only
    named: it is neither created again nor deleted.

    The plan's hash covers what applying would do, and where: the creations, with ``prune`` the deletions, each with
    whether its request is pending or in effect, and which requests are ``unverified``. What else is merely observed
    does not change it. Needs the role ``TPUser``. The listing is undocumented.

    :param path: the file, in YAML, JSON or CSV. A relative path begins in the folder of the DAG's file, and must not
        lead out of the DAG's bundle. (templated)
    :param prune: whether requests that the file does not have are to be deleted. Default False.
    :param fail_on_changes: whether the task fails if the service does not have what the file says, which makes it a
        reconciliation: ``create``, ``differs``, ``undeclared``, ``rejected``, ``unreadable`` and ``unverified`` are
        changes, also without ``prune``; ``pending`` and ``unchanged`` are none. Default False.
    :param fail_on_pending: whether the task also fails if a row of the file is ``pending``: after all was signed, it
        should be in effect. Default False.
    :param skip_if_nothing_to_do: whether the task, and with it what depends on it, is skipped if applying would do
        nothing. Default False.
    :param max_creates: maximum number of creations. A plan over a limit is logged in full, and fails. Default None: no
        limit.
    :param max_create_percent: maximum number of creations, in per cent of the rows of the file. Default None: no limit.
    :param max_deletes: maximum number of deletions. Default 10; None: no limit.
    :param max_delete_percent: maximum number of deletions, in per cent of the requests at the service, from ten
        requests up. Default 30; None: no limit.
    :param must_keep: addresses or labels that must be in the file. Default: none. (templated)
    :param dry_run_chains: chains, by any name, that are planned, and about which applying does nothing. One that
        neither the file nor the service has fails the task. Default: none. (templated)
    :param check_address: whether an address that is certainly wrong for its chain is a fault of the file. It takes the
        extra ``addresses``; without it nothing is checked. Default True.
    :param effective_statuses: status words, compared without case, of requests in effect. Default ``approved``. None:
        not being listed as pending is enough, which takes a second listing. (templated)
    :param rejected_statuses: status words, compared without case, of rejected requests. Default ``rejected``,
        ``declined``, ``expired``, ``canceled`` and ``cancelled``. (templated)
    :param accept_fields: keys of a payload, as a plan names them, that may have a value although the file says nothing
        about them, such as one that the service fills in; and ``envelope.action``, which accepts a word for the
        request's action that is not known to mean a creation. Without it, a request with any of them ``differs``.
        Default: none. (templated)
    :param ignore: ids of requests that cannot be read, or whose chain or network has a name that is not known, which a
        person has looked at: they stop no row that they may belong to. The plan's hash covers them. Default: none.
        (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"plan_hash": ..., "counts": {state: number}, "report": ...}``; the report is Markdown, for a person who
        approves. XCom has it also if the task fails over its changes or over a limit, or is skipped, and each of the
        three under its own key (``plan.output["report"]``).
    :raises AirflowFailException: if the file has faults, a limit is exceeded, or ``fail_on_changes`` finds changes.
    :raises AirflowSkipException: with ``skip_if_nothing_to_do``.
    """

    template_fields: Sequence[str] = (*WhitelistFileTask.template_fields, "must_keep")
    ui_color = "#dce6f5"

    def __init__(
        self,
        *,
        fail_on_changes: bool = False,
        fail_on_pending: bool = False,
        skip_if_nothing_to_do: bool = False,
        max_creates: int | None = None,
        max_create_percent: float | None = None,
        max_deletes: int | None = 10,
        max_delete_percent: float | None = 30,
        must_keep: Iterable[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(
            fail_on_changes=fail_on_changes,
            fail_on_pending=fail_on_pending,
            skip_if_nothing_to_do=skip_if_nothing_to_do,
        )
        numbers = {"max_creates": max_creates, "max_deletes": max_deletes}
        percents = {"max_create_percent": max_create_percent, "max_delete_percent": max_delete_percent}
        # None: no limit.
        check_numbers({name: value for name, value in numbers.items() if value is not None}, whole=True)
        check_numbers({name: value for name, value in percents.items() if value is not None})
        self.fail_on_changes = fail_on_changes
        self.fail_on_pending = fail_on_pending
        self.skip_if_nothing_to_do = skip_if_nothing_to_do
        self.max_creates = max_creates
        self.max_create_percent = max_create_percent
        self.max_deletes = max_deletes
        self.max_delete_percent = max_delete_percent
        self.must_keep = must_keep
        self._note_given()

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError
        from airflow_custody.client.text import count, sanitize
        from airflow_custody.client.whitelist.listing import service_name
        from airflow_custody.client.whitelist.plan import CHANGES
        from airflow_custody.client.whitelist.plan_report import plan_to_markdown, plan_to_table
        from airflow_custody.idempotency.apply_plan import shorten_operation
        from airflow_custody.metrics import pending_listed
        from airflow_custody.operators._plan_texts import advice_text, changes_text, marked_text, unverified_text

        settings = self._settings()
        limits = self._limits()
        file = self._read_file(context)
        client = hook.get_conn()
        listing = settings.fetch(client)
        pending_listed(self.custody_conn_id, lambda: [each.created_at for each in settings.pending(listing)])
        plan = settings.plan(file, listing, service_name(client))
        self.log.info("%s", plan_to_table(plan))
        result = {"plan_hash": plan.plan_hash, "counts": plan.counts, "report": plan_to_markdown(plan)}
        ti = context["ti"]
        # So that applying can say what has changed.
        ti.xcom_push(key="arguments", value=self._arguments())
        if len(plan.operations) <= _MAX_OPERATIONS:
            ti.xcom_push(key="operations", value=[shorten_operation(each) for each in plan.operations])
        if faults := limits.faults(plan):
            self._push(context, result)
            raise CustodyRequestError(
                f"the plan is over its limits, and nothing was sent: {'; '.join(faults)}",
                advice=" ".join(
                    filter(None, [marked_text(plan, ("pending", *(settings.effective_statuses or ()))), _OVER_LIMITS])
                ),
                code="plan-over-limits",
            )
        if warning := unverified_text(plan):
            self.log.warning("%s", warning)
        pending = plan.counts["pending"]
        if pending:
            self.log.warning(
                "%s of the file %s pending: applying asks for none of them again, and does not hand them to whoever "
                "signs. If an earlier run has created them, clear its failed tasks, or sign at the service.",
                count(pending, "row"),
                "is" if pending == 1 else "are",
            )
        is_pending = self.fail_on_pending and pending
        if is_pending or (self.fail_on_changes and plan.has_changes):
            self._push(context, result)
            states = (*(CHANGES if self.fail_on_changes else ()), *(("pending",) if is_pending else ()))
            raise CustodyConflictError(
                f"the service does not have what {sanitize(file.name, 200)} says: {changes_text(plan, states)}",
                advice=" ".join(filter(None, [advice_text(plan), "The log has the whole plan."])),
                code="plan-has-changes",
            )
        if self.skip_if_nothing_to_do and not plan.operations:
            self._push(context, result)
            raise AirflowSkipException("there is nothing to do: applying the plan would change nothing")
        return result

    def _limits(self) -> Any:
        from airflow_custody.client.arguments import check_names
        from airflow_custody.client.whitelist.plan import PlanLimits

        return PlanLimits(
            max_creates=self.max_creates,
            max_create_percent=self.max_create_percent,
            max_deletes=self.max_deletes,
            max_delete_percent=self.max_delete_percent,
            must_keep=check_names("must_keep", self.must_keep, may_be_empty=True) or (),
        )


class CustodyApplyWhitelistPlanOperator(WhitelistFileTask, CustodyCreateOperator):
    """
    Apply a plan that was approved: create what the file has and the service does not, each row at most once.

    Plans again first, and refuses if the hash is another: the file or the service has changed since the approval. What
    this task's own record says that it has created is no change. Rows are written down before they are sent, 100 at a
    time, sent by a few threads, and written down after: a task that was retried, killed at any point or cleared goes on
    where it was (Airflow 3.3, in the task state store; before, a later try does nothing unless nothing was sent). A row
    that the service refuses stops nothing else: the task fails at the end, with a table. After a lost response the
    service is searched before the row is sent again; a row of which nobody can know is left to a person, and the log
    says how to decide. Nothing keeps two tasks from applying at once: use ``max_active_runs=1``, or a pool
    of one slot.

    The requests have no effect until they are signed. Needs the roles ``WhitelistedAddressCreator`` and ``TPUser``.
    Killing the task does not take requests back. Listing and deleting are undocumented.

    :param path: the file, as for :class:`CustodyPlanWhitelistOperator`. (templated)
    :param plan_hash: the hash of the plan that was approved. (templated)
    :param prune: as it was for the plan. Default False.
    :param max_parallel: maximum number of requests at once, from 1 to 32. Default 4.
    :param lookup_wait: seconds that the service may take to show what it created. Default 30.
    :param comment: why requests are deleted, for the service's history. (templated)
    :param dry_run_chains: as it was for the plan. Default: none. (templated)
    :param check_address: as for the plan. Default True.
    :param effective_statuses: as it was for the plan. (templated)
    :param rejected_statuses: as it was for the plan. (templated)
    :param accept_fields: as it was for the plan. Default: none. (templated)
    :param ignore: as it was for the plan. Default: none. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"plan_hash": ..., "counts": {"created": ..., "deleted": ..., "found": ..., "refused": ..., "unknown":
        ..., "left": ...}, "request_ids": [...]}``: the ids of what was created. XCom also gets, under the key
        ``requests``, what each of them asks for, which approving takes as ``expected``. XCom has all also if the task
        fails, each under its own key (``apply.output["request_ids"]``).
    :raises AirflowFailException: if the plan is not the one that was approved, a row was refused, or it cannot be known
        whether one was created.
    :raises CustodyError: if rows are left to be sent, and trying again may help; Airflow's retries apply.
    """

    template_fields: Sequence[str] = (*WhitelistFileTask.template_fields, "plan_hash", "comment")
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"

    def __init__(
        self,
        *,
        plan_hash: str,
        max_parallel: int = 4,
        lookup_wait: float = LOOKUP_WAIT,
        comment: str = "not in the whitelist file any more: {{ dag.dag_id }}, {{ run_id }}",
        **kwargs: Any,
    ) -> None:
        # The next run must see what an earlier one creates.
        if kwargs.get("max_active_tis_per_dag") is None:
            kwargs["max_active_tis_per_dag"] = 1
        super().__init__(**kwargs)
        check_numbers({"lookup_wait": lookup_wait})
        check_numbers({"max_parallel": max_parallel}, 1, 32, whole=True)
        self.plan_hash = plan_hash
        self.max_parallel = max_parallel
        self.lookup_wait = lookup_wait
        self.comment = comment
        self._apply: ApplyPlan | None = None
        self._note_given()

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.arguments import check_text
        from airflow_custody.idempotency.apply_plan import ApplyPlan, PlanChangedError
        from airflow_custody.metrics import create_counted
        from airflow_custody.operators._plan_texts import counts_text, to_failure, what_changed

        plan_hash = check_hash(self.plan_hash)
        apply = self._apply = ApplyPlan(
            context,
            hook.get_conn(),
            self.log,  # type: ignore[arg-type]
            self._settings(),
            comment=check_text("comment", self.comment),
            max_parallel=self.max_parallel,
            lookup_wait=self.lookup_wait,
            report=partial(create_counted, self.custody_conn_id),
        )
        file = self._read_file(context)
        try:
            applied = apply.run(file, plan_hash)
        except PlanChangedError as error:
            arguments, operations = self._planned(context)
            differing = [
                f"{name}={mine!r} (there {arguments[name]!r})"
                for name, mine in self._arguments().items()
                if name in arguments and arguments[name] != mine
            ]
            if not arguments and error.only_prune:
                differing = [f"prune={self.prune} (the plan was made with prune={not self.prune})"]
            if differing:
                changes = f"This task does not have the arguments of the one that planned: {', '.join(differing)}"
                error.advice = "Give both tasks the same arguments, and start a new run."
            else:
                changes = what_changed(file, error, operations)
                error.advice = "Start a new run, which plans again and has the new plan approved."
            error.message = f"{error.message}. {changes}"
            self._push_applied(context, plan_hash, error.applied)
            raise
        finally:
            self._apply = None
        result = self._push_applied(context, plan_hash, applied)
        if failure := to_failure(applied, file, can_go_on=context.get("task_state_store") is not None):
            raise failure
        self.log.info("Applied: %s.", counts_text(result["counts"]))
        return result

    def on_kill(self) -> None:
        """Send no row that has not left yet; what was sent is written down."""
        if self._apply is not None:
            self._apply.stop()

    def _push_applied(self, context: Context, plan_hash: str, applied: Applied) -> dict[str, Any]:
        """Push to XCom what was created, whatever the task ends with."""
        from airflow_custody.operators._plan_texts import to_result

        result = to_result(plan_hash, applied)
        # The requests, so that the approving task can compare them with what the service shows.
        requests = [
            {"id": request_id, **applied.requests[key].model_dump(exclude_none=True)}
            for key, request_id in applied.outcome.done.items()
        ]
        self._linked_ids = tuple(applied.outcome.done.values())
        context["ti"].xcom_push(key="requests", value=requests)
        self._push(context, result)
        return result

    def _planned(self, context: Context) -> tuple[dict[str, Any], list[str] | None]:
        """Return the arguments of the task that planned, and what its plan would do; empty, and None, if not known."""
        relatives = self.get_flat_relatives(upstream=True) if self.has_dag() else ()  # type: ignore[no-untyped-call]
        for each in relatives:
            if isinstance(each, CustodyPlanWhitelistOperator):
                arguments = context["ti"].xcom_pull(task_ids=each.task_id, key="arguments")
                if isinstance(arguments, dict):
                    return arguments, context["ti"].xcom_pull(task_ids=each.task_id, key="operations")
        return {}, None
