"""The page of a request in a browser, and the way to it from the task that created the request."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from support.browser.page_visitor import SMALL, CreatedRequests, Visitor, find_violations, settled

Visit = Callable[..., Visitor]
ROOT = "/connections/custody_default/requests"


def rows_of(page: Page, table: str) -> list[str]:
    """Return the rows of a table as a reader sees them, each on one line."""
    rows = page.get_by_role("region", name=table, exact=True).locator("tbody tr").all_inner_texts()
    return [" ".join(each.split()) for each in rows]


class TestFromTheTask:
    def test_the_link_of_the_task_leads_to_its_request(self, visit: Visit, created: CreatedRequests) -> None:
        visitor = visit()
        visitor.page.goto(f"{visitor.url}{created.run}/tasks/create/mapped/0/details")
        link = visitor.page.get_by_role("link", name="Custody request")
        expect(link).to_be_visible(timeout=120_000)
        target = link.get_attribute("href") or ""
        assert target == f"{visitor.url}/plugin/custody/custody{ROOT}/{created.signed}"
        link.click()
        frame = visitor.page.frame_locator("iframe")
        heading = frame.get_by_role("heading", level=1)
        expect(heading).to_have_text(f"Whitelisting request {created.signed}", timeout=120_000)
        # From there on, too.
        frame.get_by_role("link", name="custody_default", exact=True).click()
        expect(heading).to_have_text("custody_default", timeout=120_000)
        frame.get_by_role("link", name=created.signed, exact=True).first.click()
        expect(heading).to_have_text(f"Whitelisting request {created.signed}", timeout=120_000)
        expect(visitor.page.get_by_role("link", name="Custody")).to_be_visible()


class TestWhatItShows:
    def test_of_one_in_effect(self, visit: Visit, created: CreatedRequests) -> None:
        visitor = visit(viewport=SMALL)
        page = settled(visitor, f"{ROOT}/{created.signed}")
        expect(page.locator(".verdict")).to_contain_text("In effect")
        expect(page.locator(".verdict")).to_contain_text("Verified: ")
        assert "label Supplier Lagos" in rows_of(page, "Payload")
        assert [each.split()[-1] for each in rows_of(page, "Signatures")] == ["Valid"] * 3
        trail = rows_of(page, "Trail")
        assert len(trail) >= 4
        assert all(re.match(r"(just now|\d.* ago) \d{4}-\d\d-\d\d \d\d:\d\d UTC ", each) for each in trail)
        assert visitor.complaints == []

    def test_of_one_that_the_service_changed(self, visit: Visit, created: CreatedRequests) -> None:
        page = settled(visit(), f"{ROOT}/{created.changed}")
        assert "address 0x00000000000000000000000000000000000000ff" in rows_of(page, "Payload")

    def test_the_verdict_of_its_service_leads_to_one_that_is_not_verified(self, visit: Visit) -> None:
        visitor = visit()
        page = settled(visitor, "/connections/custody_unsigned")
        page.locator(".verdict").get_by_role("link").click()
        expect(page.locator(".verdict")).to_contain_text("In effect, not verified")
        expect(page.get_by_text("Do not use this address")).to_be_visible()

    @pytest.mark.parametrize("which", ["signed", "changed", "missing"])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing_serious(self, visit: Visit, created: CreatedRequests, scheme: str, which: str) -> None:
        visitor = visit(color_scheme=scheme)
        page = settled(visitor, f"{ROOT}/{getattr(created, which, '999999')}")
        assert find_violations(page) == []

    @pytest.mark.parametrize("which", ["signed", "changed"])
    def test_a_narrow_window_scrolls_in_one_direction(self, visit: Visit, created: CreatedRequests, which: str) -> None:
        visitor = visit(viewport={"width": 360, "height": 740})
        page = settled(visitor, f"{ROOT}/{getattr(created, which)}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360

    def test_what_is_compared_by_eye_is_monospaced(self, visit: Visit, created: CreatedRequests) -> None:
        page = settled(visit(), f"{ROOT}/{created.signed}")
        for text in ("0x00000000000000000000000000000000000000c1", re.compile("^[0-9a-f]{64}$")):
            value = page.get_by_text(text).first
            assert "monospace" in value.evaluate("e => getComputedStyle(e).fontFamily")
            fits = "e => e.getBoundingClientRect().right <= e.closest('.scroll').getBoundingClientRect().right"
            assert value.evaluate(fits)
