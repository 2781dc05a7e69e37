"""
Sphinx extension: the pages in ``reference``, made of the code.

They are not in Git. A mistake in one of them is a mistake in a docstring. Types and defaults come from the code.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import os
import pkgutil
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin
from unittest import mock

import airflow_custody
from airflow_custody import client, metrics
from airflow_custody.cli.main import make_parser
from airflow_custody.client import ClientSettings, CustodyClient
from airflow_custody.client.http.operation import Operation
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.sandbox.__main__ import make_parser as make_sandbox_parser

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

FLOORS = ("operators", "sensors", "triggers", "hooks")
#: Further pages, and the names on each, by module. No names: those in the module's ``__all__``.
PAGES: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "assets": (("assets", ()),),
    "retries": (("retry_policy", ()),),
    "authentication": (("client.auth", ("ApiKey", "PasswordSignIn")),),
    "signing": (
        ("signers", ("ConnectionSigner", "Pkcs11ConnectionSigner")),
        ("client.signers", ()),
        ("client.signers.pkcs11", ("Pkcs11Signer",)),
        ("client.whitelist.signing.sending", ("RequestSigner",)),
    ),
    "verification": (
        ("client.verification.verifier", ()),
        ("client.webhooks", ("verify_delivery",)),
    ),
    "models": (
        ("client.whitelist.models", ("WhitelistRequest",)),
        ("client.whitelist.envelopes", ("WhitelistEnvelope",)),
        ("client.approvals.operations", ("PendingApprovals",)),
        ("client.health.models", ("HealthCheck",)),
        ("client.webhooks.models", ("WebhookCall",)),
        ("client.webhooks.calls", ("NewCalls", "CallCursor")),
    ),
    "sandbox": (("sandbox", ()),),
}
#: Classes whose methods are for the package itself: a user makes them, or passes them on.
_WITHOUT_MEMBERS = ("ApiKey", "CallCursor", "NewCalls", "PasswordSignIn")
_MEMBERS = """\
   :members:
   :inherited-members: str, Exception, BaseModel, RetryPolicy
   :member-order: bysource
   :exclude-members: model_config
"""
_PARAM = re.compile(r":param (\w+):")


def setup(app: Sphinx) -> dict[str, Any]:
    """Set the extension up; Sphinx calls this."""
    app.connect("config-inited", lambda app, config: write(Path(app.srcdir) / "reference"))
    app.connect("source-read", _link_files)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-process-docstring", _process_docstring)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write(folder: Path) -> None:
    """Write all pages into a folder, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in pages().items():
        (folder / f"{name}.rst").write_text(text)


def pages() -> dict[str, str]:
    """Return all pages: reStructuredText, by name."""
    result = {name: _page(name, *map(_directive, documented(name))) for name in (*FLOORS, *PAGES)}
    result["errors"] = _page("errors", ".. automodule:: airflow_custody.client.errors\n   :members:\n")
    result["client"] = _page("client", ".. autoclass:: airflow_custody.client.CustodyClient\n", *_client_methods())
    result["operations"] = _page(
        "operations",
        "Calls of this package, and the roles that the user needs. Paths are below ``/api/rest/v1``. *Repeatable* "
        "calls do no harm when they are sent twice. Operations that are not *documented* are known only from what the "
        "makers of the service publish.",
        _table(
            ("Operation", "Path", "Roles", "Repeatable", "Documented"),
            (
                (
                    each.name,
                    f"``{each.method} {each.path}``",
                    " and ".join(each.roles) or "none",
                    "yes" if each.is_repeatable else "no",
                    "yes" if each.documented else "no",
                )
                for each in operations()
            ),
        ),
    )
    result["settings"] = _page("settings", *_settings())
    result["metrics"] = _page(
        "metrics",
        (metrics.__doc__ or "").partition("\n\n")[2],
        _table(
            ("Metric", "Kind", "Unit", "Tags", "Meaning"),
            (
                (f"``{each.name}``", each.kind, each.unit, ", ".join(each.tags), each.description)
                for each in metrics.METRICS
            ),
        ),
    )
    result["commands"] = _page("commands", *_commands())
    return result


