"""The page of one request and that of several, in Airflow's own app."""

from __future__ import annotations

from typing import Any

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json
from support.browser.airflow_pages import Pages, text_of

from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.sandbox import Sandbox

pytestmark = [
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no page, or keeps no state of tasks"),
    pytest.mark.usefixtures("connection"),
]
ROOT = "/custody/connections/custody_default/requests"


def add(sandbox: Sandbox, number: int = 1, **how: Any) -> list[str]:
    fields = {"label": "Treasury<script>alert(1)</script>", "address": f"0x{1:040x}", "blockchain": "ETH", "memo": "17"}
    return sandbox.control.add_whitelist_requests([fields] * number, **how)


def test_shows_a_request(pages: Pages, sandbox: Sandbox) -> None:
    (number,) = add(sandbox, status="pending")
    response = pages.get(f"{ROOT}/{number}")
    assert response.status_code == 200
    text = text_of(response)
    for expected in ("Pending approval", "memo 17", f"0x{1:040x}", "Treasury", "Nobody has signed it", NOT_PINNED):
        assert expected in text
    assert "<script" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert 'href="/custody/connections/custody_default"' in response.text
    assert sandbox.token not in response.text


def test_verified_by_pinned_keys(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    numbers = add(sandbox, 2, signed=True)
    sandbox.control.change_whitelist_request(numbers[1], address="0xab")
    assert "In effect Verified" in text_of(pages.get(f"{ROOT}/{numbers[0]}"))
    assert "In effect, not verified" in text_of(pages.get(f"{ROOT}/{numbers[1]}"))


@pytest.mark.parametrize(
    ("state", "trust", "problem", "verdict"),
    [
        ("effective", "not checked", "its payload does not fit its hash", ("warning", "In effect, with a problem")),
        ("effective", "not checked", "", ("good", "In effect")),
        ("pending", "not checked", "its status is odd", ("warning", "Pending approval")),
        ("rejected", "not checked", "its status is odd", ("bad", "Rejected")),
    ],
)
def test_what_has_a_problem_is_not_green(state: Any, trust: Any, problem: str, verdict: tuple[str, str]) -> None:
    from airflow_custody.overview.models import RequestRow
    from airflow_custody.plugin import request_page

    assert request_page._verdict(RequestRow("7", "approved", trust=trust, problem=problem, state=state)) == verdict


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("4711", "no whitelisting request with this id"),
        ("9" * 30, "is a whole number"),
        ("..%2f..%2fhealth", ""),
        ("%3Cscript%3E", "is a whole number"),
    ],
)
def test_an_id_that_is_none(pages: Pages, number: str, words: str) -> None:
    response = pages.get(f"{ROOT}/{number}")
    assert response.status_code == 404
    assert words in text_of(response)
    assert "<script" not in response.text


def test_a_404_of_a_gateway_is_not_taken_for_the_services_own(pages: Pages, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", method="GET", status=404, body="<h1>nginx</h1>", times=None)
    response = pages.get(f"{ROOT}/4711")
    assert response.status_code == 200
    assert "failed: response unusable (status 404)" in text_of(response)


def test_shows_several(pages: Pages, sandbox: Sandbox) -> None:
    ids = ",".join([*(made := add(sandbox, 3, status="pending")), "999"])
    response = pages.get(f"{ROOT}?ids={ids}&total=250")
    text = text_of(response)
    assert response.status_code == 200
    assert "The first 4 of 250 are shown" in text
    assert "The service does not list it" in text
    assert "<script" not in response.text
    for number in made:
        assert f'href="{ROOT}/{number}"' in response.text
    assert f'href="{ROOT}?ids={ids}&amp;total=250"' in response.text


@pytest.mark.parametrize("ids", ["", "x", "1,,2", "1,-2", ",".join(map(str, range(101)))])
def test_what_are_no_ids(pages: Pages, sandbox: Sandbox, ids: str) -> None:
    sandbox.control.clear_request_log()
    response = pages.get(f"{ROOT}?ids={ids}&total=x")
    assert response.status_code == 404
    assert "whole numbers" in text_of(response)
    assert sandbox.control.request_log() == []
