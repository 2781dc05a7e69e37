"""
The reference: the Markdown pages in ``docs/reference``, made of signatures and docstrings.

``python docs/_ext/custody_reference.py`` renews them. They are in Git, to be read there, and a test compares them. A
mistake in one of them is a mistake in a docstring. The examples are those of ``docs/snippets/reference.py``.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

DOCS = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    # Some defaults come from Airflow's configuration: not from that of the person who runs this.
    os.environ["AIRFLOW_HOME"] = str(DOCS.parent / ".docs" / "airflow")
    sys.path.insert(0, str(DOCS.parent))

from docstrings import cell, read_docstring, to_markdown  # noqa: E402
from documented import describe, documented, error_names, import_path, load, operations, page_names  # noqa: E402
from entries import Links, code, documented_word, entry, table  # noqa: E402
from glossary import with_links  # noqa: E402

from airflow_custody import metrics  # noqa: E402
from airflow_custody.cli.commands import Parser  # noqa: E402
from airflow_custody.cli.main import make_parser  # noqa: E402
from airflow_custody.client import ClientSettings, errors  # noqa: E402
from airflow_custody.get_provider_info import get_provider_info  # noqa: E402
from airflow_custody.sandbox.__main__ import make_parser as make_sandbox_parser  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

COMMAND = "python docs/_ext/custody_reference.py"
_NOTE = f"<!-- Made by `{COMMAND}`: change the docstrings, not this page. -->"
#: The texts outside of the folder ``docs`` that a page of the site includes, with the page.
_INCLUDED = {"CHANGELOG.md": "changelog", "SECURITY.md": "security"}
#: The fields of a connection that are Airflow's own.
FORM = {
    "host": "URL of the service; a path prefix is allowed. A bare host works together with *Schema* and *Port*.",
    "login": "Name of the user who signs in with a password.",
    "password": "The API token, the user's password, or the secret of the API key.",
    "port": "Port of the base URL, or 443 if it names none. Airflow 3.3 needs it for *Test Connection*.",
    "schema": "`https` (default) or `http`, only for a bare host. Hidden in the form.",
}


def setup(app: Sphinx) -> dict[str, Any]:
    """Set the extension up; Sphinx calls this."""
    app.connect("source-read", _link_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link_files(app: Sphinx, name: str, source: list[str]) -> None:
    """
    Make links to texts outside of the folder ``docs``, such as ``../SECURITY.md``, work on the site.

    A link to an included text leads to its page. Any other link leads to the file.
    """

    def link(found: re.Match[str]) -> str:
        page = _INCLUDED.get(found["file"], name)
        return f"](/{page}.md{found['anchor'] or ''})" if page != name else f"](path:{found['up']}{found['file']})"

    source[0] = re.sub(r"\]\((?P<up>(?:\.\./)+)(?P<file>[A-Z]+\.md)(?P<anchor>#[\w-]+)?\)", link, source[0])


# --- the pages -------------------------------------------------------------------------------------------------


def write(folder: Path) -> None:
    """Write all pages into a folder, and remove the others."""
    folder.mkdir(exist_ok=True)
    made = {folder / f"{name}.md": text for name, text in pages().items()}
    for path in {*folder.iterdir()} - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text)


def pages() -> dict[str, str]:
    """Return all pages: Markdown, by name."""
    return {"README": _contents(), **{name: _page(name) for name in page_names()}}


def _page(name: str) -> str:
    described = describe(name)
    own: Iterable[str] = _OWN_PARTS[name]() if name in _OWN_PARTS else ()
    entries = [entry(each, name) for each in documented(name)]
    parts = [f"# {described.title}", _NOTE, described.introduction, *own, *entries]
    return with_links("\n\n".join(part.strip() for part in parts if part.strip()) + "\n", DOCS / "reference")


def _contents() -> str:
    titles = [(f"[{describe(name).title}]({name}.md)", describe(name).purpose) for name in page_names()]
    names = [
        (
            f"[{each.__name__}]({page}.md#{each.__name__.lower()})",
            code(import_path(full)),
            cell(read_docstring(each).text.partition("\n\n")[0], Links("README").link),
        )
        for page in page_names()
        for full in documented(page)
        for each in [load(full)]
    ]
    parts = [
        "# Reference",
        _NOTE,
        "Parameters, results, errors, roles and an example of each class. The pages are made of the code. The "
        "[glossary](../glossary.md) explains the terms.",
        table(("Page", "For"), titles),
        "## All names",
        table(("Name", "Import from", "Purpose"), names),
    ]
    return "\n\n".join(parts) + "\n"


# --- pages with parts of their own -----------------------------------------------------------------------------


def _connection() -> Iterator[str]:
    (kind,) = get_provider_info()["connection-types"]
    labels = kind["ui-field-behaviour"]["relabeling"]
    yield (
        "A connection has the type `custody`. Its id is `custody_default`, or the one that a task names in "
        "`custody_conn_id`. [An example](../../README.md#connect)."
    )
    yield "## Fields"
    rows = [(labels.get(name, name.capitalize()), code(name), text) for name, text in FORM.items()]
    yield table(("Field", "Name", "Meaning"), rows)
    yield "## Extras"
    yield "An extra that is not filled in has the default. An unknown extra is refused."
    texts = {name: field.description for name, field in ClientSettings.__pydantic_fields__.items()}  # type: ignore[attr-defined]
    extras = []
    for name, each in kind["conn-fields"].items():
        meaning = cell(texts.get(name) or each["description"], Links("connection").link)
        extras.append((each["label"], code(name), _schema_type(each["schema"]), meaning))
    yield table(("Field", "Name", "Type", "Meaning"), extras)
    for section, each in get_provider_info()["config"].items():
        yield f"## Airflow's configuration: [{section}]"
        options = [
            (code(name), option["type"], code(option["default"]) or "empty", option["description"])
            for name, option in each["options"].items()
        ]
        yield table(("Option", "Type", "Default", "Meaning"), options)


def _schema_type(schema: Mapping[str, Any]) -> str:
    (kind,) = (each for each in schema["type"] if each != "null")
    limits = [f"{word} {schema[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in schema]
    return ", ".join(code(each) for each in schema.get("enum", ()) if each) or " ".join([kind, *limits])


def _operations() -> Iterator[str]:
    yield (
        "Calls of this package, and the roles that the user needs. Paths are below `/api/rest/v1`. *Repeatable* calls "
        "do no harm when they are sent twice. The API description that this package implements includes only the four "
        "*documented* operations. The other operations are known from the vendor's other publications. If a service "
        "does not offer an operation, the error reports it: see [not-offered](../error-codes.md#not-offered)."
    )
    yield "With a password, the package also signs in. It gets the rules only if keys are pinned."
    rows = [
        (
            each.name,
            code(f"{each.method} {each.path}"),
            " and ".join(each.roles) or "none",
            "yes" if each.is_repeatable else "no",
            documented_word(each),
        )
        for each in operations()
    ]
    yield table(("Operation", "Call", "Roles", "Repeatable", "Documented"), rows)


def _metrics() -> Iterator[str]:
    link = Links("metrics").link
    yield to_markdown((metrics.__doc__ or "").partition("\n\n")[2], link)
    rows = [
        (code(each.name), each.kind, each.unit, ", ".join(each.tags), cell(each.description, link))
        for each in metrics.METRICS
    ]
    yield table(("Metric", "Kind", "Unit", "Tags", "Meaning"), rows)


def _commands() -> Iterator[str]:
    # The width of a help text is that of the terminal otherwise.
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}):
        for parser in (*_leaves(make_parser()), make_sandbox_parser()):
            if isinstance(parser, Parser):
                parser.expand_help()
            yield f"## {parser.prog}\n\n```text\n{parser.format_help().rstrip()}\n```"


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the commands of a parser, also those in groups."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for group in groups:
        for each in group.choices.values():
            yield from _leaves(each)
    if not groups:
        yield parser


def _errors() -> Iterator[str]:
    link = Links("errors").link
    yield to_markdown(inspect.cleandoc(errors.__doc__ or ""), link)
    rows = []
    for name in error_names():
        error = load(name)
        meaning = cell(read_docstring(error).text.partition("\n\n")[0], link)
        rows.append((code(error.__name__), code(import_path(name)), code(error.code), meaning))
    yield table(("Error", "Import from", "Code", "Meaning"), rows)


_OWN_PARTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "connection": _connection,
    "operations": _operations,
    "metrics": _metrics,
    "commands": _commands,
    "errors": _errors,
}

if __name__ == "__main__":
    write(DOCS / "reference")
