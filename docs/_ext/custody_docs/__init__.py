"""Sphinx extension: the reference and the examples, made of the code; links to the project's files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

_MARK = re.compile(r"^[ ]*# \[(?:START|END) \w+\]\n?", re.MULTILINE)

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Set the extension up; Sphinx calls this."""
    from custody_docs import pages
    from custody_docs.sources import source_role

    app.add_config_value("source_url", "", "env", types=str)
    app.add_role("source", source_role)
    app.add_role("shown", source_role)
    app.connect("config-inited", lambda app, config: pages.write(Path(app.srcdir)))
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-process-docstring", _process_docstring)
    app.connect("doctree-read", _tidy)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, text: str | None, returned: str | None
) -> tuple[str, None] | None:
    from custody_docs import docstrings

    found = docstrings.signature(obj) if what == "class" else None
    return None if found is None else (found, None)


def _process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    from custody_docs import catalogue, docstrings

    lines[:] = docstrings.complete(lines, obj, catalogue.uses())


def _tidy(app: Sphinx, doctree: nodes.document) -> None:
    """Leave out the marks of snippets; write the dash between a parameter and its text as one."""
    from docutils import nodes

    for block in doctree.findall(nodes.literal_block):
        text = _MARK.sub("", block.astext())
        if text != block.astext():
            # Both: Sphinx colours only what stands in the source as it is.
            block.rawsource = text
            block.children = [nodes.Text(text)]
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            is_last = text.parent.children[-1] is text
            text.parent.replace(text, nodes.Text("" if is_last else " – "))


def _resolve(app: Sphinx, env: Any, node: Any, contnode: nodes.Element) -> nodes.Node | None:
    """Resolve a reference to Python by its last names; show one to what exists and is not documented without a link."""
    from custody_docs.names import exists, find_documented

    if node.get("refdomain") != "py":
        return None
    target = str(node["reftarget"])
    objects = env.domains.python_domain.objects
    if found := find_documented(target, objects):
        from sphinx.util.nodes import make_refnode

        entry = objects[found]
        return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, [contnode], found)
    # What follows a parameter is a type, and may be anything; the others are links that somebody wrote.
    is_type = node.get("refspecific") and node.get("reftype") != "exc"
    return contnode if is_type or exists(target, _places(node), objects) else None


def _places(node: Any) -> list[str]:
    """Return where the name of a reference may be looked for: the module and the class of the docstring."""
    module, owner = node.get("py:module"), node.get("py:class")
    return [".".join(filter(None, names)) for names in ((module, owner), (module,)) if all(names)]
