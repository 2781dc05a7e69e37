"""Everything that the pages tell a reader to do works as printed: code, commands and links."""

from __future__ import annotations

import ast
import itertools
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from airflow.providers.common.compat.sdk import DAG
from documented import FLOORS, on_floor
from lowest import read_project
from packaging.requirements import Requirement

from airflow_custody.cli.main import make_parser
from airflow_custody.client.whitelist.files.reading import read_whitelist_file
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.metrics import METRICS
from airflow_custody.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Its code is run by a test of its own.
_PATTERN = "at-most-once.md"
#: Made of the code.
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
#: What is counted, and read first.
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if page not in REFERENCE)]
#: Their code makes DAGs. That of ``running.md`` sets pytest and Kubernetes up, and other tests run it.
WITH_DAGS = [page for page in PAGES if "```python" in page.read_text() and page.name not in ("running.md", _PATTERN)]
ALL = [*PAGES, *REFERENCE, *sorted(ROOT.glob("[CS]*.md"))]
#: Tests run these files.
SOURCES = [
    path.read_text().splitlines()
    for pattern in ("example_dags/*.*", "docs/snippets/*.*", "demo/*.*")
    for path in sorted(ROOT.glob(pattern))
]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r'\]\((?![a-z]+:)([^)\s#]*)(?:#([^)\s]*))?(?:\s+"([^"]*)")?\)')
_IMPORTS = (ast.Import, ast.ImportFrom)
GUIDES = sorted((DOCS / "how-to").glob("*.md"))
#: The line at the top of a guide; its last part only if the page has code in Python.
_BEFORE_YOU_START = re.compile(
    r"^\*\*Before you start\.\*\* Connection: [^:]+\. Roles: .+\. Keys: .+\. Airflow: .+?\.(?: Code: (?P<code>.+)\.)?$"
)
#: Blocks that do not go on with the DAG of those before them.
_BEGINS_A_DAG = {("one-request.md", 1)}


def names(pages: list[Path]) -> list[str]:
    return [page.relative_to(ROOT).as_posix() for page in pages]


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return [textwrap.dedent(text) for _, found, text in _BLOCK.findall(page.read_text()) if found == language]


def prose(page: Path) -> str:
    """Return a page without its code."""
    return re.sub(r"`[^`\n]+`", "`code`", _BLOCK.sub("", page.read_text()))


def commands(beginning: str) -> Iterator[str]:
    """Yield the commands of shell blocks that begin with a text."""
    for block in (block for page in PAGES for block in blocks(page, "bash")):
        command = ""
        for line in block.replace("\\\n", "").splitlines():
            command += line
            # A quoted value may have several lines.
            if command.count("'") % 2 == 0:
                yield from [command] if command.startswith(beginning) else []
                command = ""


def is_in_a_file(block: str) -> bool:
    """Tell whether a block is a run of whole lines of a file, whatever their indentation there."""
    lines = block.rstrip("\n").splitlines()
    return any(
        textwrap.dedent("\n".join(source[start : start + len(lines)])).splitlines() == lines
        for source in SOURCES
        for start in range(len(source) - len(lines) + 1)
    )


def statements(block: str) -> list[str]:
    """Return the statements of a block, without its imports."""
    found = [each for each in ast.parse(block).body if not isinstance(each, _IMPORTS)]
    return [str(ast.get_source_segment(block, each)) for each in found]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_code_is_code_that_tests_run(page: Path, tmp_path: Path) -> None:
    code = [each for block in blocks(page, "python") for each in statements(block) if page.name != _PATTERN]
    assert [each for each in code if not is_in_a_file(each)] == []
    for block in blocks(page, "yaml") + blocks(page, "json"):
        # JSON is YAML. A whitelist must be one, whether or not a file has it.
        if "addresses" in yaml.safe_load(block):
            (tmp_path / "whitelist.yaml").write_text(block)
            assert read_whitelist_file(tmp_path / "whitelist.yaml")


@pytest.mark.parametrize("page", WITH_DAGS, ids=names(WITH_DAGS))
def test_a_block_can_be_copied_as_a_whole(page: Path) -> None:
    """The block imports the names that it uses. Otherwise, it needs at most the tasks of the blocks before it."""
    made: dict[str, Any] = {}
    dag = DAG("guide", schedule=None)
    for number, block in enumerate(blocks(page, "python")):
        if (page.name, number) in _BEGINS_A_DAG:
            dag = DAG("guide", schedule=None)
        with dag:
            after = dict(made)
            exec(compile(block, f"{page.name}, block {number}", "exec"), after)
        nodes = [each for each in ast.walk(ast.parse(block)) if isinstance(each, _IMPORTS)]
        imported = {alias.name for node in nodes for alias in node.names}
        made = {name: value for name, value in after.items() if name not in {"__builtins__", *imported}}


