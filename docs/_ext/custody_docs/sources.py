"""
The roles ``source`` and ``shown``: a file of the project, or a test in it, that must exist.

``source`` shows its name; ``shown`` is a small mark after a statement, which leads to the test that shows it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from custody_docs.catalogue import ROOT

if TYPE_CHECKING:
    from docutils import nodes


def find_source(text: str, root: Path = ROOT) -> Path:
    """
    Return the file that a text names.

    :param text: a path in the project, and optionally ``::`` and the name of a function or class in it.
    :param root: the folder of the project.
    :raises ValueError: if there is no such file, or no such name in it.
    """
    name, _, member = text.partition("::")
    path = (root / name).resolve()
    if root.resolve() not in path.parents or not path.is_file():
        raise ValueError(f"the project has no file {name!r}")
    if member and not re.search(rf"^\s*(?:async )?(?:def|class) {re.escape(member)}\b", path.read_text(), re.MULTILINE):
        raise ValueError(f"{name} has no function or class {member!r}")
    return path


def line_of(text: str, path: Path) -> int | None:
    """Return the line at which a function or class begins that a text names after ``::``; None if it names none."""
    member = text.partition("::")[2]
    found = re.search(rf"^\s*(?:async )?(?:def|class) {re.escape(member)}\b", path.read_text(), re.MULTILINE)
    return path.read_text()[: found.end()].count("\n") + 1 if member and found else None


def source_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = None
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Return a link to a file of the project: to the repository if ``source_url`` is set, otherwise to a copy."""
    from docutils import nodes
    from sphinx import addnodes

    try:
        path = find_source(text)
    except ValueError as error:
        message = inliner.reporter.error(str(error), line=lineno)
        return [inliner.problematic(rawtext, rawtext, message)], [message]
    env = inliner.document.settings.env
    line = line_of(text, path)
    label: nodes.Node = nodes.literal(text, text.rpartition("::")[2])
    if name == "shown":
        where = f"{text}, line {line}" if line else text
        label = nodes.abbreviation("", "✓", explanation=f"shown by {where}", classes=["shown"])
    relative = path.relative_to(ROOT).as_posix()
    if env.config.source_url:
        # A copy has no lines that a link could lead to.
        anchor = f"#L{line}" if line else ""
        return [nodes.reference("", "", label, refuri=f"{env.config.source_url}/{relative}{anchor}")], []
    up = "../" * (env.docname.count("/") + 1)
    link = addnodes.download_reference("", "", label, reftarget=f"{up}{relative}", refdoc=env.docname)
    return [link], []
