"""Webhook configurations: the operations on them, and the verification of their deliveries."""

from airflow_custody.client.webhooks.delivery import verify_delivery

__all__ = ["verify_delivery"]
