"""The operator that requests an approval of a plan in Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException

from airflow_custody._base import RendersNoData
from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError
from airflow_custody.operators._base_plan import check_hash, check_plan
from airflow_custody.retry_policy import failing_task

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(
        "Approving a plan in Airflow needs Airflow 3.1 or later with apache-airflow-providers-standard."
    ) from error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseNotifier, Context
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

_ASKED = "asked"


class CustodyApproveWhitelistPlanOperator(RendersNoData, ApprovalOperator):
    """
    Request an approval of a whitelist plan in the Airflow UI.

    The approval is listed under *Required Actions*. A rejection skips the downstream tasks. After an approval, the XCom
    has the hash of the approved plan. The applying task then applies exactly this plan, and fails if the plan has
    changed.

    Each run requests one approval. After a clear, Airflow would display the earlier question, even if the plan has
    changed. Therefore a later try fails; start a new run instead.

    This operator does not call the service, and needs no role there. It needs Airflow 3.1 or later with
    ``apache-airflow-providers-standard``. Otherwise, importing it raises ``AirflowOptionalProviderFeatureException``.
    It also accepts the parameters of Airflow's ``ApprovalOperator``, such as ``assigned_users``, ``response_timeout``
    and ``notifiers``.

    The notifiers are called once, when the approval is requested. Their templates may contain ``{{ task.subject }}``,
    which by default consists of fixed words and numbers, ``{{ task.plan.counts }}``, and the URL of the approval's
    form, ``{{ task.form_url(ti) }}``. A notifier that fails is logged, and the approval is requested nevertheless.

    :param plan: the result of :class:`CustodyPlanWhitelistOperator`, ``plan.output``, or the same as JSON text. Its
        report is displayed in Markdown. If the report does not contain every operation, no approval is requested.
        (templated)
    :param subject: the headline. Default: the plan's question, such as ``Apply the whitelist plan: create 4, delete
        0?`` (templated)
    :param defaults: the response if none is given in time: ``"Approve"`` or ``"Reject"``. Default ``"Reject"``.
    :param ignore_downstream_trigger_rules: whether a rejection skips all downstream tasks, regardless of their trigger
        rules. Default True.
    :return: the result of ``ApprovalOperator``: ``chosen_options``, ``responded_at``, ``responded_by_user`` and others.
        If the plan was approved, the XCom ``plan_hash`` contains its hash (``approve.output["plan_hash"]``).
    :raises AirflowFailException: in a later try, in a mapped task or task group, if ``plan`` is not a plan, or if its
        report does not contain every operation.
    """

    # Not the body: it is the plan's report, and never rendered.
    template_fields: Sequence[str] = ("plan", *(each for each in ApprovalOperator.template_fields if each != "body"))
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        plan: Mapping[str, Any],
        subject: str = "",
        defaults: str | list[str] = ApprovalOperator.REJECT,
        ignore_downstream_trigger_rules: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            # The plan's report becomes the body; a body of the user's is refused as a repeated argument.
            body=None,
            subject=subject,
            defaults=defaults,
            ignore_downstream_trigger_rules=ignore_downstream_trigger_rules,
            **kwargs,
        )
        self.plan = plan

    def execute(self, context: Context) -> Any:
        """Request the approval, and wait for the response."""
        with failing_task(self, context):
            plan_hash, report, question = _read_plan(self.plan)
            if context["ti"].map_index not in (None, -1):
                raise CustodyRequestError(
                    "a plan cannot be approved in a mapped task: a rejection would not skip the downstream tasks; no "
                    "approval was requested",
                    advice="Use a separate DAG or task for each file.",
                    code="parameter-wrong",
                )
            if context["ti"].try_number > 1:
                raise CustodyConflictError(
                    "an earlier try may have requested an approval, and Airflow would display that question again, "
                    "even if the plan has changed; no approval was requested",
                    advice="Start a new run of the DAG.",
                    code="plan-changed",
                )
        self.subject = self.subject or question
        self.body = report
        # Keep the hash, because the plan may change before the response.
        context["ti"].xcom_push(key=_ASKED, value=plan_hash)
        # The base class calls these when it has stored the question, which can be stored only once.
        self.notifiers = [partial(self._notify, each) for each in self.notifiers]  # type: ignore[misc]
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Read the response, and push the hash of an approved plan."""
        response = super().execute_complete(context, event)
        if response["chosen_options"] == [self.APPROVE]:
            asked = context["ti"].xcom_pull(task_ids=self.task_id, key=_ASKED)
            context["ti"].xcom_push(key="plan_hash", value=asked)
        return response

    def form_url(self, ti: RuntimeTaskInstanceProtocol) -> str:
        """
        Return the URL of the form in which the approval is given, for the templates of notifiers.

        Airflow's own ``generate_link_to_ui`` loses the path of ``[api] base_url``.

        :param ti: the task instance, ``ti`` in a template.
        """
        return ti.log_url.replace("?", "/required_actions?")

    def _notify(self, notifier: BaseNotifier, context: Context) -> None:
        """Call a notifier. If it fails, log why, because a failed task could not request the approval again."""
        try:
            notifier(context)
        except Exception:
            self.log.exception("%s failed. The approval is requested nevertheless.", type(notifier).__name__)


def _read_plan(plan: object) -> tuple[str, str, str]:
    """
    Return a plan's hash, its report and its question.

    :param plan: the result of a plan task.
    :raises CustodyRequestError: if it is not such a result, or its report does not contain every operation.
    """
    found = check_plan(plan, "no approval was requested")
    plan_hash = check_hash(found.get("plan_hash"))
    report, question = found.get("report"), found.get("question")
    if not (isinstance(report, str) and isinstance(question, str) and question):
        raise CustodyRequestError(
            "the report does not contain every operation of the plan, so it cannot be approved; no approval was "
            "requested",
            advice="If the plan is too large, split it as its log describes.",
            code="plan-changed",
        )
    return plan_hash, report, question
