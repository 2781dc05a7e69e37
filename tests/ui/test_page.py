"""The page in a browser: what a person sees, and what the browser says of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from page_services import HOSTILE_LABELS, SERVICES
from page_visitor import SMALL, Visitor, find_violations, settled
from playwright.sync_api import expect

Visit = Callable[..., Visitor]
#: The connections, with those whose service answers first.
CONNECTIONS = (*SERVICES, "custody_unreachable")
_ROW = "table tbody tr"


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
        visitor.take_picture("custody-treasury")

    def test_somebody_who_may_not_see_connections_sees_none(self, visit: Visit) -> None:
        page = visit("viewer").open("/")
        expect(page.get_by_text("There is no connection of type Custody that you may see.")).to_be_visible()
        assert not page.locator("article").count()

    def test_somebody_who_is_not_signed_in_is_told_so(self, visit: Visit) -> None:
        page = visit(None).open("/")
        expect(page.get_by_role("heading", name="Not signed in")).to_be_visible()


class TestOneService:
    def test_has_one_card_with_its_connections(self, visit: Visit) -> None:
        page = settled(visit(), "/")
        link = page.get_by_role("link", name="custody_treasury", exact=True)
        card = page.locator("article").filter(has=link)
        rows = [" ".join(each.split()) for each in card.locator(".connections tbody tr").all_inner_texts()]
        assert [each.split()[:3] for each in rows] == [
            ["custody_treasury", "Signed", "in"],
            ["custody_treasury_auditor", "Signed", "in"],
            ["custody_treasury_signer", "Signed", "in"],
            ["custody_treasury_expired", "Not", "read"],
        ]
        assert "alice@example.test TPUser, WhitelistedAddressApprover 3 requests" in rows[2]
        assert card.get_by_text("1 of 2 delivering").count() == 1

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
            ("custody_unreachable", "cannot be reached"),
            ("custody_unresponsive", "no complete response|has not responded"),
        ],
    )
    def test_is_said_at_the_top(self, visit: Visit, conn_id: str, words: str) -> None:
        visitor = visit()
        page = settled(visitor, f"/connections/{conn_id}")
        verdict = page.locator(".verdict")
        expect(verdict).to_be_in_viewport()
        assert re.search(words, page.locator("article").inner_text()[:600], re.IGNORECASE)

    def test_a_service_that_hangs_hides_no_other(self, visit: Visit) -> None:
        page = settled(visit(), "/")
        for conn_id in CONNECTIONS:
            expect(page.get_by_role("link", name=conn_id, exact=True)).to_be_visible()
        expect(page.get_by_text("Supplier Bremen").first).to_be_visible()

    def test_the_page_comes_at_once_though_a_service_hangs(self, visit: Visit) -> None:
        visitor = visit()
        began = time.monotonic()
        visitor.open("/")
        assert time.monotonic() - began < 20

    def test_200_requests_are_listed(self, visit: Visit) -> None:
        visitor = visit()
        page = settled(visitor, "/connections/custody_busy")
        expect(page.get_by_text("Supplier 199", exact=True)).to_be_visible()
        assert page.locator(_ROW).filter(has_text="Supplier ").count() == 200


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
        if is_dark:
            visitor.take_picture("page-in-airflow-dark")

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
