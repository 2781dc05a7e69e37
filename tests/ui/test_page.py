"""The page in a browser: what it shows, and whether it is accessible."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from support.browser.page_services import HOSTILE_LABELS, SERVICES
from support.browser.page_visitor import SMALL, Visitor, find_violations, settled

from airflow_custody.sandbox import Sandbox

Visit = Callable[..., Visitor]
FindCutOff = Callable[[Page], list[str]]
CONNECTIONS = (*SERVICES, "custody_unreachable")
LIST = "/connections/custody_waiting/requests"
# A script that returns the number of lines of an element's text.
_LINES = """
    element => {
        const range = document.createRange()
        range.selectNodeContents(element)
        return new Set([...range.getClientRects()].map(box => box.top)).size
    }
"""


class TestInAirflow:
    @pytest.mark.picture
    def test_the_navigation_leads_to_the_page(self, visit: Visit) -> None:
        visitor = visit(viewport=SMALL)
        settled(visitor, "/")
        visitor.page.goto(visitor.url)
        visitor.page.get_by_role("link", name="Custody").click()
        frame = visitor.page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1, name="Custody")).to_be_visible(timeout=120_000)
        expect(frame.get_by_role("link", name="custody_treasury", exact=True)).to_be_visible()
        visitor.take_picture("page-in-airflow")


class TestWidths:
    @pytest.mark.parametrize("path", ["/", "/connections/custody_treasury", "/connections/custody_hostile", LIST])
    @pytest.mark.parametrize("width", [360, 390, 768, 1024, 1280])
    def test_a_narrow_window_cuts_nothing_off(
        self, visit: Visit, find_cut_off: FindCutOff, width: int, path: str
    ) -> None:
        page = settled(visit(viewport={"width": width, "height": 900}), path)
        assert find_cut_off(page) == []

    @pytest.mark.parametrize("path", ["/", "/connections/custody_treasury", LIST])
    def test_on_a_phone_no_email_address_is_broken_and_the_page_does_not_scroll_sideways(
        self, visit: Visit, path: str
    ) -> None:
        page = settled(visit(viewport={"width": 390, "height": 844}), path)
        emails = page.locator(".whole")
        assert emails.count() > 0 or path == LIST
        assert [each for each in emails.all() if each.evaluate(_LINES) != 1] == []
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    def test_a_cell_has_the_name_of_its_column_at_420_pixels(self, visit: Visit) -> None:
        page = settled(visit(viewport={"width": 420, "height": 900}), "/connections/custody_treasury")
        cell = page.get_by_role("cell", name="Supplier Bremen")
        expect(cell).to_be_visible()
        assert "Label" in cell.evaluate("cell => getComputedStyle(cell, '::before').content")


class TestProblems:
    @pytest.mark.parametrize(
        ("conn_id", "words"),
        [
            ("custody_default", "9 of 9 checks are healthy"),
            ("custody_unsigned", r"whitelisting request \d+ \(in effect\): not verified"),
            ("custody_waiting", "^Waiting 311 whitelisting requests are pending approval, the oldest for 4 d"),
            ("custody_unreachable", r"failed: unreachable\. Check the base URL"),
            ("custody_unresponsive", r"failed: no response\.|has not responded"),
        ],
    )
    def test_they_are_at_the_top(self, visit: Visit, conn_id: str, words: str) -> None:
        visitor = visit()
        page = settled(visitor, f"/connections/{conn_id}")
        verdict = page.locator(".verdict")
        expect(verdict).to_be_in_viewport()
        text = " ".join(page.locator("article").inner_text()[:600].split())
        assert re.search(words, text, re.IGNORECASE)


class TestSearch:
    def test_by_keyboard_alone(self, visit: Visit) -> None:
        visitor = visit()
        page = settled(visitor, "/connections/custody_waiting")
        page.get_by_role("searchbox", name="Id, label, address or chain").focus()
        page.keyboard.type("supplier 310")
        page.keyboard.press("Tab")
        page.keyboard.type("pending")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/requests?q=supplier+310&state=pending")
        expect(page.get_by_text("Requests 1 to 1 of 1")).to_be_visible()
        expect(page.get_by_role("cell", name="Supplier 310")).to_be_visible()
        assert visitor.complaints == []

    def test_in_airflows_frame(self, visit: Visit) -> None:
        visitor = visit(viewport=SMALL)
        settled(visitor, LIST)
        visitor.page.goto(f"{visitor.url}/plugin/custody/custody{LIST}")
        frame = visitor.page.frame_locator("iframe")
        frame.get_by_role("searchbox").fill("supplier 2")
        frame.get_by_role("button", name="Search requests").click(timeout=120_000)
        expect(frame.get_by_text("Requests 1 to 50 of 196")).to_be_visible(timeout=120_000)
        frame.get_by_role("navigation", name="Pages").get_by_role("link", name="Next").click()
        expect(frame.get_by_text("Requests 51 to 100 of 196")).to_be_visible(timeout=120_000)
        expect(frame.get_by_role("searchbox")).to_have_value("supplier 2")


def test_it_loads_itself_until_there_is_a_reading(visit: Visit, services: dict[str, Sandbox]) -> None:
    services["custody_default"].control.add_fault(path="/whitelists/addresses", delay=3)
    page = visit().open("/connections/custody_default/requests/4711")
    expect(page.get_by_text("no whitelisting request with this id")).to_be_visible(timeout=120_000)


class TestTextFromOutside:
    def test_it_is_escaped(self, visit: Visit) -> None:
        visitor = visit()
        page = settled(visitor, "/connections/custody_hostile")
        text = page.locator("main").inner_text()
        assert "<script>alert('script')</script>" in text
        assert "{{ 7 * 7 }}" in text
        invisible = {character for label in HOSTILE_LABELS for character in label if not character.isprintable()}
        assert invisible & set(text) == set()
        assert page.locator("main script, main img").count() == 0
        assert visitor.complaints == []


class TestAccessibility:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize(
        "path", ["/", *(f"/connections/{each}" for each in CONNECTIONS), "/connections/none", LIST]
    )
    def test_axe_finds_nothing_serious(self, visit: Visit, path: str, scheme: str) -> None:
        visitor = visit(color_scheme=scheme)
        assert find_violations(settled(visitor, path)) == []

    @pytest.mark.parametrize(("theme", "is_dark"), [("light", False), ("dark", True)])
    def test_in_its_frame_it_is_as_dark_as_airflow(self, visit: Visit, theme: str, is_dark: bool) -> None:
        # No preference is emulated, because it would also apply to the frame.
        visitor = visit(color_scheme="null", viewport=SMALL)
        visitor.page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
        visitor.page.goto(f"{visitor.url}/plugin/custody")
        frame = visitor.page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1, name="Custody")).to_be_visible(timeout=120_000)
        colour = frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 200) is is_dark, colour
        expect(frame.get_by_role("link", name="custody_treasury", exact=True)).to_be_visible()

    @pytest.mark.parametrize("path", ["/connections/custody_default", LIST])
    def test_the_keyboard_reaches_every_control_and_shows_where_it_is(self, visit: Visit, path: str) -> None:
        page = settled(visit(), path)
        links = page.locator("a, input, select, button, [tabindex='0']").count()
        reached = set()
        for _ in range(links):
            page.keyboard.press("Tab")
            focused = page.evaluate_handle("document.activeElement")
            markup = focused.evaluate("e => e.outerHTML.slice(0, 200)")
            assert focused.evaluate("e => getComputedStyle(e).outlineStyle") != "none", markup
            reached.add(markup)
        assert len(reached) == links

    @pytest.mark.parametrize("path", ["/", "/connections/custody_treasury", LIST])
    def test_axe_finds_nothing_serious_at_390_pixels(self, visit: Visit, path: str) -> None:
        page = settled(visit(viewport={"width": 390, "height": 844}), path)
        assert find_violations(page) == []

    def test_the_browser_has_no_complaint(self, visit: Visit) -> None:
        visitor = visit()
        for path in ("/", *(f"/connections/{each}" for each in CONNECTIONS)):
            settled(visitor, path)
        assert visitor.complaints == []
