"""The list of all requests of a connection: search, filter and pages, in Airflow's own app."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from support.airflow.airflow_runs import AIRFLOW
from support.airflow.connections import connection_json
from support.browser.airflow_pages import Pages, text_of

from airflow_custody.sandbox import Sandbox

pytestmark = [
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no pages of plugins, or no state store"),
    pytest.mark.usefixtures("connection"),
]
CONNECTION = "/custody/connections/custody_default"
ROOT = f"{CONNECTION}/requests"


def row(number: int, label: str = "", blockchain: str = "ETH") -> dict[str, str]:
    label = label or f"Supplier {number:03}"
    return {"label": label, "address": f"0x{number:040x}", "blockchain": blockchain, "network": "mainnet"}


def ids_on(page: object) -> list[str]:
    return re.findall(rf'href="{ROOT}/(\d+)"', page.text)  # type: ignore[attr-defined]


class TestManyRequests:
    @pytest.fixture(autouse=True)
    def ids(self, sandbox: Sandbox) -> list[str]:
        """Let the service have 311 pending requests, and return their ids, the newest first."""
        ids = sandbox.control.add_whitelist_requests([row(number) for number in range(311)], status="pending")
        return ids[::-1]

    def test_they_are_on_pages_of_50(self, pages: Pages, sandbox: Sandbox, ids: list[str]) -> None:
        link, found, position = ROOT, [], 0
        while link:
            page = pages.get(link)
            position += 1
            assert f"Page {position} of 7" in text_of(page)
            found += ids_on(page)
            calls = len(sandbox.control.request_log())
            links = re.findall(r'href="(\?[^"]*)">Next</a>', page.text)
            link = ROOT + unescape(links[0]) if links else ""
        assert "Requests 301 to 311 of 311" in text_of(page)
        assert found == ids
        # All pages show one reading.
        assert len(sandbox.control.request_log()) == calls

    def test_the_card_leads_to_them(self, pages: Pages) -> None:
        page = pages.get(CONNECTION)
        assert len(ids_on(page)) == 50
        assert f'<a href="{ROOT}?state=pending">Show all 311</a>' in page.text

    @pytest.mark.parametrize(
        ("number", "shown"),
        [("0", 1), ("8", 7), ("-1", 1), ("x", 1), ("9" * 30, 1), ("7", 7)],
        ids=["zero", "after the last", "negative", "no number", "huge", "last"],
    )
    def test_a_number_without_a_page(self, pages: Pages, number: str, shown: int) -> None:
        assert f"Page {shown} of 7" in text_of(pages.get(f"{ROOT}?page={number}"))

    def test_links_keep_the_search(self, pages: Pages) -> None:
        page = pages.get(f"{ROOT}?q=supplier&state=pending&page=2")
        for number in (1, 3):
            assert f'href="?q=supplier&amp;state=pending&amp;page={number}"' in page.text
        assert 'value="supplier"' in page.text
        assert '<option value="pending" selected>' in page.text
        assert f'href="{ROOT}?q=supplier&amp;state=pending&amp;page=2">Refresh' in page.text


class TestSearch:
    @pytest.fixture(autouse=True)
    def ids(self, connection: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """Let the service have a request in each state, and return their ids."""
        control = sandbox.control
        monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **control.pins()))
        effective, forged, deleted = control.add_whitelist_requests(
            [row(1, "Cold storage"), row(2, "Forged"), row(3, "Deleted")], signed=True
        )
        control.change_whitelist_request(forged, label="Forged again")
        pending, odd, unreadable = control.add_whitelist_requests(
            [row(10, "Zürich vault"), row(11, "Odd", "XRP"), row(12)], status="pending"
        )
        control.set_whitelist_status(odd, "WEIRD")
        control.set_whitelist_envelope(unreadable, trails="none")
        (rejected,) = control.add_whitelist_requests([row(13, "Cold, too")], status="rejected")
        found = {"effective": effective, "unverified": forged, "pending": pending, "unreadable": unreadable}
        return {**found, "odd": odd, "rejected": rejected, "other": deleted}

    @pytest.mark.parametrize(
        ("search", "found"),
        [
            pytest.param("cold", ["rejected", "effective"], id="label"),
            pytest.param("ZÜRICH", ["pending"], id="case"),
            pytest.param("storage cold", ["effective"], id="words"),
            pytest.param(f"0x{10:040X}", ["pending"], id="address"),
            pytest.param("xrp", ["odd"], id="chain"),
            pytest.param("nothing", [], id="nothing"),
            pytest.param("<script>", [], id="markup"),
        ],
    )
    def test_words_are_searched(self, pages: Pages, ids: dict[str, str], search: str, found: list[str]) -> None:
        page = pages.get(f"{ROOT}?{urlencode({'q': search})}")
        assert ids_on(page) == [ids[name] for name in found]
        assert ("No request matches." in text_of(page)) is (found == [])
        assert "<script" not in page.text

    def test_an_id_is_searched(self, pages: Pages, ids: dict[str, str]) -> None:
        assert ids_on(pages.get(f"{ROOT}?q={ids['pending']}")) == [ids["pending"]]

    @pytest.mark.parametrize(
        ("state", "found", "words"),
        [
            ("effective", ["other", "unverified", "effective"], "In effect Verified"),
            ("pending", ["unreadable", "pending"], "Pending approval No signatures yet"),
            ("rejected", ["rejected"], "Rejected"),
            ("unknown", ["odd"], "State unknown"),
            ("unverified", ["odd", "unverified"], "In effect, not verified"),
            ("unreadable", ["unreadable"], "Pending approval, not readable"),
        ],
    )
    def test_states_are_filtered(
        self, pages: Pages, ids: dict[str, str], state: str, found: list[str], words: str
    ) -> None:
        page = pages.get(f"{ROOT}?state={state}")
        assert ids_on(page) == [ids[name] for name in found]
        assert words in text_of(page)

    def test_a_state_that_does_not_exist_filters_nothing(self, pages: Pages, ids: dict[str, str]) -> None:
        assert len(ids_on(pages.get(f"{ROOT}?state=missing"))) == len(ids)


def test_too_many_requests_are_not_listed(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_custody.plugin.list_page.MAX_LISTED", 2)
    sandbox.control.add_whitelist_requests([row(number) for number in range(3)])
    page = pages.get(ROOT)
    assert page.status_code == 200
    assert "There are more than 2 requests, too many to read here." in text_of(page)


def test_a_service_that_cannot_be_read(pages: Pages, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("html", times=None)
    assert "These requests cannot be shown The service cannot be read: " in text_of(pages.get(ROOT))


@pytest.mark.parametrize("user", ["ulf", "vera"])
def test_who_may_not_read_the_connection_gets_no_list(pages: Pages, sandbox: Sandbox, user: str) -> None:
    sandbox.control.add_whitelist_requests([row(1)])
    # The list is cached.
    assert "Supplier 001" in pages.get(ROOT).text
    page = pages.get(f"{ROOT}?q=supplier", user)
    assert page.status_code == 404
    assert "Supplier" not in page.text
