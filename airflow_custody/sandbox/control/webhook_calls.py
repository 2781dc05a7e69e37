"""Controlling the webhooks of a sandbox, and their calls."""

from __future__ import annotations

from typing import Any

from airflow_custody.sandbox.control.calls import ControlCalls


class WebhookControl(ControlCalls):
    """The control routes for webhooks and their calls."""

    def add_webhook(
        self,
        type: str = "requestStatus.updated",
        url: str = "https://hooks.example.com/custody",
        status: str = "enabled",
        id: str | None = None,
        tenant_id: str = "1",
        timeout_until: str = "",
    ) -> dict[str, Any]:
        """
        Add a webhook, whatever its values, and return it as the service does.

        :param type: the type of event. Default ``requestStatus.updated``.
        :param url: where it delivers. Default ``https://hooks.example.com/custody``.
        :param status: its status, such as ``enabled`` (default) or ``disabled``.
        :param id: its id. Default: a random UUID.
        :param tenant_id: id of its tenant. Default ``1``.
        :param timeout_until: until when it cools down after failed deliveries. Default: it does not.
        """
        body = {
            "type": type,
            "url": url,
            "status": status,
            "id": id,
            "tenant_id": tenant_id,
            "timeout_until": timeout_until,
        }
        result: dict[str, Any] = self._call("POST", "/webhooks", body)
        return result

    def webhooks(self) -> list[dict[str, Any]]:
        """Return the webhooks of all tenants."""
        result: list[dict[str, Any]] = self._call("GET", "/webhooks")
        return result

    def add_webhook_call(self, tenant_id: str = "1", **call: Any) -> None:
        """
        Add a call to a webhook, with these fields by their names on the wire.

        :param tenant_id: id of the tenant. Default ``1``.
        :param call: the fields.
        """
        self._call("POST", "/webhook-calls", {"tenant_id": tenant_id, "call": call})

    def change_webhook(
        self, webhook_id: str, *, status: str | None = None, timeout_until: str | None = None
    ) -> dict[str, Any]:
        """
        Change a webhook, whatever the values, and return it as the service does.

        :param webhook_id: the webhook's id.
        :param status: its status. Default None: it stays.
        :param timeout_until: until when it cools down after failed deliveries; empty: it does not. Default None: that
            stays.
        """
        body = {"status": status, "timeout_until": timeout_until}
        result: dict[str, Any] = self._call("PATCH", f"/webhooks/{webhook_id}", body)
        return result

    def add_webhook_calls(
        self, number: int, *, age: float = 0.0, spacing: float = 0.001, tenant_id: str = "1", **fields: Any
    ) -> list[str]:
        """
        Add calls to webhooks, one after the other, and return their ids. It is quick.

        :param number: how many.
        :param age: seconds since the first was created. Default 0.
        :param spacing: seconds between one and the next. Default 0.001.
        :param tenant_id: id of the tenant. Default ``1``.
        :param fields: fields of all, by their names on the wire.
        """
        body = {"number": number, "age": age, "spacing": spacing, "tenant_id": tenant_id, "fields": fields}
        result: list[str] = self._call("POST", "/webhook-calls/many", body)
        return result

    def send_event(
        self,
        webhook_type: str,
        payload: Any,
        *,
        event_id: str | None = None,
        age: float = 0.0,
        status: str = "success",
        tenant_id: str = "1",
    ) -> list[dict[str, Any]]:
        """
        Write a call to each webhook of a type, unless its state keeps it from that, and return the calls.

        :param webhook_type: the type of the webhooks.
        :param payload: what it tells: JSON data, or text.
        :param event_id: the id of the event. Default: a random one.
        :param age: seconds since the calls were created: older than others that are listed already, they are late.
            Default 0.
        :param status: how their delivery stands.
        :param tenant_id: id of the tenant. Default ``1``.
        """
        body = {
            "webhook_type": webhook_type,
            "payload": payload,
            "event_id": event_id,
            "age": age,
            "status": status,
            "tenant_id": tenant_id,
        }
        result: list[dict[str, Any]] = self._call("POST", "/webhook-events", body)
        return result

    def set_call_behaviour(self, **settings: Any) -> None:
        """
        Set how the service writes, keeps and lists the calls to webhooks. None of this is published.

        What is not given goes back to the default:

        - ``paging``: how a page is found: by ``offset``, or by the last row of the page before (``keyset``)
        - ``order``: whether calls are listed as they were ``created``, or as they were ``written``
        - ``ids``: ``number`` or ``uuid``
        - ``resolution``: seconds to which time stamps are cut off, so that some are equal. Default 0
        - ``writes_when_disabled``: whether a disabled webhook gets calls. Default False
        - ``writes_when_cooling_down``: whether one gets calls that cools down. Default True
        - ``max_age``: seconds after which a call is removed. Default None: never
        - ``max_number``: how many calls are kept. Default None: all

        :param settings: the settings above.
        """
        self._call("PUT", "/webhook-call-behaviour", settings)

    def set_whitelist_events(self, enabled: bool) -> None:
        """
        Set whether each change of a whitelisting request's status is an event, which calls webhooks.

        This is the sandbox's own invention, for demos: the service publishes no such event.

        :param enabled: whether it is.
        """
        self._call("PUT", "/whitelist-events", {"enabled": enabled})
