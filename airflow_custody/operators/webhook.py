"""The operators for webhook configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody._base import NOT_GIVEN
from airflow_custody.client.arguments import check_text
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.limits import LOOKUP_WAIT
from airflow_custody.hooks._lookup import find_connection, mask
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyCreateOperator, CustodyOperator, delete_if_exists
from airflow_custody.operators._webhook_calls import CustodyReadWebhookCallsOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


__all__ = [
    "CustodyCreateWebhookOperator",
    "CustodyDeleteWebhookOperator",
    "CustodyReadWebhookCallsOperator",
    "CustodySetWebhookStatusOperator",
]

_WHERE_TO_KEEP_IT = "either secret_conn_id or store_secret must be given: the secret has to be kept somewhere"


class CustodySetWebhookStatusOperator(CustodyOperator):
    """
    Enable or disable a webhook configuration.

    Needs the role ``Admin``. Setting the status that the webhook already has is allowed, so the call is repeated when
    its response is lost. A response that does not confirm it is no success unless the listing shows the
    new status; where the service offers no listing, the log says so. Can be used as setup and teardown.

    :param webhook_id: the configuration's UUID. (templated)
    :param status: ``enabled`` or ``disabled``. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"webhook_id": ..., "status": ...}``, as it is now.
    :raises AirflowFailException: if the id or the status is malformed (nothing is sent), or there is no such webhook,
        or the change cannot be confirmed.
    :raises CustodyResponseError: if the webhook still has its old status afterwards; Airflow's retries apply.
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
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.webhook_id = webhook_id
        self.status = status

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        webhook_id, status = check_text("webhook_id", self.webhook_id), check_text("status", self.status)
        hook.get_conn().set_webhook_status(webhook_id, status)  # type: ignore[arg-type]
        self.log.info("Webhook %s is %s.", self.webhook_id, self.status)
        return {"webhook_id": str(self.webhook_id), "status": self.status}


class CustodyDeleteWebhookOperator(CustodyOperator):
    """
    Delete a webhook configuration.

    Needs the role ``Admin``. It succeeds if the webhook does not exist, because a repeat after a lost response must
    succeed; the log and the returned value say so. A response that does not confirm it, a gateway's 404
    above all, is no success unless the listing does not have the webhook.

    :param webhook_id: the configuration's UUID. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"webhook_id": ..., "deleted": ...}``; ``deleted`` is False if it did not exist.
    :raises AirflowFailException: if the id is malformed (nothing is sent), or the deletion cannot be confirmed.
    :raises CustodyResponseError: if the webhook is still there afterwards; Airflow's retries apply.
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
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.webhook_id = webhook_id

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        webhook_id = check_text("webhook_id", self.webhook_id)
        client = hook.get_conn()
        deleted = delete_if_exists(f"Webhook {webhook_id}", lambda: client.delete_webhook(webhook_id), self.log)
        return {"webhook_id": str(self.webhook_id), "deleted": deleted}


class CustodyCreateWebhookOperator(CustodyCreateOperator):
    """
    Create a webhook configuration, once for each task instance, and return its id.

    The secret that deliveries are signed with never goes to XCom or the log. Either you give it, in a connection; or
    the service makes it up and shows it once, and ``store_secret`` keeps it. If the task dies in between, that secret
    is lost: the next try says which webhook to delete. What is promised about creating once is the same as for
    :class:`~airflow_custody.operators.whitelist.CustodyCreateWhitelistRequestOperator`.

    Needs the role ``Admin``. The operation is undocumented.

    :param webhook_type: the type of event to deliver, for example ``requestStatus.updated``. (templated)
    :param url: the URL to deliver to, HTTPS. (templated)
    :param secret_conn_id: id of a connection of any type whose Password is the secret to use, at most 150 characters.
        (templated)
    :param store_secret: called with the webhook's id and the secret that the service made up, before the task
        succeeds: it must keep the secret, in an Airflow variable say.
    :param lookup_wait: seconds that the service may take to show what it created. Default 30.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the webhook's id.
    :raises AirflowFailException: if the webhook is refused, or if it cannot be known whether it exists.
    """

    template_fields: Sequence[str] = ("webhook_type", "url", "secret_conn_id", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_type: str,
        url: str,
        secret_conn_id: str | None = NOT_GIVEN,
        store_secret: Callable[[str, str], None] | None = None,
        lookup_wait: float = LOOKUP_WAIT,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        if (secret_conn_id is NOT_GIVEN) == (store_secret is None):
            self._refuse(_WHERE_TO_KEEP_IT)
        self._check_numbers({"lookup_wait": lookup_wait})
        self.webhook_type = webhook_type
        self.url = url
        self.secret_conn_id = secret_conn_id
        self.store_secret = store_secret
        self.lookup_wait = lookup_wait

    def _run(self, context: Context, hook: CustodyHook) -> str:
        from airflow_custody.operators._webhook_creation import WebhookCreation

        webhook_type, url = check_text("webhook_type", self.webhook_type), check_text("url", self.url)
        if not url.startswith("https://"):
            raise CustodyRequestError(
                "the webhook's URL must begin with https://; nothing was sent", setting="url", code="parameter-wrong"
            )
        if self.secret_conn_id is None and self.store_secret is None:
            # Left out in the run: the one that the service makes up would be lost.
            raise CustodyRequestError(f"{_WHERE_TO_KEEP_IT}; nothing was sent", code="parameter-wrong")
        creation = WebhookCreation(hook.get_conn(), webhook_type, url, self._secret(), self.store_secret)
        return self._create_once(context, creation, lookup_wait=self.lookup_wait)

    def _secret(self) -> str | None:
        if self.secret_conn_id is None:
            return None
        check_text("secret_conn_id", self.secret_conn_id)
        advice = "Make a connection with this id, whose Password is the webhook's secret."
        secret = find_connection(self.secret_conn_id, advice, setting="secret_conn_id").password
        if not secret:
            raise CustodyConfigurationError(
                f"the Airflow connection {self.secret_conn_id!r} has no Password to use as secret",
                setting="secret_conn_id",
                code="credentials-missing",
            )
        mask(secret)
        return secret