def documented(page: str) -> list[str]:
    """Return the full names of the classes and functions on a page."""
    if page in FLOORS:
        modules = [module for group in get_provider_info()[page] for module in group["python-modules"]]
        return [
            f"{module}.{name}"
            for module in modules
            for name, each in vars(importlib.import_module(module)).items()
            if name.startswith("Custody") and inspect.isclass(each) and f".{page}." in each.__module__
            if not each.__module__.endswith("._base")
        ]
    result = []
    for path, names in PAGES[page]:
        module = importlib.import_module(f"airflow_custody.{path}")
        result += [f"{module.__name__}.{name}" for name in names or module.__all__]
    # The client's errors have a page of their own.
    return [name for name in result if ".client." not in name or not name.endswith("Error")]


def shows_members(obj: type) -> bool:
    """Tell whether the methods of a class are documented: not those that only Airflow or the package calls."""
    is_called_by_airflow = hasattr(obj, "template_fields") or ".triggers." in obj.__module__
    return not is_called_by_airflow and obj.__name__ not in _WITHOUT_MEMBERS


def load(name: str) -> Any:
    """Return an object by its full name."""
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(module), member)


def operations() -> list[Operation]:
    """Return all operations of the service that the client knows, by path."""
    modules = pkgutil.walk_packages(client.__path__, f"{client.__name__}.")
    values = [value for module in modules for value in vars(importlib.import_module(module.name)).values()]
    found = {each.name: each for each in values if isinstance(each, Operation)}
    return sorted(found.values(), key=lambda each: (each.path, each.method, each.name))


def parameters(obj: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function, or of a class's constructor."""
    if fields := getattr(obj, "model_fields", None):
        # By the fields' names: the signature has those on the wire.
        return [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.is_required() else field.default,
                annotation=obj.__annotations__.get(name, inspect.Parameter.empty),
            )
            for name, field in fields.items()
        ]
    try:
        # Not of the class itself: the metaclass of an operator has a signature that says nothing.
        found = inspect.signature(obj.__init__ if hasattr(obj, "template_fields") else obj).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in found if each.name not in ("self", "cls")]


def _link_files(app: Sphinx, name: str, source: list[str]) -> None:
    """Make a link to a text of the project, such as ``../SECURITY.md``, one to a file: the site has no page of it."""
    source[0] = re.sub(r"\]\(((?:\.\./)+[A-Z]+\.md)\)", r"](path:\1)", source[0])


def _process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, text: str | None, returned: str | None
) -> tuple[str, None] | None:
    if not hasattr(obj, "template_fields") and not hasattr(obj, "model_fields"):
        return None
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters(obj)]
    return str(inspect.Signature(plain)), None


def _process_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add the types of the parameters that the docstring has."""
    with_text = {found[1] for line in lines if (found := _PARAM.match(line))}
    types = [
        f":type {each.name}: {spell_type(each.annotation, obj)}"
        for each in (parameters(obj) if callable(obj) else [])
        if each.name in with_text and isinstance(each.annotation, str)
    ]
    while types and not lines[-1].strip():
        lines.pop()
    lines += types


def spell_type(annotation: str, obj: Any) -> str:
    """Return a type as a user knows it: without checks, and with what a module's own name for a type stands for."""

    def spell(value: Any) -> str:
        origin, arguments = get_origin(value), get_args(value)
        if origin is Annotated:
            return spell(arguments[0])
        if origin in (Union, UnionType):
            return " | ".join(map(spell, arguments))
        name = getattr(origin or value, "__name__", str(value))
        return f"{name}[{', '.join(map(spell, arguments))}]" if arguments else name

    module = importlib.import_module(obj.__module__)
    plain = re.sub(r"^Annotated\[([^,]+),.*\]$", r"\1", annotation)
    return re.sub(r"\b_[A-Z]\w+", lambda found: spell(getattr(module, found[0])), plain)


