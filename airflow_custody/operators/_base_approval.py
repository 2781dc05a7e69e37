"""The base of the operators that request an approval in Airflow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from airflow.providers.common.compat.sdk import AirflowOptionalProviderFeatureException

from airflow_custody._base import RendersNoData
from airflow_custody.client.errors import CustodyConflictError, CustodyRequestError
from airflow_custody.client.text import sanitize
from airflow_custody.retry_policy import failing_task

try:
    from airflow.providers.standard.operators.hitl import ApprovalOperator
except ImportError as error:
    raise AirflowOptionalProviderFeatureException(
        "Approving in Airflow needs Airflow 3.1 or later with apache-airflow-providers-standard."
    ) from error

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

_ASKED = "asked"


class Question(NamedTuple):
    """
    The question to an approver.

    :param subject: the headline; not used if the user has set the task's own ``subject``.
    :param body: the details, in Markdown.
    :param approved: the XComs, by key, that the task pushes if the answer is to approve.
    """

    subject: str
    body: str
    approved: Mapping[str, Any]


class ApprovalTask(RendersNoData, ApprovalOperator):
    """
    The base of the operators that request an approval.

    An approval applies only to the content that the approver saw. If an upstream task runs again and returns other
    content, that content is not approved.

    :param defaults: the response that counts if no user responds in time: ``"Approve"`` or ``"Reject"``. Default
        ``"Reject"``.
    :param ignore_downstream_trigger_rules: whether a rejection skips all downstream tasks, regardless of their trigger
        rules. Default True.
    """

    #: What is approved, with its article, for messages: ``a plan``.
    subject_of_approval: ClassVar[str]
    #: The template fields of Airflow's operator without the body. The body is never rendered as a template, because it
    #: contains data from the service.
    inherited_fields = tuple(each for each in ApprovalOperator.template_fields if each != "body")

    def __init__(
        self,
        *,
        subject: str | XComArg = "",
        defaults: str | list[str] = ApprovalOperator.REJECT,
        ignore_downstream_trigger_rules: bool = True,
        **kwargs: Any,
    ) -> None:
        # Airflow would use an execution_timeout from default_args as the time limit for the user's response.
        kwargs.setdefault("execution_timeout", None)
        super().__init__(
            # ``execute`` sets the body to the question's. A body that the user passes is refused as a repeated
            # argument.
            body=None,
            subject=subject,
            defaults=defaults,
            ignore_downstream_trigger_rules=ignore_downstream_trigger_rules,
            **kwargs,
        )
        if self.assigned_users is not None and not self.assigned_users:
            raise ValueError(
                "assigned_users is empty, so that any user could approve; if that is intended, leave it out"
            )

    @abstractmethod
    def _question(self) -> Question:
        """
        Return the question.

        :raises CustodyRequestError: if the plan or request to approve is missing or malformed.
        """

    def execute(self, context: Context) -> Any:
        """Request the approval, and wait for the response."""
        with failing_task(self, context):
            question = self._question()
            if context["ti"].map_index not in (None, -1):
                raise CustodyRequestError(
                    f"a {self.subject_of_approval} cannot be approved in a mapped task: a rejection would not skip the "
                    "downstream tasks; no approval was requested",
                    advice="Instead of mapping the task, write a separate task or DAG for each approval.",
                    code="parameter-wrong",
                )
            if context["ti"].try_number > 1:
                raise CustodyConflictError(
                    "an earlier try may have requested an approval, and Airflow would display that question again, "
                    f"even if the {self.subject_of_approval} has changed; no approval was requested",
                    advice="Start a new run of the DAG.",
                    code="plan-changed",
                )
        self.subject = self.subject or question.subject
        self.body = question.body
        # Store the content of the question now, because the upstream task may run again and return other content before
        # the user responds.
        context["ti"].xcom_push(key=_ASKED, value=dict(question.approved))
        for notifier in self.notifiers:
            try:
                notifier(context)
            except Exception:
                # Do not fail the task, because a later try could not request the approval again.
                self.log.exception("%s failed. The approval is requested nevertheless.", type(notifier).__name__)
        # The base class must not call the notifiers, because it would do so after storing the question and before the
        # task begins to wait. Airflow loses a response that arrives during this time, so a slow notifier could cause
        # an approval to be lost.
        self.notifiers = []
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Read the response. If it is an approval, push the approved content."""
        # Airflow's own log does not name the user. The event has no user if no response arrived in time.
        user = event.get("responded_by_user")
        name = user.get("name") if isinstance(user, Mapping) else user
        self.log.info("Response: %s (%s).", event.get("chosen_options"), sanitize(name or "no response in time", 200))
        response = super().execute_complete(context, event)
        if response["chosen_options"] == [self.APPROVE]:
            asked = context["ti"].xcom_pull(task_ids=self.task_id, key=_ASKED)
            for key, value in asked.items():
                context["ti"].xcom_push(key=key, value=value)
        return response

    def form_url(self, ti: RuntimeTaskInstanceProtocol) -> str:
        """
        Return the URL of the form in which the approval is given, for the templates of notifiers.

        Use this instead of Airflow's ``generate_link_to_ui``, which loses the path of ``[api] base_url``.

        :param ti: the task instance, ``ti`` in a template.
        """
        return ti.log_url.replace("?", "/required_actions?")
