"""The pictures of the documentation: tests take those that pages show, and no others are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from airflow_runs import AIRFLOW
from custody_docs import catalogue

ROOT = catalogue.ROOT
PICTURES = ROOT / "docs" / "images"
HELP = "take them with: make test-ui PICTURES=docs/images"


def shown() -> set[str]:
    """Return the pictures that written pages show, below the folder of pictures."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for page in pages for name in re.findall(r"\bimages/([\w/-]+\.png)", page.read_text())}


def taken() -> set[str]:
    """Return the pictures that tests in a browser take, but for graphs."""
    texts = [path.read_text() for path in (ROOT / "tests" / "ui").glob("*.py")]
    return {f"{name}.png" for text in texts for name in re.findall(r'take_picture\(\s*"([\w-]+)"', text)}


def there(folder: Path, pattern: str) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob(pattern)}


def test_pages_show_what_tests_take() -> None:
    assert shown() == taken()
    assert shown() == there(PICTURES, "*.png"), HELP


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow cannot load all examples")
def test_each_example_has_its_graph() -> None:
    graphs = [graph for example in catalogue.examples() for graph in example.graphs()]
    assert all(graph.tasks for graph in graphs)
    assert {graph.picture for graph in graphs} == there(PICTURES, "examples/*.png"), HELP
