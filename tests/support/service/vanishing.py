"""A request that is deleted while the listings are read."""

from __future__ import annotations

from typing import Any

from support.service.sandbox_api import Api

from airflow_custody.sandbox import Sandbox

PATH = "/whitelists/addresses"


def vanish(sandbox: Sandbox, request_id: str, **query: Any) -> None:
    """
    Remove a request from the listing of all requests, but not from the listing of settled ones, which is read first.

    :param query: the query parameters of the calls that lack it; all calls by default.
    """
    page = Api(sandbox.url, sandbox.token).get(
        PATH, params={"includeForApproval": "true", "rulesContainerNormalized": "true"}
    )
    rows = [row for row in page.json()["result"] if row["id"] != request_id]
    if "ids" in query:
        rows = [row for row in rows if row["id"] in query["ids"]]
    sandbox.control.add_fault(
        "status",
        path=PATH,
        query={"includeForApproval": "true", **query},
        body={**page.json(), "result": rows, "totalItems": str(len(rows))},
        times=None,
    )
