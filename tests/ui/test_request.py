"""The page of a request in a browser, and the link to it from the task that created the request."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from support.browser.page_visitor import SMALL, CreatedRequests, Visitor, find_violations, settled

Visit = Callable[..., Visitor]
ROOT = "/connections/custody_default/requests"


def rows_of(page: Page, table: str) -> list[str]:
    """Return the visible text of each row of a table, on one line."""
    rows = page.get_by_role("region", name=table, exact=True).locator("tbody tr").all_inner_texts()
    return [" ".join(each.split()) for each in rows]


class TestFromTheTask:
    def test_the_link_of_a_task_leads_to_its_request(self, visit: Visit, created: CreatedRequests) -> None:
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
        # Links in the frame stay in the frame.
        frame.get_by_role("link", name="custody_default", exact=True).click()
        expect(heading).to_have_text("custody_default", timeout=120_000)
        frame.get_by_role("link", name=created.signed, exact=True).first.click()
        expect(heading).to_have_text(f"Whitelisting request {created.signed}", timeout=120_000)
        expect(visitor.page.get_by_role("link", name="Custody")).to_be_visible()


class TestContents:
    def test_a_request_in_effect(self, visit: Visit, created: CreatedRequests) -> None:
        visitor = visit(viewport=SMALL)
        page = settled(visitor, f"{ROOT}/{created.signed}")
        expect(page.locator(".verdict")).to_contain_text("In effect")
        expect(page.locator(".verdict")).to_contain_text("Verified: ")
        assert "label Supplier Lagos" in rows_of(page, "Signed content")
        assert [each.endswith("Valid") for each in rows_of(page, "Signatures")] == [True] * 3
        assert len(rows_of(page, "History")) >= 4
        assert visitor.complaints == []

    def test_a_request_that_the_service_changed(self, visit: Visit, created: CreatedRequests) -> None:
        page = settled(visit(), f"{ROOT}/{created.changed}")
        assert "address 0x00000000000000000000000000000000000000ff" in rows_of(page, "Signed content")

    def test_the_verdict_on_a_service_links_to_an_unverified_request(self, visit: Visit) -> None:
        visitor = visit()
        page = settled(visitor, "/connections/custody_unsigned")
        page.locator(".verdict").get_by_role("link").click()
        expect(page.locator(".verdict")).to_contain_text("In effect, not verified")
        expect(page.get_by_text("Do not use this address until")).to_be_visible()

    @pytest.mark.parametrize("which", ["signed", "changed", "missing"])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing_serious(self, visit: Visit, created: CreatedRequests, scheme: str, which: str) -> None:
        visitor = visit(color_scheme=scheme)
        page = settled(visitor, f"{ROOT}/{getattr(created, which, '999999')}")
        assert find_violations(page) == []

    @pytest.mark.parametrize("which", ["signed", "changed"])
    @pytest.mark.parametrize("width", [360, 420, 768])
    def test_a_narrow_window_cuts_nothing_off(
        self, visit: Visit, find_cut_off: Callable[[Page], list[str]], created: CreatedRequests, width: int, which: str
    ) -> None:
        page = settled(visit(viewport={"width": width, "height": 740}), f"{ROOT}/{getattr(created, which)}")
        assert find_cut_off(page) == []
