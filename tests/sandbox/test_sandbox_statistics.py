from __future__ import annotations

import pytest
from sandbox_api import Api, Refused
from sandbox_approvers import PATH, TWO_GROUPS, Person

from airflow_custody.sandbox import Sandbox

COUNTS = "/statistics/for-approval"


def create(api: Api, number: int) -> str:
    body = {"blockchain": "ETH", "label": f"L{number}", "address": f"0x{number:040x}"}
    return str(api.post(PATH, body).json()["result"]["id"])


def test_what_the_caller_may_sign_is_counted(api: Api, sandbox: Sandbox) -> None:
    assert api.get(COUNTS).json() == {}
    sandbox.control.set_approvers(TWO_GROUPS)
    operator, risk = Person(sandbox, api, "ann", "operations"), Person(sandbox, api, "bob", "risk")
    ids = [create(api, number) for number in range(3)]
    assert api.get(COUNTS, token=operator.token).json() == {"whitelistedAddressesCount": "3"}
    # One group after the other.
    assert api.get(COUNTS, token=risk.token).json() == {}
    operator.approve(ids[0])
    assert api.get(COUNTS, token=operator.token).json() == {"whitelistedAddressesCount": "2"}
    assert api.get(COUNTS, token=risk.token).json() == {"whitelistedAddressesCount": "1"}


@pytest.mark.parametrize(("limit", "shown"), [(0, "3"), (2, "2"), (100, "3")])
def test_no_count_is_above_the_limit(api: Api, limit: int, shown: str) -> None:
    for number in range(3):
        create(api, number)
    assert api.get(COUNTS, params={"limit": limit}).json() == {"whitelistedAddressesCount": shown}


def test_a_larger_limit_is_refused(api: Api, refused: Refused) -> None:
    refused(api.get(COUNTS, params={"limit": 101}), 400)
