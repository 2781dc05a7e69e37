"""The page in a browser: what a person sees, and what the browser says of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from support.browser.page_services import HOSTILE_LABELS, SERVICES
from support.browser.page_visitor import SMALL, Visitor, find_violations, settled

Visit = Callable[..., Visitor]
#: The connections, with those whose service answers first.
CONNECTIONS = (*SERVICES, "custody_unreachable")


class TestInAirflow:
    def test_the_navigation_leads_to_the_page(self, visit: Visit) -> None:
        visitor = visit(viewport=SMALL)
        settled(visitor, "/")
        visitor.page.goto(visitor.url)
        visitor.page.get_by_role("link", name="Custody").click()
        frame = visitor.page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1, name="Custody")).to_be_visible(timeout=120_000)
        expect(frame.get_by_role("link", name="custody_treasury", exact=True)).to_be_visible()
        visitor.take_picture("page-in-airflow")

    def test_a_link_in_the_frame_leads_to_a_connection(self, visit: Visit) -> None:
        visitor = visit(viewport={**SMALL, "height": 610})
        visitor.page.goto(f"{visitor.url}/plugin/custody")
        frame = visitor.page.frame_locator("iframe")
        frame.get_by_role("link", name="custody_treasury", exact=True).click()
        expect(frame.get_by_role("heading", level=1, name="custody_treasury")).to_be_visible(timeout=120_000)


class TestOneService:
    def test_what_is_in_effect_twice_leads_to_both_requests(self, visit: Visit) -> None:
        page = settled(visit(), "/connections/custody_treasury")
        finding = page.locator(".findings li").filter(has_text="are in effect for the same address")
        assert len({each.get_attribute("href") for each in finding.get_by_role("link").all()}) == 2

    def test_a_table_fits_in_a_window_of_1280_pixels(self, visit: Visit) -> None:
        page = settled(visit(), "/")
        wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length"
        assert page.evaluate(wide) == 0


class TestWhatIsWrong:
    @pytest.mark.parametrize(
        ("conn_id", "words"),
        [
            ("custody_default", "9 of 9 checks are healthy"),
            ("custody_treasury", r"\(1 of 9 checks unhealthy\): hsm / hsm-1 / vault"),
            ("custody_unsigned", r"whitelisting request \d+ \(in effect\): not verified"),
            ("custody_unreachable", r"failed: unreachable\. Check the base URL"),
            ("custody_unresponsive", r"failed: no response\.|has not responded"),
        ],
    )
    def test_is_said_at_the_top(self, visit: Visit, conn_id: str, words: str) -> None:
        visitor = visit()
        page = settled(visitor, f"/connections/{conn_id}")
        verdict = page.locator(".verdict")
        expect(verdict).to_be_in_viewport()
        assert re.search(words, page.locator("article").inner_text()[:600], re.IGNORECASE)


class TestOtherPeoplesText:
    def test_stays_text(self, visit: Visit) -> None:
        visitor = visit()
        page = settled(visitor, "/connections/custody_hostile")
        text = page.locator("main").inner_text()
        assert "<script>alert('script')</script>" in text
        assert "{{ 7 * 7 }}" in text
        for label in HOSTILE_LABELS:
            for each in label:
                assert each.isprintable() or each not in text, repr(each)
        assert page.locator("main script, main img").count() == 0
        assert visitor.complaints == []


class TestEverybodyCanReadIt:
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("path", ["/", *(f"/connections/{each}" for each in CONNECTIONS), "/connections/none"])
    def test_axe_finds_nothing_serious(self, visit: Visit, path: str, scheme: str) -> None:
        visitor = visit(color_scheme=scheme)
        assert find_violations(settled(visitor, path)) == []

    def test_dark_is_dark(self, visit: Visit) -> None:
        visitor = visit(color_scheme="dark")
        page = settled(visitor, "/")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 200, colour

    @pytest.mark.parametrize(("theme", "is_dark"), [("light", False), ("dark", True)])
    def test_in_its_frame_it_is_as_dark_as_airflow(self, visit: Visit, theme: str, is_dark: bool) -> None:
        # As a browser without any wish: one that is emulated would be that of the frame, too.
        visitor = visit(color_scheme="null", viewport=SMALL)
        visitor.page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
        visitor.page.goto(f"{visitor.url}/plugin/custody")
        frame = visitor.page.frame_locator("iframe")
        expect(frame.get_by_role("heading", level=1, name="Custody")).to_be_visible(timeout=120_000)
        colour = frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 200) is is_dark, colour
        expect(frame.get_by_role("link", name="custody_treasury", exact=True)).to_be_visible()

    def test_a_narrow_window_scrolls_in_one_direction(self, visit: Visit) -> None:
        visitor = visit(viewport={"width": 360, "height": 740})
        for path in ("/", "/connections/custody_treasury", "/connections/custody_hostile"):
            page = settled(visitor, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path

    def test_the_keyboard_reaches_every_link_and_shows_where_it_is(self, visit: Visit) -> None:
        page = settled(visit(), "/connections/custody_default")
        links = page.locator("a, [tabindex='0']").count()
        reached = set()
        for _ in range(links):
            page.keyboard.press("Tab")
            focused = page.evaluate(
                "(() => { const e = document.activeElement, s = getComputedStyle(e);"
                " return [e.outerHTML.slice(0, 200), s.outlineStyle, s.boxShadow] })()"
            )
            assert focused[1] != "none" or focused[2] != "none", focused
            reached.add(focused[0])
        assert len(reached) == links

    def test_the_browser_has_no_complaint(self, visit: Visit) -> None:
        visitor = visit()
        for path in ("/", *(f"/connections/{each}" for each in CONNECTIONS)):
            settled(visitor, path)
        assert visitor.complaints == []
