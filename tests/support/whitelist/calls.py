"""A call that may be repeated, and one that may not."""

from __future__ import annotations

from airflow_custody.client import CustodyClient, WhitelistRequest

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")


def create(client: CustodyClient) -> None:
    client.create_whitelist_request(REQUEST)


def read(client: CustodyClient) -> None:
    client.list_health_checks()
