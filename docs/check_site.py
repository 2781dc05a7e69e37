"""
Check the built documentation: ``python docs/check_site.py FOLDER``.

Every link within the site leads to a page, file and anchor that is there. Every page is reached from ``index.html``.
Nothing is loaded from another host: only what a person clicks leads there. A search finds HTTP statuses.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: The attributes that a browser loads something from; a link is not one of them.
_LOADED = {
    "audio": ("src",),
    "embed": ("src",),
    "form": ("action",),
    "iframe": ("src",),
    "image": ("href", "xlink:href"),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "use": ("href", "xlink:href"),
    "video": ("src", "poster"),
}
#: What a ``link`` element only tells, and nobody loads.
_TOLD = {"author", "canonical", "index", "license", "next", "prev", "search", "top"}
_CSS_URL = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
#: What people search for, and a search index leaves out unless it is an entry of the index: HTTP statuses.
SEARCHED = ("400", "401", "403", "404", "409", "429", "500")
#: What a link may lead to outside of the site.
_ELSEWHERE = ("http", "https", "mailto")


@dataclass
class Page:
    """
    A page.

    :param links: where a person can go from it.
    :param loaded: what a browser loads with it.
    :param anchors: the places in it that a link can lead to.
    """

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.page.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        self.page.loaded += _css_urls(values.get("style", ""))
        self._in_style = tag == "style"
        if tag in ("a", "area") and "href" in values:
            self.page.links.append(values["href"])
        if tag == "link" and set(values.get("rel", "").split()) & _TOLD:
            return
        for name in _LOADED.get(tag, ()):
            if name == "srcset":
                self.page.loaded += [each.split()[0] for each in values.get(name, "").split(",") if each.strip()]
            elif values.get(name):
                self.page.loaded.append(values[name])

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.page.loaded += _css_urls(data)


def _css_urls(text: str) -> list[str]:
    return [first or second for first, second in _CSS_URL.findall(text)]


def read_page(text: str) -> Page:
    """Return what a page has."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def find_faults(folder: Path) -> list[str]:
    """
    Return what is wrong with a site, sorted; each fault names its page.

    :param folder: the folder of the site, with ``index.html``.
    """
    pages = {
        path.relative_to(folder).as_posix(): read_page(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
        # What a theme brings there are no pages.
        if path.relative_to(folder).parts[0] != "_static"
    }
    faults = [f"{name}: {fault}" for name, page in pages.items() for fault in _faults(folder, pages, name, page)]
    for path in folder.rglob("*.css"):
        name = path.relative_to(folder).as_posix()
        faults += [
            f"{name}: {fault}" for each in _css_urls(path.read_text()) for fault in _load_faults(folder, name, each)
        ]
    search = folder / "searchindex.js"
    entries = _index_entries(search.read_text(encoding="utf-8")) if search.is_file() else set(SEARCHED)
    faults += [f"searchindex.js: a search for {each} finds nothing" for each in SEARCHED if each not in entries]
    unreached = set(pages) - _reached(pages) - {"genindex.html", "search.html"}
    return sorted(set(faults) | {f"{name}: no link leads here from index.html" for name in unreached})


def _index_entries(text: str) -> set[str]:
    """Return the entries of the index in Sphinx's search index, which is one object in JSON, in a call."""
    found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return set(found.get("indexentries", ()))


def _faults(folder: Path, pages: dict[str, Page], name: str, page: Page) -> Iterator[str]:
    for url in page.loaded:
        yield from _load_faults(folder, name, url)
    for url in page.links:
        if urlsplit(url).scheme in _ELSEWHERE:
            continue
        target = _target(name, url)
        if target is None or not (folder / target[0]).is_file():
            yield f"{url}: there is no such file in the site"
        elif target[1] and target[0] in pages and target[1] not in pages[target[0]].anchors:
            yield f"{url}: the page has no such anchor"


def _load_faults(folder: Path, name: str, url: str) -> Iterator[str]:
    target = _target(name, url)
    if target is None and urlsplit(url).scheme != "data":
        yield f"{url}: is loaded from outside of the site"
    elif target is not None and not (folder / target[0]).is_file():
        yield f"{url}: there is no such file in the site"


def _target(name: str, url: str) -> tuple[str, str] | None:
    """Return the path and the anchor that a URL on a page leads to; None: it leads out of the site."""
    parts = urlsplit(url)
    if parts.scheme or parts.netloc or parts.path.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
    if path.split("/")[0] == "..":
        return None
    return ("index.html" if path == "." else path), unquote(parts.fragment)


def _reached(pages: dict[str, Page]) -> set[str]:
    """Return the pages to which links lead from the first one."""
    reached: set[str] = set()
    pending = ["index.html"]
    while pending:
        name = pending.pop()
        if name in reached or name not in pages:
            continue
        reached.add(name)
        targets = (_target(name, url) for url in pages[name].links)
        pending += [target[0] for target in targets if target is not None]
    return reached


def main(arguments: list[str]) -> int:
    """Check a site, print what is wrong, and return the exit code."""
    folder = Path(arguments[0])
    if not (folder / "index.html").is_file():
        print(f"{folder} has no index.html: build the documentation first", file=sys.stderr)
        return 1
    faults = find_faults(folder)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
