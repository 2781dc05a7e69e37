"""The operator that completes a whitelist plan: it executes the plan's deletions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody.client.arguments import check_text
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyCreateOperator, WhitelistEventTask
from airflow_custody.operators._base_plan import check_hash

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg


class CustodyCompleteWhitelistPlanOperator(WhitelistEventTask, CustodyCreateOperator):
    """
    Complete an applied plan: delete the replaced and pruned requests.

    A plan that creates requests is applied without its deletions, so that no address is removed while its successor
    is pending. Run this task after the sensor that waits until the created requests are in effect. The task deletes the
    requests that the approved creations replaced, and the requests that ``prune`` deletes. The plan's hash covers all
    of these deletions, so no other request is ever deleted. If the plan creates nothing, the apply task has already
    executed its deletions, and this task has nothing to do.

    Before anything is deleted, all created requests must be in effect, equal to their rows, and verified if the
    connection pins keys. A request is deleted only if it has not changed since the plan was made, and its successor is
    still in effect. A retried or cleared task continues, because repeating a deletion is safe.

    Needs the roles ``WhitelistedAddressCreator`` and ``TPUser``. Deleting and listing are undocumented.

    :param applied: the XCom of the task that applied the plan, ``apply.output``, or the same as JSON text. (templated)
    :param plan_hash: the hash of the approved plan. (templated)
    :param comment: why requests are deleted, for the service's history. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"plan_hash": ..., "counts": {"deleted": ..., "refused": ..., "unknown": ..., "left": ...},
        "request_ids": [...]}``: the ids of the deleted requests.
    :raises AirflowFailException: if the applied plan is not the approved plan, a created request was rejected or does
        not match its row, a request was not deleted because it has changed, or the service refuses a call.
    :raises CustodyError: if a created request is not in effect yet, or the service does not respond as it should;
        Airflow's retries apply.
    """

    template_fields: Sequence[str] = (
        "applied",
        "plan_hash",
        "comment",
        "custody_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"applied": "json"}
    ui_color = "#e3f0dc"
    _is_killed = False

    def __init__(
        self,
        *,
        applied: Mapping[str, object] | str | XComArg,
        plan_hash: str | XComArg,
        comment: str | XComArg = "replaced, or not in the whitelist file: {{ dag.dag_id }}, {{ run_id }}",
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.applied = applied
        self.plan_hash = plan_hash
        self.comment = comment

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.idempotency import create, deletions, plan_failure

        plan_hash, comment = check_hash(self.plan_hash), check_text("comment", self.comment)
        applied = deletions.read_applied(self.applied)
        outcome = create.Outcome()
        if applied is None:
            self.log.info("Nothing to complete: the apply task left no request to delete.")
        else:
            outcome = deletions.complete_plan(
                context,
                hook.get_conn(),
                self.log,  # type: ignore[arg-type]
                applied,
                plan_hash,
                comment=comment,
                is_stopped=lambda: self._is_killed,
            )
        counts = {state: len(getattr(outcome, state)) for state in ("deleted", "refused", "unknown", "left")}
        numbers = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
        # Deletions may be sent twice, so a later try needs no record, and may continue even without a store.
        failure = plan_failure.plan_failure(outcome, {}, numbers, has_store=True)
        if failure is not None:
            raise failure
        self.log.info("Completed: %s.", numbers or "nothing to delete")
        if outcome.deleted:
            self._emit(context, "applied", {"plan_hash": plan_hash}, counts)
        return {"plan_hash": plan_hash, "counts": counts, "request_ids": [*map(deletions.deleted_id, outcome.deleted)]}

    def on_kill(self) -> None:
        """Send no more deletions."""
        self._is_killed = True
