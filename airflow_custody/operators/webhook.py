"""Operators that work with webhook configurations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_custody.client.errors import CustodyNotFoundError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.task_failures import failing_the_task, use_custody_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CustodySetWebhookStatusOperator(BaseOperator):
    """
    Enable or disable a webhook configuration.

    Part of the given interface; the role it needs, ``Admin``, is published knowledge. Setting the status that the
    webhook already has is lawful, so the call is repeated when its answer is lost. Can be used as setup and
    teardown.

    :param webhook_id: the configuration's UUID. (templated)
    :param status: ``enabled`` or ``disabled``. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"webhook_id": ..., "status": ...}``, as it is now.
    :raises AirflowFailException: if the id or the status is malformed (nothing is sent), or there is no such webhook.
    """

    template_fields: Sequence[str] = ("webhook_id", "status", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_id: str,
        status: str,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        self.webhook_id = webhook_id
        self.status = status
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Set the status."""
        with failing_the_task(self), CustodyHook(self.custody_conn_id).get_conn() as client:
            client.set_webhook_status(self.webhook_id, self.status)  # type: ignore[arg-type]
            self.log.info("Webhook %s is %s.", self.webhook_id, self.status)
            return {"webhook_id": str(self.webhook_id), "status": self.status}


class CustodyDeleteWebhookOperator(BaseOperator):
    """
    Delete a webhook configuration.

    Part of the given interface; the role it needs, ``Admin``, is published knowledge. A webhook that is not there
    is a success, because a repeat after a lost answer must succeed; the log and the returned value say so.

    :param webhook_id: the configuration's UUID. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"webhook_id": ..., "deleted": ...}``; ``deleted`` is False if it was not there.
    :raises AirflowFailException: if the id is malformed; nothing is sent.
    """

    template_fields: Sequence[str] = ("webhook_id", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_id: str,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        self.webhook_id = webhook_id
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the webhook configuration."""
        with failing_the_task(self), CustodyHook(self.custody_conn_id).get_conn() as client:
            try:
                client.delete_webhook(self.webhook_id)
            except CustodyNotFoundError as error:
                if error.from_gateway:
                    # Somebody's 404 page says nothing about the webhook.
                    raise
                self.log.warning("Webhook %s is not there (deleted before): nothing to do.", self.webhook_id)
                return {"webhook_id": str(self.webhook_id), "deleted": False}
            self.log.info("Webhook %s is deleted.", self.webhook_id)
            return {"webhook_id": str(self.webhook_id), "deleted": True}
