"""The check of the built documentation finds what is broken, and only that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from check_site import SEARCHED, find_faults, main

PAGE = "<html><head><link rel=stylesheet href='{up}style.css'></head><body id=top>{body}</body></html>"


def site(folder: Path, **bodies: str) -> Path:
    """Make a site: its first page, and ``inner/page.html``, to which a link leads."""
    (folder / "inner").mkdir()
    (folder / "style.css").write_text(
        "@font-face { src: url('font.woff2') } p { background: url(data:image/png;base64,A) }"
    )
    (folder / "font.woff2").touch()
    (folder / "index.html").write_text(
        PAGE.format(up="", body=f"<a href='inner/page.html#place'>x</a>{bodies.get('index', '')}")
    )
    (folder / "inner" / "page.html").write_text(PAGE.format(up="../", body=f"<p id=place>{bodies.get('page', '')}</p>"))
    return folder


@pytest.mark.parametrize(
    "body",
    [
        "<a href='#place'>x</a>",
        "<a href='../index.html?a=1#top'>x</a>",
        "<a href=''>x</a>",
        "<a href='https://example.com/no#where'>x</a>",
        "<a href='mailto:a@example.com'>x</a>",
        "<link rel='canonical' href='https://example.com/'>",
        "<img src='data:image/png;base64,A'>",
        "<p style='background: url(../font.woff2)'>",
    ],
)
def test_a_sound_site_has_no_faults(tmp_path: Path, body: str) -> None:
    assert find_faults(site(tmp_path, page=body)) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("<a href='gone.html'>x</a>", "gone.html: there is no such file in the site"),
        ("<a href='../../check_site.html'>x</a>", "../../check_site.html: there is no such file in the site"),
        ("<a href='/index.html'>x</a>", "/index.html: there is no such file in the site"),
        ("<a href='file:///etc/hosts'>x</a>", "file:///etc/hosts: there is no such file in the site"),
        ("<a href='#gone'>x</a>", "#gone: the page has no such anchor"),
        ("<a href='../index.html#gone'>x</a>", "../index.html#gone: the page has no such anchor"),
        ("<img src='gone.png'>", "gone.png: there is no such file in the site"),
        (
            "<script src='https://cdn.example.com/a.js'></script>",
            "https://cdn.example.com/a.js: is loaded from outside",
        ),
        ("<script src='//cdn.example.com/a.js'></script>", "//cdn.example.com/a.js: is loaded from outside"),
        ("<link rel='preconnect' href='https://fonts.example.com'>", "https://fonts.example.com: is loaded from"),
        ("<img srcset='../font.woff2 1x, http://example.com/b.png 2x'>", "http://example.com/b.png: is loaded from"),
        ("<style>@import 'https://example.com/a.css';</style>", "https://example.com/a.css: is loaded from"),
        ("<p style='background: url(https://example.com/a.png)'>", "https://example.com/a.png: is loaded from"),
    ],
)
def test_what_is_broken_is_found(tmp_path: Path, body: str, fault: str) -> None:
    (found,) = find_faults(site(tmp_path, page=body))
    assert found.startswith(f"inner/page.html: {fault}")


def test_a_style_sheet_loads_nothing_from_outside(tmp_path: Path) -> None:
    (site(tmp_path) / "inner" / "more.css").write_text(
        "p { src: url(//example.com/a.woff2) } q { src: url(gone.woff2) }"
    )
    assert find_faults(tmp_path) == [
        "inner/more.css: //example.com/a.woff2: is loaded from outside of the site",
        "inner/more.css: gone.woff2: there is no such file in the site",
    ]


def test_every_page_is_reached_from_the_first(tmp_path: Path) -> None:
    (site(tmp_path) / "alone.html").write_text("<a href='index.html'>x</a><a href='other.html'>x</a>")
    (tmp_path / "other.html").write_text("<a href='alone.html'>x</a>")
    assert [each.split(":")[0] for each in find_faults(tmp_path)] == ["alone.html", "other.html"]


def test_what_a_theme_brings_is_no_page(tmp_path: Path) -> None:
    (site(tmp_path) / "_static").mkdir()
    (tmp_path / "_static" / "template.html").write_text("<script src='{{ pathto(1) }}'></script>")
    assert find_faults(tmp_path) == []


def test_it_ends_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "build the documentation first" in capsys.readouterr().err
    assert main([str(site(tmp_path))]) == 0
    (tmp_path / "font.woff2").unlink()
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == "style.css: font.woff2: there is no such file in the site\n"


def test_a_search_for_a_status_must_find_something(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>429</p>")
    index = tmp_path / "searchindex.js"
    entries: dict[str, list[object]] = {each: [[0, "x", True]] for each in SEARCHED}
    index.write_text(f"Search.setIndex({json.dumps({'indexentries': entries})})")
    assert find_faults(tmp_path) == []
    del entries["429"]
    index.write_text(f"Search.setIndex({json.dumps({'indexentries': entries, 'terms': {'wait': 0}})})")
    assert find_faults(tmp_path) == ["searchindex.js: a search for 429 finds nothing"]