@pytest.mark.parametrize("page", GUIDES, ids=names(GUIDES))
def test_a_guide_begins_with_what_it_needs(page: Path) -> None:
    top = page.read_text().partition("\n## ")[0].split("\n\n")
    (found,) = [each for each in (_BEFORE_YOU_START.match(" ".join(part.split())) for part in top) if each]
    code = blocks(page, "python")
    assert bool(found["code"]) == bool(code)
    if any("with DAG(" in each for each in code):
        assert "whole file" in found["code"]
    if not all("with DAG(" in each for each in code):
        assert "into a `with DAG`" in found["code"] or "above a `with DAG`" in found["code"]


@pytest.mark.parametrize("page", WITH_DAGS, ids=names(WITH_DAGS))
def test_a_block_with_a_dag_is_a_whole_file(page: Path) -> None:
    for number, block in enumerate(each for each in blocks(page, "python") if "with DAG(" in each):
        made: dict[str, Any] = {}
        exec(compile(block, f"{page.name}, block {number}", "exec"), made)
        assert [each for each in made.values() if isinstance(each, DAG)], block


@pytest.mark.parametrize("page", ALL, ids=names(ALL))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor, title in _LINK.findall(prose(page)):
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"
        if target.suffix == ".py" and title:
            assert re.search(rf"^ *(?:async )?(?:def|class) {title}\b", target.read_text(), re.MULTILINE), title


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Git hosts and the site make them."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_reference_lists_everything_in_the_package() -> None:
    row = r"^\| \[(\w+)\]\(\S+?\) \| `(\S+)` \| .+? \|$"
    index = (DOCS / "reference" / "README.md").read_text()
    listed = {f"{module}.{name}" for name, module in re.findall(row, index, re.MULTILINE)}
    assert {each for floor in FLOORS for each in on_floor(floor)} <= listed


def test_the_page_lists_the_declared_dependencies() -> None:
    text = (DOCS / "compatibility.md").read_text()
    table = text.partition("## What it depends on")[2].partition("\n## ")[0]
    declared = [Requirement(each).name for each in read_project()["dependencies"]]
    assert sorted(re.findall("^\\| `(.+?)`", table, re.MULTILINE)) == sorted(declared)


@pytest.mark.parametrize("command", sorted({*commands("custody ")}))
def test_commands_exist(command: str) -> None:
    words = shlex.split(re.split(r"\s[|>#]", command)[0], comments=True)
    make_parser().parse_args(words[1:])


def test_make_has_the_targets_that_are_named() -> None:
    makefile = (ROOT / "Makefile").read_text()
    named = {target for page in ALL for target in re.findall(r"`make ([a-z0-9-]+)", page.read_text())}
    assert {target for target in named if not re.search(rf"^{target}:", makefile, re.MULTILINE)} == set()


def test_the_sandbox_takes_what_is_sent() -> None:
    sent = list(dict.fromkeys(commands("curl ")))
    assert sent
    ((header,),) = (shlex.split(each.removeprefix("JSON=")) for each in commands("JSON="))
    with Sandbox() as sandbox:
        sandbox.control.add_signers(["alice", "bob"])
        rows = [{"label": "Treasury", "address": "0x" + "1" * 40, "blockchain": "ETH"}]
        assert sandbox.control.add_whitelist_requests(rows, signed=True) == ["3711"]
        for command in sent:
            words = shlex.split(command.replace("$SANDBOX", sandbox.url).replace("$JSON", header))[1:]
            url = next(word for word in words if word.startswith(sandbox.url))
            values = dict(itertools.pairwise(words))
            name, _, value = values["-H"].partition(": ")
            response = requests.post(url, data=values["-d"], headers={name: value}, timeout=60)
            assert response.ok, (command, response.text)


def test_a_file_with_keys_is_for_its_owner_only() -> None:
    found = [command for command in [*commands("python"), *commands("(")] if "--with-signers |" in command]
    assert found
    assert {*found} == {"(umask 077; python -m airflow_custody.sandbox --with-signers | tee sandbox.env)"}


def test_connections_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {*get_provider_info()["connection-types"][0]["conn-fields"]}
    found = [*commands("export AIRFLOW_CONN_CUSTODY_DEFAULT=")]
    assert found
    for command in found:
        name, _, value = shlex.split(command)[1].partition("=")
        monkeypatch.setenv(name, value)
        connection = CustodyHook().get_connection("custody_default")
        assert connection.host == "https://custody.example.com"
        assert connection.extra_dejson.keys() <= known, command


def test_alerts_are_on_metrics_that_there_are() -> None:
    known = {f"airflow_{each.name.replace('.', '_')}": {*each.tags} for each in METRICS}
    (group,) = yaml.safe_load((DOCS / "snippets" / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]:
        found = re.findall(r"(airflow_\w+)(?:\{(\w+))?", rule["expr"])
        assert found, rule
        assert [(name, label) for name, label in found if label not in {"", *known[name]}] == []
