"""
Operators that create webhook configurations.

Published knowledge, not part of the given interface: a service may not offer these operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook, BaseOperator

from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.create_once import CreateOnce, Seen
from airflow_custody.hooks.custody import CustodyHook, mask
from airflow_custody.task_failures import failing_the_task, use_custody_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient


class CustodyCreateWebhookOperator(BaseOperator):
    """
    Create a webhook configuration, once for each task instance, and hand on its id.

    The secret that deliveries are signed with never goes to XCom or the log. Either you give it, in a connection; or
    the service makes it up and shows it once, and ``store_secret`` keeps it. If the task dies in between, that secret
    is lost: the next try says which webhook to delete. Creating works as
    :class:`~airflow_custody.operators.whitelist.CustodyCreateWhitelistRequestOperator` does it.

    Published knowledge, not part of the given interface. Needs the role ``Admin``.

    :param webhook_type: what is told of, ``requestStatus.updated`` say. (templated)
    :param url: where to, HTTPS. (templated)
    :param secret_conn_id: id of a connection of any type whose Password is the secret to use, at most 150 characters.
        (templated)
    :param store_secret: called with the webhook's id and the secret that the service made up, before the task
        succeeds: it must keep it, in an Airflow variable say.
    :param lookup_wait: seconds that the service may take to show in a look-up what it has created. Default 30.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the webhook's id.
    :raises AirflowFailException: if the webhook is refused, or if it can not be known whether it exists.
    """

    template_fields: Sequence[str] = ("webhook_type", "url", "secret_conn_id", "custody_conn_id")
    ui_color = "#f5ecd7"

    def __init__(
        self,
        *,
        webhook_type: str,
        url: str,
        secret_conn_id: str | None = None,
        store_secret: Callable[[str, str], None] | None = None,
        lookup_wait: float = 30.0,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        if (secret_conn_id is None) == (store_secret is None):
            raise ValueError("either secret_conn_id or store_secret must be given: the secret has to be kept somewhere")
        self.webhook_type = webhook_type
        self.url = url
        self.secret_conn_id = secret_conn_id
        self.store_secret = store_secret
        self.lookup_wait = lookup_wait
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> str:
        """Create the webhook unless an earlier try did, and return its id."""
        with failing_the_task(self):
            if not str(self.url or "").startswith("https://"):
                raise CustodyRequestError("the webhook's URL must begin with https://; nothing was sent")
            with CustodyHook(self.custody_conn_id).get_conn() as client:
                creation = _WebhookCreation(
                    client, str(self.webhook_type), str(self.url), self._secret(), self.store_secret
                )
                return CreateOnce(
                    context,
                    creation,
                    self.log,  # type: ignore[arg-type]
                    lookup_wait=self.lookup_wait,
                ).run()

    def _secret(self) -> str | None:
        if self.secret_conn_id is None:
            return None
        secret = BaseHook.get_connection(self.secret_conn_id).password
        if not secret:
            raise CustodyConfigurationError(
                f"the Airflow connection {self.secret_conn_id!r} has no Password to use as secret",
                setting="secret_conn_id",
            )
        mask(secret)
        return secret


class _WebhookCreation:
    """Say how a webhook is created and found again."""

    what = "webhook"

    def __init__(
        self,
        client: CustodyClient,
        webhook_type: str,
        url: str,
        secret: str | None,
        store_secret: Callable[[str, str], None] | None,
    ) -> None:
        self._client = client
        self._type = webhook_type
        self._url = url
        self._secret = secret
        self._store_secret = store_secret
        self.timeout = client.timeout
        self.which = f"{webhook_type} to {url}"
        self.content: Mapping[str, object] = {"service": client.base_url, "webhook_type": webhook_type, "url": url}

    def send(self, before_send: Callable[[], None]) -> str:
        webhook_id, secret = self._client.create_webhook(
            self._type, self._url, secret=self._secret, before_send=before_send
        )
        if self._store_secret is not None:
            mask(secret)
            self._store_secret(webhook_id, secret)
        return webhook_id

    def look(self, request_id: str | None = None) -> Iterator[Seen]:
        for webhook in self._client.list_webhooks(webhook_type=self._type, url=self._url):
            if request_id not in (None, webhook["id"]):
                continue
            same = (webhook.get("type"), webhook.get("url")) == (self._type, self._url)
            # What was created in another try has shown its secret to nobody.
            lost = same and request_id is None and self._secret is None
            why = "its secret was shown once and is lost: delete it, say 'none', and clear this task" if lost else ""
            yield Seen(webhook["id"], same=same and not lost, unclear=why)
