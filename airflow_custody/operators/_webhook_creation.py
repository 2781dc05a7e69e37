"""
The creation of a webhook.

The operator imports this module only when the task runs, so that parsing a DAG file does not load the search for
existing webhooks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.secrets import as_secret, without_secrets
from airflow_custody.client.text import lines
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.hooks._lookup import mask
from airflow_custody.idempotency.search import Candidate, SearchResult

if TYPE_CHECKING:
    from pydantic import SecretStr

    from airflow_custody.client import CustodyClient
    from airflow_custody.client.webhooks.models import WireWebhook

log = logging.getLogger(__name__)


@dataclass(repr=False, eq=False)
class WebhookCreation:
    what = "webhook"
    client: CustodyClient
    webhook_type: str
    url: str
    secret: SecretStr | None
    store_secret: Callable[[str, str], None] | None

    def __post_init__(self) -> None:
        if self.secret is not None:
            # Hide the secret before searching for the webhook, so that no error of the search quotes the secret.
            self.client.auth.hide(self.secret)
        self.timeout = self.client.settings.timeout
        service = self.client.settings.base_url
        self.content = {"service": service, "webhook_type": self.webhook_type, "url": self.url}

    def which(self, key: str) -> str:
        return f"{self.webhook_type} to {without_secrets(self.url)}"

    def send(self, key: str, before_send: Callable[[], None]) -> str:
        secret: str | SecretStr
        webhook_id, secret = self.client.create_webhook(
            self.webhook_type, self.url, secret=self.secret, before_send=before_send
        )
        secret = as_secret(secret)
        mask(secret)
        if self.secret not in (None, secret):
            log.warning(
                "%s",
                lines(
                    f"The service signs the deliveries of webhook {webhook_id} with a secret that differs from the "
                    "connection's, so receivers will reject the deliveries.",
                    "Delete the webhook.",
                ),
            )
        failure = ""
        if self.store_secret is not None:
            try:
                self.store_secret(webhook_id, secret.get_secret_value())
            except Exception as exception:
                failure = type(exception).__name__
        if failure:
            # Raise the error outside the except block, so that it is not chained, and without the original text. Both
            # the original error and its text may contain the secret.
            raise CustodyError(
                f"store_secret failed ({failure}), so the secret of the new webhook {webhook_id} is lost",
                advice="The next try reports how to continue.",
                code="webhook-secret-lost",
                retryable=True,
            )
        return webhook_id

    def find(self, keys: Collection[str], *, thorough: bool) -> dict[str, SearchResult]:
        # Do not search by URL, because the service may normalize it.
        candidates = [self._candidate(each) for each in self.client.list_webhooks(webhook_type=self.webhook_type)]
        inconclusive = "" if thorough else None
        has_none = thorough and not candidates
        if has_none and not any(self.client.list_webhooks()):
            inconclusive = "it lists no webhooks at all, so it may hide them"
        return dict.fromkeys(keys, SearchResult(candidates, inconclusive))

    def get(self, key: str, identifier: str) -> Candidate | None:
        found = next((each for each in self.client.list_webhooks() if each["id"] == identifier), None)
        return None if found is None else self._candidate(found, secret_known=True)

    def _candidate(self, webhook: WireWebhook, *, secret_known: bool = False) -> Candidate:
        url, listed = self.url, webhook.get("url")
        differs = [] if webhook.get("type") == self.webhook_type else ["type"]
        is_secret_lost = self.secret is None and not secret_known
        unclear = ""
        if listed != url and _normalize_url(listed) != _normalize_url(url):
            differs.append("url")
        elif listed != url:
            unclear = "its URL is spelled differently"
        elif is_secret_lost and not differs:
            # The service returns a secret only once. The try that created the webhook got it, and has not stored it.
            unclear = "its secret is lost: delete the webhook, set the variable to 'none', and clear this task"
        created_at = parse_timestamp(webhook.get("createdAt"))
        return Candidate(webhook["id"], tuple(differs), unclear, created_at)


def _normalize_url(url: str | None) -> str:
    return (url or "").rstrip("/").casefold()
