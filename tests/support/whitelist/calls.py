"""Two calls of a client: a read, which may be repeated, and a create, which may not."""

from __future__ import annotations

from airflow_custody.client import CustodyClient, WhitelistRequest

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")


def create(client: CustodyClient) -> None:
    client.create_whitelist_request(REQUEST)


def read(client: CustodyClient) -> None:
    client.list_health_checks()
