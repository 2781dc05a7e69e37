"""The operator that requests an approval of a whitelisting request in Airflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody.client.arguments import describe
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.whitelist.ids import check_request_id
from airflow_custody.operators._base_approval import ApprovalTask, Question

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg

_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&'\x7f"}


class CustodyApproveWhitelistRequestOperator(ApprovalTask):
    """
    Request an approval of a whitelisting request in the Airflow UI, before it is signed.

    The approval is listed under *Required Actions*. It shows every field of the request that the create task created or
    reused. A rejection skips the downstream tasks, and changes nothing at the service: the request stays pending there.
    After an approval, the XCom has the approved content, for the tasks that sign. They then sign exactly this content,
    even if the create task runs again in the meantime.

    Each run requests one approval. After a clear, Airflow would display the earlier question, even if the request has
    changed. Therefore a later try fails; start a new run instead, which reuses the request.

    This operator does not call the service, and needs no role there. It needs Airflow 3.1 or later with
    ``apache-airflow-providers-standard``. Otherwise, importing it raises ``AirflowOptionalProviderFeatureException``.
    It also accepts the parameters of Airflow's ``ApprovalOperator``, such as ``assigned_users``, ``response_timeout``
    and ``notifiers``.

    The notifiers are called once, when the approval is requested. Their templates may contain ``{{ task.subject }}``,
    which by default consists of fixed words and the request's id, and ``{{ task.form_url(ti) }}``, which is the URL of
    the approval's form. If a notifier fails, this is logged, and the approval is requested nevertheless.

    :param request: the XCom ``request`` of the create task, ``create.output["request"]``. (templated)
    :param subject: the headline. Default: a question with the request's id. (templated)
    :return: the result of ``ApprovalOperator``: ``chosen_options``, ``responded_at``, ``responded_by_user`` and others.
        If the request was approved, the XCom ``request_id`` contains its id, and the XCom ``request`` contains its
        content. Pass them to the signing task as ``request_ids`` and ``expected``.
    :raises AirflowFailException: in a later try, in a mapped task or task group, or if ``request`` is not the content
        of a request.
    """

    template_fields: Sequence[str] = ("request", *ApprovalTask.inherited_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"request": "json"}
    ui_color = "#f5ecd7"
    subject_of_approval = "request"

    def __init__(self, *, request: Mapping[str, object] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = request

    def _question(self) -> Question:
        from airflow_custody.client.whitelist.expected import expected_by_id

        if not isinstance(self.request, Mapping):
            raise CustodyRequestError(
                f"request must be the XCom 'request' of a create task, not {describe(self.request)}; no approval was "
                "requested",
                advice='Write request=create.output["request"].',
                code="parameter-wrong",
            )
        request_id = check_request_id(self.request.get("id"), "request['id']")
        request = expected_by_id([request_id], self.request, consequence="no approval was requested")[request_id]
        fields = {"id": request_id, **request.model_dump(exclude_none=True)}
        # Name a language for the block, because Airflow's page would join the lines of a block without one.
        # Escape invisible characters and markup, because a notifier may put the text into HTML.
        shown = {name: json.dumps(value).translate(_ESCAPES) for name, value in fields.items()}
        rows = [f"{name:<{max(map(len, fields))}}  {value}" for name, value in shown.items()]
        return Question(
            # The headline does not contain the label, because mail and chat programs would turn a URL in it into a
            # link.
            f"Sign whitelisting request {request_id}?",
            "\n".join(["```text", *rows, "```", ""]),
            {"request_id": request_id, "request": fields},
        )
