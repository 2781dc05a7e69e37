"""The page of one request, in Airflow's own app, for its users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow_pages import Pages, text_of
from airflow_runs import AIRFLOW
from apply_tries import address
from connections import connection_json

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.sandbox import Sandbox

if AIRFLOW >= (3, 1):
    pass

pytestmark = [
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no page, or keeps no state of tasks"),
    pytest.mark.usefixtures("connection"),
]
ROOT = "/custody/connections/custody_default/requests"
HOSTILE = "<script>alert(1)</script><b>\u202egnp\u200b'\"&"
FIELDS: dict[str, Any] = {"label": "Treasury", "address": address(1), "blockchain": "ETH"}


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        yield client


def test_shows_a_request(pages: Pages, client: CustodyClient, sandbox: Sandbox) -> None:
    number = client.create_whitelist_request(WhitelistRequest(**FIELDS, memo="17"))
    response = pages.get(f"{ROOT}/{number}")
    assert response.status_code == 200
    text = text_of(response)
    for expected in (
        "Pending approval",
        "memo 17",
        address(1),
        "Treasury",
        "Nobody has signed it",
    ):
        assert expected in text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert 'href="/custody/connections/custody_default"' in response.text
    assert sandbox.token not in response.text


def test_a_request_that_was_signed(pages: Pages, client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.add_signers(["Ann", "Bob"])
    number = client.create_whitelist_request(WhitelistRequest(**FIELDS))
    sandbox.control.sign_whitelist_requests([number])
    text = text_of(pages.get(f"{ROOT}/{number}"))
    assert "In effect" in text
    assert "not checked" in text
    assert NOT_PINNED in text


def test_verified_by_pinned_keys(
    pages: Pages, client: CustodyClient, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_signers(["Ann", "Bob"])
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    numbers = [client.create_whitelist_request(WhitelistRequest(**FIELDS)) for _ in range(2)]
    sandbox.control.sign_whitelist_requests(numbers)
    sandbox.control.change_whitelist_request(numbers[1], address=address(9))
    assert "In effect Verified" in text_of(pages.get(f"{ROOT}/{numbers[0]}"))
    assert "In effect, not verified" in text_of(pages.get(f"{ROOT}/{numbers[1]}"))


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        ("4711", 404, "no whitelisting request with this id"),
        ("abc", 404, "is a whole number"),
        ("9" * 30, 404, "is a whole number"),
        ("..%2f..%2fhealth", 404, ""),
        ("%3Cscript%3E", 404, "is a whole number"),
    ],
)
def test_an_id_that_is_none(pages: Pages, sandbox: Sandbox, number: str, status: int, words: str) -> None:
    response = pages.get(f"{ROOT}/{number}")
    assert response.status_code == status
    assert words in text_of(response)
    assert "<script" not in response.text


def test_a_404_of_a_gateway_is_not_taken_for_the_services_own(pages: Pages, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", method="GET", status=404, body="<h1>nginx</h1>", times=None)
    response = pages.get(f"{ROOT}/4711")
    assert response.status_code == 200
    assert "is not the custody service" in text_of(response)
    assert "<h1>nginx" not in response.text


@pytest.mark.parametrize(("user", "status"), [(None, 401), ("vera", 404), ("ulf", 404), ("olga", 200), ("adam", 200)])
@pytest.mark.parametrize("path", [f"{ROOT}/3711", f"{ROOT}?ids=3711"])
def test_who_may_see_it(pages: Pages, client: CustodyClient, user: str | None, status: int, path: str) -> None:
    client.create_whitelist_request(WhitelistRequest(**FIELDS))
    response = pages.get(path, user)
    assert response.status_code == status
    assert (address(1) in response.text) is (status == 200)


def test_a_connection_whose_id_has_slashes(pages: Pages, sandbox: Sandbox, client: CustodyClient) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    number = client.create_whitelist_request(WhitelistRequest(**FIELDS))
    with create_session() as session:
        session.add(
            Connection(
                "team/a#1", conn_type="custody", host=sandbox.url, password=sandbox.token, extra={"max_retries": 0}
            )
        )
    try:
        for path in (f"requests/{number}", f"requests?ids={number}"):
            response = pages.get(f"/custody/connections/team%2Fa%231/{path}")
            assert response.status_code == 200, response.text
            assert address(1) in response.text
            assert 'href="/custody/connections/team%2Fa%231"' in response.text
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "team/a#1").delete()


class TestSeveralRequests:
    def test_shows_them(self, pages: Pages, client: CustodyClient) -> None:
        made = [
            client.create_whitelist_request(
                WhitelistRequest(**FIELDS | {"label": HOSTILE.replace("\u202e", ".").replace("\u200b", "")})
            )
            for _ in range(3)
        ]
        response = pages.get(f"{ROOT}?ids={','.join(made)},999&total=250")
        text = text_of(response)
        assert response.status_code == 200
        assert "The first 4 of 250 are shown" in text
        assert "The service does not list it" in text
        assert "<script" not in response.text
        for number in made:
            assert f'href="{ROOT}/{number}"' in response.text
        assert f'href="{ROOT}?ids={",".join(made)},999&amp;total=250"' in response.text

    @pytest.mark.parametrize("ids", ["", "x", "1,,2", "1,-2", ",".join(map(str, range(101)))])
    def test_what_are_no_ids(self, pages: Pages, sandbox: Sandbox, ids: str) -> None:
        sandbox.control.clear_request_log()
        response = pages.get(f"{ROOT}?ids={ids}&total=x")
        assert response.status_code == 404
        assert "whole numbers" in text_of(response)
        assert sandbox.control.request_log() == []
