"""A browser window of one user: open pages, take pictures, find accessibility problems."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ElementHandle, FloatRect, Frame, Locator, Page
from support.browser.picture_words import FOLDER, find_outdated, record, steady

#: Folder for new pictures. If it is the one of the docs, the texts of the pictures are recorded, too.
PICTURES = Path(os.environ.get("PICTURES") or ".ui/pictures").resolve()
#: Size of a window whose picture is still readable in the docs.
SMALL = {"width": 1120, "height": 560}
#: Margin around an element in its picture, in pixels.
MARGIN = 8
_STILL = """
    document.getAnimations().every(each =>
        each.playState !== 'running' || !each.effect.target.checkVisibility({visibilityProperty: true}))
"""
# The visible texts of a document, and the values of its fields, each with its box in the window. A text behind a dialog
# is not visible.
_TEXTS = """
    () => {
        const found = []
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
        while (walker.nextNode()) {
            const node = walker.currentNode, range = document.createRange()
            range.selectNodeContents(node)
            const isHidden = !node.parentElement.checkVisibility({visibilityProperty: true, opacityProperty: true})
            if (!isHidden && node.textContent.trim()) {
                found.push([node.textContent, range.getBoundingClientRect(), node.parentElement])
            }
        }
        for (const each of document.querySelectorAll('input, textarea')) {
            const isText = !['checkbox', 'radio', 'hidden', 'password'].includes(each.type)
            const text = isText && each.value || each.placeholder
            if (text && each.checkVisibility()) found.push([text, each.getBoundingClientRect(), each])
        }
        const isVisible = ([text, box, element]) => {
            const front = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2)
            return box.width && box.height && (!front || front.contains(element) || element.contains(front))
        }
        return found.filter(isVisible).map(([text, box]) => [text, box.left, box.top, box.right, box.bottom])
    }
"""
_AXE = Path(os.environ.get("AXE_CORE") or ".ui/node_modules/axe-core/axe.min.js")


@dataclass
class Visitor:
    """A user with a separate browser window, and the browser's complaints."""

    context: BrowserContext
    page: Page
    complaints: list[str]
    url: str

    def open(self, path: str) -> Page:
        """Open a page of the plugin."""
        self.page.goto(f"{self.url}/custody{path}")
        return self.page

    def open_graph(self, dag_id: str, path: str) -> Locator:
        """Open the graph of a DAG or of a run, with the assets that it waits for and that it updates."""
        for name, value in (("default_dag_view", "graph"), (f"dependencies-{dag_id}", "immediate")):
            self.page.add_init_script(f"localStorage.setItem('{name}', '\"{value}\"')")
        self.page.goto(f"{self.url}{path}")
        return self.page.locator(".react-flow")

    def take_picture(
        self, name: str, *, first: Locator | None = None, last: Locator | None = None, around: Locator | None = None
    ) -> None:
        """
        Take a picture of the window, or of a part of the page. A picture in the docs of the same name must not have a
        text that is no longer visible.

        :param name: the picture's file name, without the ending.
        :param first: element at the top of the picture. Default: the top of the page.
        :param last: element at the bottom of the picture. It may be below the visible part of the page.
        :param around: elements to show: all that match.
        """
        # Wait for animations: elements that move into place, and spinners that show that something is loading.
        self.page.wait_for_function(_STILL, timeout=120_000)
        path = PICTURES / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        clip = self._part(first, last) if first or last else _around(around) if around else None
        texts = self._texts(clip)
        self.page.screenshot(path=path, full_page=clip is not None, clip=clip)
        if PICTURES == FOLDER:
            record(name, texts)
        outdated = [text for origin in texts for text in find_outdated(name, origin, texts[origin])]
        assert outdated == [], f"{name}.png in the docs shows texts that are no longer there: run make pictures"

    def _texts(self, clip: FloatRect | None) -> dict[str, list[str]]:
        """Return the texts in a part of the page, by their origin. A text that is cut off does not count."""
        size = self.page.viewport_size
        assert size is not None
        top = self.page.evaluate("window.scrollY")
        part = clip or {"x": 0, "y": top, "width": size["width"], "height": size["height"]}
        found: dict[str, list[str]] = {"custody": [], "airflow": []}
        for frame in self.page.frames:
            origin = "custody" if frame.url.startswith(f"{self.url}/custody/") else "airflow"
            for text in _texts_inside(frame, part, top):
                if text not in found[origin]:
                    found[origin].append(text)
        return found

    def _part(self, first: Locator | None, last: Locator | None) -> FloatRect:
        """Return the part of the page from the top of one element to the bottom of another one."""
        width, height, scrolled = self.page.evaluate(
            "(e => [e.clientWidth, e.scrollHeight, window.scrollY])(document.documentElement)"
        )
        top = _box(first)["y"] + scrolled - MARGIN if first else 0
        below = _box(last) if last else None
        bottom = below["y"] + below["height"] + scrolled + MARGIN if below else height
        return {"x": 0, "y": max(top, 0), "width": width, "height": min(bottom, height) - max(top, 0)}


def _texts_inside(frame: Frame, part: FloatRect, scrolled: int) -> list[str]:
    """Return the texts of a frame that lie inside a part of the page."""
    offset = _box(frame.frame_element()) if frame.parent_frame else {"x": 0, "y": 0}
    x, y = offset["x"], offset["y"] + scrolled
    return [
        steady(text)
        for text, left, top, right, bottom in frame.evaluate(_TEXTS)
        if part["x"] <= left + x
        and right + x <= part["x"] + part["width"]
        and part["y"] <= top + y
        and bottom + y <= part["y"] + part["height"]
    ]


def _around(elements: Locator) -> FloatRect:
    """Return the part of the page that contains all of the elements."""
    boxes = [box for each in elements.all() if (box := each.bounding_box())]
    left, top = (min(box[side] for box in boxes) - MARGIN for side in ("x", "y"))
    right = max(box["x"] + box["width"] for box in boxes) + MARGIN
    bottom = max(box["y"] + box["height"] for box in boxes) + MARGIN
    return {"x": left, "y": top, "width": right - left, "height": bottom - top}


def _box(element: Locator | ElementHandle) -> FloatRect:
    """Return the position and size of an element in the window."""
    box = element.bounding_box()
    assert box is not None, f"not visible: {element}"
    return box


@dataclass(frozen=True)
class CreatedRequests:
    """
    The requests that tasks have created.

    :param run: path of the run in Airflow's UI.
    :param signed: id of the request that took effect.
    :param changed: id of the request that the service changed.
    """

    run: str
    signed: str
    changed: str


def settled(visitor: Visitor, path: str) -> Page:
    """Open a page again and again until no service is still being read."""
    deadline = time.monotonic() + 300
    while True:
        page = visitor.open(path)
        if "has not responded yet" not in page.inner_text("main") or time.monotonic() > deadline:
            return page


def find_violations(page: Page) -> list[str]:
    """Return the serious accessibility problems that axe-core finds on a page."""
    page.evaluate(_AXE.read_text())
    found: dict[str, Any] = page.evaluate("axe.run()")
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
