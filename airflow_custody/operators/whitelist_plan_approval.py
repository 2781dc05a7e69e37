"""The operator that requests an approval of a plan in Airflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.operators._base_approval import ApprovalTask, Question
from airflow_custody.operators._base_plan import check_hash, check_plan

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg


class CustodyApproveWhitelistPlanOperator(ApprovalTask):
    """
    Request an approval of a whitelist plan in the Airflow UI.

    The approval is listed under *Required Actions*. A rejection skips the downstream tasks. After an approval, the XCom
    has the hash of the approved plan. The task that applies plans then applies exactly this plan, and fails if the plan
    has changed.

    Each run requests one approval. After a clear, Airflow would display the earlier question, even if the plan has
    changed. Therefore a later try fails; start a new run instead.

    This operator does not call the service, and needs no role there. It needs Airflow 3.1 or later with
    ``apache-airflow-providers-standard``. Otherwise, importing it raises ``AirflowOptionalProviderFeatureException``.
    It also accepts the parameters of Airflow's ``ApprovalOperator``, such as ``assigned_users``, ``response_timeout``
    and ``notifiers``.

    The notifiers are called once, when the approval is requested. Their templates may contain ``{{ task.subject }}``,
    which by default consists of fixed words and numbers, ``{{ task.plan.counts }}``, and ``{{ task.form_url(ti) }}``,
    which is the URL of the approval's form. If a notifier fails, this is logged, and the approval is requested
    nevertheless.

    :param plan: the result of :class:`CustodyPlanWhitelistOperator`, ``plan.output``, or the same as JSON text. Its
        report is displayed in Markdown. (templated)
    :param subject: the headline. Default: the plan's question, such as ``Apply the whitelist plan: create 4, delete
        0?`` (templated)
    :return: the result of ``ApprovalOperator``: ``chosen_options``, ``responded_at``, ``responded_by_user`` and others.
        If the plan was approved, the XCom ``plan_hash`` contains its hash (``approve.output["plan_hash"]``).
    :raises AirflowFailException: in a later try, in a mapped task or task group, if ``plan`` is not a plan, or if its
        report does not contain its hash.
    """

    template_fields: Sequence[str] = ("plan", *ApprovalTask.inherited_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "json"}
    ui_color = "#f5ecd7"
    subject_of_approval = "plan"

    def __init__(self, *, plan: Mapping[str, object] | str | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def _question(self) -> Question:
        found = check_plan(self.plan, "no approval was requested")
        plan_hash = check_hash(found.get("plan_hash"))
        report, question = found.get("report"), found.get("question")
        # The hash comes after the operations in the report, so a report that was cut lacks the hash. Refuse it.
        if not (isinstance(report, str) and plan_hash in report and isinstance(question, str)):
            raise CustodyRequestError(
                "the plan has no question, or no report with its hash; no approval was requested",
                advice="Write plan=plan.output, and start a new run, which plans again.",
                code="plan-changed",
            )
        return Question(question, report, {"plan_hash": plan_hash})