def _resolve(app: Sphinx, env: Any, node: Any, contnode: nodes.Element) -> nodes.Node | None:
    """Resolve a reference to Python by its last names; show what exists, but is not documented, without a link."""
    from sphinx.util.nodes import make_refnode

    if node.get("refdomain") != "py":
        return None
    objects = env.domains.python_domain.objects
    wanted = node["reftarget"].split(".")
    for names in (wanted[-2:], wanted[-1:]):
        found = [name for name in objects if name.split(".")[-len(names) :] == names]
        if len(found) == 1:
            entry = objects[found[0]]
            return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, [contnode], found[0])
    # Types of parameters and of what is raised may be anybody's; the others are links that an author wrote.
    return contnode if node.get("refspecific") or _exists(wanted[-1]) else None


def _exists(name: str) -> bool:
    defined = re.compile(rf"^\s*(?:(?:async )?def |class )?{re.escape(name)}\b", re.MULTILINE)
    sources = Path(airflow_custody.__file__).parent.rglob("*.py")
    return hasattr(builtins, name) or any(defined.search(each.read_text()) for each in sources)


def _page(name: str, *parts: str) -> str:
    return "\n".join([_heading(name.capitalize(), "="), *(f"{part.rstrip()}\n" for part in parts)])


def _heading(text: str, mark: str = "-") -> str:
    return f"{text}\n{mark * len(text)}\n"


def _directive(name: str) -> str:
    obj = load(name)
    if not inspect.isclass(obj):
        return f".. autofunction:: {name}\n"
    kind = "autoexception" if issubclass(obj, Exception) else "autoclass"
    return f".. {kind}:: {name}\n" + (_MEMBERS if shows_members(obj) else "")


def _client_methods() -> Iterator[str]:
    for each in (*CustodyClient.__bases__, CustodyClient):
        subject = each.__module__.split(".")[-2]
        yield _heading(subject.capitalize())
        for name, value in vars(each).items():
            if not name.startswith("_"):
                kind = "automethod" if callable(value) or isinstance(value, classmethod) else "autoproperty"
                yield f".. {kind}:: airflow_custody.client.CustodyClient.{name}\n"


def _settings() -> Iterator[str]:
    (kind,) = get_provider_info()["connection-types"]
    texts = {name: field.description for name, field in ClientSettings.__pydantic_fields__.items()}  # type: ignore[attr-defined]
    yield _heading("Connection")
    yield "Extras of a connection of the type ``custody``. An extra that is not filled in has the default."
    yield _table(
        ("Field", "Name", "Meaning"),
        (
            (each["label"], f"``{name}``", texts.get(name) or each["description"])
            for name, each in kind["conn-fields"].items()
        ),
    )
    for section, each in get_provider_info()["config"].items():
        yield _heading(f"Airflow's configuration, [{section}]")
        yield _table(
            ("Option", "Default", "Meaning"),
            (
                (f"``{name}``", each["default"] or "empty", each["description"])
                for name, each in each["options"].items()
            ),
        )


def _commands() -> Iterator[str]:
    # The width of a help text is that of the terminal otherwise.
    with mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}):
        for parser in (*_leaves(make_parser()), make_sandbox_parser()):
            yield _heading(parser.prog)
            yield ".. code-block:: text\n\n" + re.sub("^", "   ", parser.format_help(), flags=re.MULTILINE)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the commands of a parser, also those in groups."""
    groups = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for group in groups:
        for each in group.choices.values():
            yield from _leaves(each)
    if not groups:
        yield parser


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (header, *rows):
        cells = [" ".join(cell.split()) for cell in row]
        lines += [f"   {' ' if index else '*'} - {cell}".rstrip() for index, cell in enumerate(cells)]
    return "\n".join(lines) + "\n"
