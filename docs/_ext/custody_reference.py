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
from documented import describe, documented, error_names, import_path, load, operations, page_names, parameters  # noqa: E402
from entries import Links, code, documented_word, entry, table  # noqa: E402
from glossary import with_links  # noqa: E402

from airflow_custody import metrics  # noqa: E402
from airflow_custody.cli.commands import Parser  # noqa: E402
from airflow_custody.cli.main import make_parser  # noqa: E402
from airflow_custody.client import ClientSettings, errors  # noqa: E402
from airflow_custody.client.whitelist.plans.plan import ROW_STATES, RowState  # noqa: E402
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
#: What each state of a plan means, and what applying such a plan does.
STATES: Mapping[RowState, tuple[str, str]] = {
    "create": ("the service has no request for the row", "creates a request"),
    "replace": (
        "the request is in effect with another label, links, types or exchange account, and `replace=True`",
        "creates a new request. `complete` deletes the old request once the new one is in effect",
    ),
    "later": (
        "the row or request is left for a later run, because the plan is only a "
        "[part](../how-to/whitelist-file.md#large-first-load)",
        "does nothing yet",
    ),
    "pending": ("the row is requested, but the request is not in effect", "does nothing"),
    "unchanged": ("the request is in effect, and equal to the row", "does nothing"),
    "differs": (
        "the request has other content than the row, or several destinations are possible",
        "does nothing: correct the file, or delete the request",
    ),
    "duplicate": (
        "the request is in effect, besides another request that matches the row",
        "deletes the request with `prune=True`; with `replace=True`, only if it was replaced",
    ),
    "undeclared": ("the service has a request that is not in the file", "deletes the request with `prune=True`"),
    "rejected": ("the row was requested, and the request was rejected", "does nothing, and does not request it again"),
    "unreadable": (
        "the request cannot be read, or the row may belong to such a request",
        "does nothing: inspect the request, then add its id to `ignore`",
    ),
    "unverified": (
        "keys are pinned, and the signatures do not prove the request: do not use its address",
        "does nothing",
    ),
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


def _plans() -> Iterator[str]:
    yield "## States of a plan"
    yield (
        "Each row of the file, and each request that is not in the file, has one state. The plan task logs the states, "
        "and its XCom `counts` has the number of rows in each. Deletions that belong to a plan with creations wait for "
        "`complete`, which runs after all created requests are in effect."
    )
    yield table(("State", "Meaning", "Applying the plan"), [(code(each), *STATES[each]) for each in ROW_STATES])
    yield (
        "The first line of the report counts [hidden requests](../glossary.md#hidden-rows). The service counts them, "
        "but does not return them, so they have no state."
    )
    yield (
        "`fail_on_changes` fails on every state except `pending` and `unchanged`; `fail_on_pending` fails on "
        "`pending`. If a second plan task proves the result of a plan with `only`, give it the same `only`."
    )
    yield "## Limits of a plan"
    yield (
        "These limits stop probable mistakes in the file. They apply to the whole plan, even if only a part of it is "
        "applied, and only when planning: a plan that was approved is applied. In the task group, set them in "
        '`task_arguments["plan"]`.'
    )
    limits = parameters(load("airflow_custody.operators.whitelist_plan.CustodyPlanWhitelistOperator"))
    defaults = {each.name: each.default for each in limits}
    rows = [
        (code(name), code(str(defaults[name])) if defaults[name] else "empty", text)
        for name, text in {
            "max_creates": "fails if the plan has more creations",
            "max_deletes": "fails if the plan has more deletions",
            "max_delete_percent": "fails if the plan deletes a larger share of at least ten requests, in per cent",
            "must_keep": "fails if one of these addresses or labels is not in the file",
        }.items()
    ]
    yield table(("Limit", "Default", "The plan task"), rows)


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
    "plans": _plans,
}

if __name__ == "__main__":
    write(DOCS / "reference")
