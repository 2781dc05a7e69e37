"""The client refuses a wrong argument before it sends anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_custody.client import CustodyClient, CustodyRequestError
from airflow_custody.client.arguments import refuse_missing
from airflow_custody.sandbox import Sandbox

UUID = "123e4567-e89b-12d3-a456-426614174000"
#: Calls of the client with one wrong argument.
CALLS: dict[str, Callable[[CustodyClient, Any], object]] = {
    "webhook_id": lambda client, wrong: client.set_webhook_status(wrong, "enabled"),
    "status": lambda client, wrong: client.set_webhook_status(UUID, wrong),
    "get": lambda client, wrong: client.get_whitelist_request(wrong),
    "delete": lambda client, wrong: client.delete_whitelist_request(wrong, "why"),
    "reject": lambda client, wrong: client.reject_whitelist_requests(wrong, "why"),
    "approve": lambda client, wrong: client.approve_whitelist_requests(wrong, "s" * 88, "why"),
}


#: Neither an id nor a status. Python reads the last value as a UUID, but in a path it is not a UUID.
WRONG: list[Any] = [None, True, [[]], "x", "../x", "{00000000-0000-0000-0000-000000000000}"]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_refused(sandbox: Sandbox, call: str, wrong: Any) -> None:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client, pytest.raises(CustodyRequestError):
        CALLS[call](client, wrong)
    assert sandbox.control.request_log() == []


@pytest.mark.parametrize("missing", [None, "None", " null "], ids=repr)
@pytest.mark.parametrize("collection", [list, tuple, set, frozenset], ids=lambda each: each.__name__)
def test_a_value_that_is_missing_in_a_collection_is_refused(collection: Any, missing: Any) -> None:
    with pytest.raises(CustodyRequestError, match=r"^types"):
        refuse_missing("types", collection(["a", missing]))
    refuse_missing("types", collection(["a", "b"]))
