"""Ten thousand whitelisting requests."""

from __future__ import annotations

from typing import Any

import pytest
from sandbox_api import Api

from airflow_custody.sandbox import Sandbox, SandboxError
from airflow_custody.sandbox.whitelist.envelopes import build_envelope

PATH = "/whitelists/addresses"
NUMBER = 10_000


def address(number: int) -> str:
    return f"0x{number:040x}"


def requests_of(number: int) -> list[dict[str, Any]]:
    return [{"blockchain": "eth", "label": f"Row {each}", "address": address(each)} for each in range(number)]


def test_they_are_added_at_once_and_are_in_effect(sandbox: Sandbox, api: Api) -> None:
    assert api.post(PATH, requests_of(1)[0]).json() == {"result": {"id": "3711"}}
    assert sandbox.control.add_whitelist_requests(requests_of(3)) == ["3712", "3713", "3714"]
    listed = api.get(PATH).json()["result"]
    assert [(row["id"], row["status"], row["blockchain"]) for row in listed] == [
        (number, "APPROVED", "ETH") for number in ("3712", "3713", "3714")
    ]
    assert listed[0]["metadata"]["payload"]["label"] == "Row 0"
    assert sandbox.control.whitelist_requests()[1]["body"] == requests_of(1)[0]
    assert api.post(PATH, requests_of(1)[0]).json() == {"result": {"id": "3715"}}


def test_they_can_be_pending_and_of_others(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.configure(label_length=2)
    mine = sandbox.control.add_whitelist_requests(requests_of(1), status="pending", user_id="7")
    sandbox.control.add_whitelist_requests(requests_of(1), tenant_id="2")
    assert "result" not in api.get(PATH).json()
    (row,) = api.get(PATH, params={"includeForApproval": True}).json()["result"]
    assert ([row["id"]], row["metadata"]["payload"]["label"], row["trails"][0]["userId"]) == (mine, "Ro", "7")
    assert [each["id"] for each in api.get(f"{PATH}/for-approval").json()["result"]] == mine


@pytest.mark.parametrize("wrong", [{"address": "0x1"}, {"blockchain": "DOGE"}, {"label": " "}], ids=str)
def test_if_one_is_refused_none_is_added(sandbox: Sandbox, wrong: dict[str, str]) -> None:
    with pytest.raises(SandboxError, match=r"address|currency|label"):
        sandbox.control.add_whitelist_requests([*requests_of(2), {**requests_of(1)[0], **wrong}])
    assert sandbox.control.whitelist_requests() == []
    assert sandbox.control.add_whitelist_requests([]) == []


def test_of_ten_thousand_only_those_of_the_page_are_hashed(
    sandbox: Sandbox, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []

    def build(row: Any, *args: Any, **options: Any) -> dict[str, Any]:
        built.append(str(row["id"]))
        return build_envelope(row, *args, **options)

    monkeypatch.setattr("airflow_custody.sandbox.whitelist.store.build_envelope", build)
    ids = sandbox.control.add_whitelist_requests(requests_of(NUMBER))
    some = range(0, NUMBER, NUMBER // 50)
    for query, found in (
        ({}, ids[:100]),
        ({"offset": NUMBER - 100}, ids[-100:]),
        ({"addresses": [address(each) for each in some]}, [ids[each] for each in some]),
    ):
        built.clear()
        listed = api.get(PATH, params={"limit": 100, **query}).json()["result"]
        assert [row["id"] for row in listed] == built == found
