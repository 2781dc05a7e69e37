"""The operator that asks people whether a plan may be applied. It needs Airflow 3.1 and the standard provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException

from airflow_custody._base import RendersNoData
from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError
from airflow_custody.operators._base_plan import check_hash
from airflow_custody.retry_policy import failing_task

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(
        "Asking people whether a plan may be applied needs Airflow 3.1 or later with apache-airflow-providers-standard."
    ) from error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_ASKED = "asked"


class CustodyApproveWhitelistPlanOperator(RendersNoData, ApprovalOperator):
    """
    Ask people in the Airflow UI (*Required Actions*) whether a plan may be applied. A rejection skips what follows.

    Its XCom has the hash of the plan that was shown, so that applying does what was approved, and refuses if anything
    was planned again since.

    It asks once in a run. Airflow keeps the question of a task: after the task is cleared it would show the same one,
    whatever is planned by then. So a later try fails, and a new run must be started.

    It does not call the service, and needs no role. It needs Airflow 3.1 or later with
    ``apache-airflow-providers-standard``; without, importing it raises ``AirflowOptionalProviderFeatureException``.
    Other parameters are those of Airflow's ``ApprovalOperator``, such as ``assigned_users``, ``response_timeout``
    and ``notifiers``.

    :param plan_hash: the hash of the plan, ``plan.output["plan_hash"]``. (templated)
    :param body: the text to show, in Markdown: the plan's report, ``plan.output["report"]``. It has the hash behind all
        operations of the plan, and without the hash no approval is requested. (templated)
    :param subject: the headline. Default: the question, with the counts of the report: ``Apply the whitelist plan:
        create 4, delete 0?`` (templated)
    :param defaults: meaning of no response in time, ``"Approve"`` or ``"Reject"``. Default ``"Reject"``.
    :param ignore_downstream_trigger_rules: whether a rejection skips all that follows, whatever its trigger rule is.
        Default True.
    :return: as ``ApprovalOperator``: ``chosen_options``, ``responded_at``, ``responded_by_user`` and others. If the
        plan was approved, XCom also has its hash under the key ``plan_hash`` (``approve.output["plan_hash"]``).
    :raises AirflowFailException: in a later try, in a mapped task or task group, if the hash is none, or if the body
        does not have it.
    """

    template_fields: Sequence[str] = ("plan_hash", *ApprovalOperator.template_fields)
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        plan_hash: str,
        body: str,
        subject: str = "",
        defaults: str | list[str] = ApprovalOperator.REJECT,
        ignore_downstream_trigger_rules: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            body=body,
            subject=subject,
            defaults=defaults,
            ignore_downstream_trigger_rules=ignore_downstream_trigger_rules,
            **kwargs,
        )
        self.plan_hash = plan_hash

    def execute(self, context: Context) -> Any:
        """Show the question, and wait for the response."""
        from airflow_custody.client.whitelist.plans.report import subject_of

        with failing_task(self, context):
            plan_hash = check_hash(self.plan_hash)
            if plan_hash not in str(self.body):
                # The hash stands behind all operations. A report that does not show them has none.
                raise CustodyRequestError(
                    "body does not show all operations of the plan that plan_hash names: it is another text, was cut, "
                    "or says that the plan is too large; no approval was requested",
                    advice='Write body=plan.output["report"]. Split a plan that is too large, as its log says.',
                    code="plan-changed",
                )
            if context["ti"].map_index not in (None, -1):
                raise CustodyRequestError(
                    "a plan cannot be approved in a mapped task: a rejection would not skip what follows; no approval "
                    "was requested",
                    advice="Use a DAG, or a task, for each file.",
                    code="parameter-wrong",
                )
            if context["ti"].try_number > 1:
                raise CustodyConflictError(
                    "an earlier try may have asked, and Airflow would show that question again, whatever is planned "
                    "now; no approval was requested",
                    advice="Start a new run of the DAG.",
                    code="plan-changed",
                )
        self.subject = self.subject or subject_of(str(self.body))
        # By the time of the response, something else may be planned.
        context["ti"].xcom_push(key=_ASKED, value=plan_hash)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Read the response."""
        response = super().execute_complete(context, event)
        if response["chosen_options"] == [self.APPROVE]:
            asked = context["ti"].xcom_pull(task_ids=self.task_id, key=_ASKED)
            context["ti"].xcom_push(key="plan_hash", value=asked)
        return response
