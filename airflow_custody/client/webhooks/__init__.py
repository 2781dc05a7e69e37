"""Webhook configurations: the operations on them, and the verification of their deliveries."""

from airflow_custody.client.webhooks.delivery import Delivery, verify_delivery

__all__ = ["Delivery", "verify_delivery"]
