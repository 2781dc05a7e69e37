"""The operators for webhooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody._base import NOT_GIVEN
from airflow_custody.client.arguments import LOOKUP_WAIT, check_text
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.hooks._lookup import find_connection, mask
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyCreateOperator, CustodyOperator, delete_if_exists
from airflow_custody.operators._webhook_calls import CustodyReadWebhookCallsOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg
    from pydantic import SecretStr


__all__ = [
    "CustodyCreateWebhookOperator",
    "CustodyDeleteWebhookOperator",
    "CustodyReadWebhookCallsOperator",
    "CustodySetWebhookStatusOperator",
]

_WHERE_TO_KEEP_IT = "give either secret_conn_id or store_secret: the secret must be stored in one place"


class CustodySetWebhookStatusOperator(CustodyOperator):
    """
    Enable or disable a webhook configuration.

    Needs the role ``Admin``. Setting the current status again is safe, so the call is repeated if its response is lost.
    If the response does not confirm the change, the task succeeds only if the listing of webhooks has the new status.
    If the service offers no listing, a JSON response that does not contradict the change is enough, and the log has a
    warning. The operator can be used as setup and teardown.

    :param webhook_id: UUID of the webhook configuration. (templated)
    :param status: ``enabled`` or ``disabled``. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"webhook_id": ..., "status": ...}``, with the new status.
    :raises AirflowFailException: if the id or the status is malformed (nothing is sent), the webhook does not exist,
        the service refuses the change, or it stays unknown whether the webhook has the status.
    :raises CustodyError: if the webhook still has its old status after another response, or the service does not
        respond as it should; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("webhook_id", "status", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_id: str | XComArg,
        status: str | XComArg,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
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

    Needs the role ``Admin``. If the webhook does not exist, the task succeeds, because a retry after a lost response
    must succeed; the log and the returned value report that it did not exist. If the response does not confirm the
    deletion, as with a gateway's 404, the task succeeds only if the webhook is absent from the listing of webhooks. If
    the service offers no listing, a JSON response that does not name another webhook is enough, and the log has a
    warning.

    :param webhook_id: UUID of the webhook configuration. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"webhook_id": ..., "deleted": ...}``; ``deleted`` is False if the webhook did not exist.
    :raises AirflowFailException: if the id is malformed (nothing is sent), the service refuses the deletion, or it
        stays unknown whether the webhook exists.
    :raises CustodyError: if the webhook still exists after another response, or the service does not respond as it
        should; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("webhook_id", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_id: str | XComArg,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
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
    Create a webhook configuration, and return its id.

    One task instance creates at most one webhook, even if it is retried, killed or run twice. Another DAG run creates
    another webhook, even for the same URL: use a DAG without a schedule. The service decides whether a new webhook is
    enabled, so set its status in a second task: ``CustodySetWebhookStatusOperator(webhook_id=create.output, ...)``.

    Exactly one of ``secret_conn_id`` and ``store_secret`` is required. The secret signs the deliveries, and is never
    written to XCom or the log. If the service generates the secret, it returns the secret only once. If the task dies
    before ``store_secret`` has stored the secret, the secret is lost, and the next try names the webhook to delete.
    A status 429 from the service means that nothing was created, so the webhook is then sent again, up to 20 times.

    Needs the role ``Admin``. The operation is undocumented.

    :param webhook_type: the type of event to deliver. Published types are ``requestStatus.updated``,
        ``transactionExternal.received``, ``transactionInternal.received`` and ``currencyStatus.updated``. (templated)
    :param url: the HTTPS URL to deliver to. The log and errors only have its scheme, host and port, but Airflow's UI
        shows the whole rendered URL. If a part of it is secret, write this part as ``{{ conn.ID.password }}``, because
        Airflow masks only secrets that it knows. (templated)
    :param secret_conn_id: id of a connection of any type whose Password is the secret, at most 150 characters. Default:
        the service generates the secret, and ``store_secret`` stores it. (templated)
    :param store_secret: called with the webhook's id and the secret from the service, before the task succeeds. It must
        store the secret, for example in an Airflow variable. Default: none.
    :param lookup_wait: seconds that the service may take to list what it created. Default 30.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the webhook's id.
    :raises AirflowFailException: if the webhook is wrong or refused, or the outcome is unknown.
    :raises CustodyError: if the service cannot be searched for the webhook, the create certainly had no effect, or
        ``store_secret`` fails; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("webhook_type", "url", "secret_conn_id", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_type: str | XComArg,
        url: str | XComArg,
        secret_conn_id: str | XComArg | None = NOT_GIVEN,
        store_secret: Callable[[str, str], None] | None = None,
        lookup_wait: float = LOOKUP_WAIT,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
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
                "the webhook's URL must begin with https://; nothing is sent", setting="url", code="parameter-wrong"
            )
        if self.secret_conn_id is None and self.store_secret is None:
            # With omit_if_none, the id of the secret's connection may be None in this run. Stop, because the service
            # would then generate a secret that nothing stores.
            raise CustodyRequestError(f"{_WHERE_TO_KEEP_IT}; nothing is sent", code="parameter-wrong")
        creation = WebhookCreation(hook.get_conn(), webhook_type, url, self._secret(), self.store_secret)
        return self._create_once(context, creation, lookup_wait=self.lookup_wait).id

    def _secret(self) -> SecretStr | None:
        if self.secret_conn_id is None:
            return None
        conn_id = check_text("secret_conn_id", self.secret_conn_id)
        advice = "Create a connection with this id and the webhook's secret as its Password."
        secret = find_connection(conn_id, advice, setting="secret_conn_id").password
        if not secret:
            why = (
                "has no Password, which must be the webhook's secret"
                if secret is not None
                else "has a Password that is not text: put it in quotation marks in the connection's definition"
            )
            raise CustodyConfigurationError(
                f"the Airflow connection {conn_id!r} {why}",
                setting="secret_conn_id",
                code="credentials-missing",
            )
        mask(secret)
        return secret
