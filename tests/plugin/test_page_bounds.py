"""What a service sends can be anything: the pages stay small, and nobody else waits for them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from airflow_pages import Pages, text_of
from airflow_runs import AIRFLOW
from connections import connection_json

from airflow_custody.overview.models import (
    CheckRow,
    GroupSignatures,
    HealthView,
    JournalView,
    Overview,
    RequestRow,
    RequestsView,
    RequestView,
    Section,
    SignatureRow,
    TrailRow,
    WebhookRow,
)
from airflow_custody.plugin.cards import Card
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins")

NOW = datetime.now(timezone.utc)
# What needs the most markup for each of its characters; and what nobody can see.
QUOTES = '"' * 4000
HIDDEN = "a\u200b" * 2000
PATHS = ((GroupSignatures(HIDDEN[:100], 1, 2),) * 10,) * 10


def row(text: str) -> RequestRow:
    return RequestRow(
        "1", text[:100], text[:100], text[:512], text[:300], NOW, NOW, PATHS, "unverified", text[:500], "pending"
    )


def overview(text: str, base_url: str = "https://hostile.example.com") -> Overview:
    """Return the largest overview that can be read."""
    word = text[:100]
    checks = (CheckRow(word, word, word, False, word, text[:800], NOW),) * 500
    return Overview(
        read_at=NOW,
        base_url=base_url,
        health=Section(HealthView(False, "", checks, (text[:800],) * 9000, 500, 500)),
        pending=Section(RequestsView((row(text),) * 200, 200)),
        recent=Section(RequestsView((row(text),) * 20, 20)),
        unknown=Section(RequestsView((row(text),) * 50, 50)),
        webhooks=Section((WebhookRow(word, word, text[:300], word, None, text[:100]),) * 200),
        journal=Section(JournalView()),
    )


def request(text: str) -> RequestView:
    """Return the largest request that can be read."""
    word = text[:100]
    return RequestView(
        row(text),
        fields=((word, text),) * 100,
        trails=(TrailRow(NOW, word, word, text[:300]),) * 200,
        signatures=(SignatureRow(word, text[:300], False, text[:300]),) * 200,
        verification=text[:1000],
    )


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("text", [QUOTES, HIDDEN], ids=["quotes", "hidden"])
def test_the_largest_that_can_be_read(pages: Pages, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("airflow_custody.overview.read_overview", lambda *_, **__: overview(text))
    monkeypatch.setattr("airflow_custody.overview.read_request", lambda *_, **__: request(text))
    for path in ("", "connections/custody_default", "connections/custody_default/requests/1"):
        page = pages.get(f"/custody/{path}")
        assert page.status_code == 200
        assert len(page.text) < 2_100_000
        assert "custody_default" in page.text or "Too large to show" in page.text
        # Only of an overview.
        assert "custody status" not in page.text or "requests" not in path


def test_one_that_is_too_large_hides_no_other(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_custody.overview import read_overview

    def read(client: Any, **options: Any) -> Overview:
        return overview(QUOTES) if client.settings.max_response_bytes == 77_777 else read_overview(client, **options)

    monkeypatch.setattr("airflow_custody.overview.read_overview", read)
    monkeypatch.setattr("airflow_custody.plugin.rendering.MAX_PAGE", 160_000)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_LARGE", connection_json(sandbox, max_response_bytes=77_777))
    page = pages.get("/custody/")
    text = text_of(page)
    assert "Trouble Whitelisting request" in text
    assert "What the service responded is too large to show. 'custody status' shows it." in text
    assert "The service is healthy: 9 of 9 checks are healthy" in text
    assert 'href="/custody/connections/custody_large"' in page.text
    assert "too large to show" in text_of(pages.get("/custody/connections/custody_large"))


def test_one_of_which_no_card_can_be_made_hides_no_other(
    pages: Pages, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_custody.plugin.cards import make_card

    def make(conn_id: str, *args: Any) -> Card:
        if conn_id == "custody_odd":
            raise OverflowError("date value out of range")
        return make_card(conn_id, *args)

    monkeypatch.setattr("airflow_custody.plugin.overview_page.make_card", make)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_ODD", connection_json(sandbox))
    page = pages.get("/custody/")
    assert page.status_code == 200
    assert text_of(page).count("Trouble Something unexpected went wrong. The log of the API server says what.") == 1
    assert text_of(page).count("9 of 9 healthy") == 1
    assert "Something unexpected" in text_of(pages.get("/custody/connections/custody_odd"))
