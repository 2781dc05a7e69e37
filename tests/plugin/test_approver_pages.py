"""What the pages show by the connection of an approver: the same service, seen by a user with fewer roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from airflow_pages import Pages, serve
from airflow_runs import AIRFLOW
from connections import connection_json
from people import Person

from airflow_custody.sandbox import Sandbox

pytestmark = [
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no page, or keeps no state of tasks"),
    pytest.mark.usefixtures("connection"),
]
OF_ANN = "/custody/connections/custody_ann"
ROLES = "TPUser, WhitelistedAddressCreator, WhitelistedAddressApprover"


@pytest.fixture
def pages(airflow_db: None, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pages]:
    """Return the API server, with a connection of an approver."""
    shown = json.loads(connection_json(sandbox)) | {"password": Person(sandbox, "ann", "approvers").token}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ANN", json.dumps(shown))
    for server in serve():
        server.renew()
        yield server


def text_of(response: Any) -> str:
    """Return what a reader sees, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", response.text)).split())


def test_nothing_is_said_of_webhooks_that_the_user_may_not_see(pages: Pages, sandbox: Sandbox) -> None:
    sandbox.control.add_webhook()
    alone = text_of(pages.get(OF_ANN))
    assert "webhook" not in alone.casefold()
    assert "lacks a role" not in alone
    assert alone.count(ROLES) == 1
    assert "9 of 9 healthy" in alone


def test_a_viewer_sees_only_what_the_users_of_their_connections_see(
    pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    def only_ann(self: object, *, method: str, user: Any, details: Any = None) -> bool:
        return bool(user.username == "adam" or details.conn_id == "custody_ann")

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_connection", only_ann)
    sandbox.control.add_webhook()
    # What the admin's connection reads is cached by then.
    assert "delivering" in text_of(pages.get("/custody/", "adam"))
    text = text_of(pages.get("/custody/", "olga"))
    assert "custody_ann Signed in" in text
    assert "webhook" not in text.casefold()
    assert "custody_default" not in text


def test_both_users_have_one_card(pages: Pages, sandbox: Sandbox) -> None:
    rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in (1, 2)]
    sandbox.control.add_webhook()
    sandbox.control.add_whitelist_requests(rows, status="pending")
    page = pages.get("/custody/")
    text = text_of(page)
    assert page.text.count("<article") == page.text.count("1</b> of 1 delivering") == 1
    assert text.count("9 of 9 healthy") == text.count(f"custody_ann Signed in user-101@example.test {ROLES} ") == 1
    assert "2 requests" in text
    assert "whitelisted address" not in text
