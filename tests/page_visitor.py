"""A user in front of a browser, and what there is to see."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page

#: Where the pictures go that the docs show.
PICTURES = Path(os.environ.get("PICTURES") or ".ui/pictures").resolve()
_AXE = Path(os.environ.get("AXE_CORE") or ".ui/node_modules/axe-core/axe.min.js")


@dataclass
class Visitor:
    """A user with a browser window of its own, and what the browser complained of."""

    context: BrowserContext
    page: Page
    complaints: list[str]
    url: str

    def open(self, path: str) -> Page:
        """Open a page of the plugin."""
        self.page.goto(f"{self.url}/custody{path}")
        return self.page

    def take_picture(self, name: str, *, full_page: bool = False) -> None:
        """Take a picture for the docs."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=full_page)


@dataclass(frozen=True)
class CreatedRequests:
    """
    The requests that tasks have created.

    :param run: path of the run in Airflow's UI.
    :param signed: id of the one that took effect.
    :param changed: id of the one that the service changed.
    """

    run: str
    signed: str
    changed: str


def settled(visitor: Visitor, path: str) -> Page:
    """Open a page again and again until no service is still being read."""
    deadline = time.monotonic() + 30
    while True:
        page = visitor.open(path)
        if "has not responded yet" not in page.inner_text("main") or time.monotonic() > deadline:
            return page


def find_violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong with a page, if it is serious."""
    page.evaluate(_AXE.read_text())
    found: dict[str, Any] = page.evaluate("axe.run()")
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
