"""The page of one request and the page of several, in Airflow's own app."""

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


def add_requests(sandbox: Sandbox, number: int = 1, **options: Any) -> list[str]:
    fields = {"label": "Treasury<script>alert(1)</script>", "address": f"0x{1:040x}", "blockchain": "ETH", "memo": "17"}
    return sandbox.control.add_whitelist_requests([fields] * number, **options)


def test_shows_a_request(pages: Pages, sandbox: Sandbox) -> None:
    (request_id,) = add_requests(sandbox, status="pending")
    response = pages.get(f"{ROOT}/{request_id}")
    assert response.status_code == 200
    text = text_of(response)
    for expected in ("Pending approval", "memo 17", f"0x{1:040x}", "Treasury", "No signatures.", NOT_PINNED):
        assert expected in text
    assert "<script" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert 'href="/custody/connections/custody_default"' in response.text
    assert sandbox.token not in response.text


class TestWithPinnedKeys:
    @pytest.fixture(autouse=True)
    def pinned(self, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))

    def test_a_signed_request_is_verified(self, pages: Pages, sandbox: Sandbox) -> None:
        (request_id,) = add_requests(sandbox, signed=True)
        assert "In effect Verified" in text_of(pages.get(f"{ROOT}/{request_id}"))

    def test_a_changed_request_is_not_verified(self, pages: Pages, sandbox: Sandbox) -> None:
        (request_id,) = add_requests(sandbox, signed=True)
        sandbox.control.change_whitelist_request(request_id, address="0xab")
        text = text_of(pages.get(f"{ROOT}/{request_id}"))
        assert "In effect, not verified" in text
        assert f"custody whitelist verify --conn-id custody_default --id {request_id}" in text


@pytest.mark.parametrize(
    ("request_id", "words"),
    [
        pytest.param("4711", "no whitelisting request with this id", id="missing"),
        pytest.param("9" * 30, "is a whole number", id="too-large"),
        pytest.param("..%2f..%2fhealth", "This page does not exist", id="path"),
        pytest.param("%3Cscript%3E", "is a whole number", id="markup"),
    ],
)
def test_an_id_without_a_request(pages: Pages, request_id: str, words: str) -> None:
    response = pages.get(f"{ROOT}/{request_id}")
    assert response.status_code == 404
    assert words in text_of(response)
    assert "<script" not in response.text


def test_a_404_from_a_gateway_does_not_mean_that_the_request_is_missing(pages: Pages, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", method="GET", status=404, body="<h1>nginx</h1>", times=None)
    response = pages.get(f"{ROOT}/4711")
    assert response.status_code == 200
    assert "failed: response unusable (status 404)" in text_of(response)


def test_shows_several(pages: Pages, sandbox: Sandbox) -> None:
    request_ids = add_requests(sandbox, 3, status="pending")
    ids = ",".join([*request_ids, "999"])
    response = pages.get(f"{ROOT}?ids={ids}&total=250")
    text = text_of(response)
    assert response.status_code == 200
    assert "Showing the first 4 of 250 requests" in text
    assert "The service does not list it" in text
    assert "<script" not in response.text
    for request_id in request_ids:
        assert f'href="{ROOT}/{request_id}"' in response.text
    assert f'href="{ROOT}?ids={ids}&amp;total=250"' in response.text


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param("", id="none"),
        pytest.param("1,,2", id="empty"),
        pytest.param(",".join(map(str, range(101))), id="too-many"),
    ],
)
def test_invalid_ids_are_not_sent(pages: Pages, sandbox: Sandbox, ids: str) -> None:
    sandbox.control.clear_request_log()
    response = pages.get(f"{ROOT}?ids={ids}&total=x")
    assert response.status_code == 404
    assert "whole numbers" in text_of(response)
    assert sandbox.control.request_log() == []
