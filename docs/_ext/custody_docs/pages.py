"""The pages that are made of the code: the reference and the examples."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from custody_docs import catalogue, command_line, settings
from custody_docs.docstrings import field, summary
from custody_docs.rest import code, heading, page, table, toctree

#: The folders whose pages are all made here, below the folder of the documentation.
GENERATED = ("reference", "examples")
_FLOORS = {
    "operators": ("Operators", "What a task does. All of them take the usual parameters of Airflow's operators, too."),
    "sensors": ("Sensors", "What a task waits for. They take the usual parameters of Airflow's sensors, too."),
    "triggers": ("Triggers", "What waits in the triggerer: for deferred sensors, and for asset watchers."),
}
#: What is documented module by module: path, title, module, names. No names: all that are in ``__all__``.
_MODULES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("assets", "Assets", "airflow_custody.assets", ()),
    ("retries", "Retries", "airflow_custody.retry_policy", ()),
    ("signers", "Signers", "airflow_custody.client.signers", ()),
    ("pkcs11-signer", "Signing with an HSM", "airflow_custody.client.signers.pkcs11", ("Pkcs11Signer",)),
    (
        "connection-signer",
        "Signing with a connection",
        "airflow_custody.signers",
        ("ConnectionSigner", "Pkcs11ConnectionSigner"),
    ),
    ("sign-in", "Signing in", "airflow_custody.client.auth", ("PasswordSignIn",)),
    ("api-keys", "API keys", "airflow_custody.client.auth", ("ApiKey",)),
    ("verification", "Verification", "airflow_custody.client.verification.verifier", ()),
    ("whitelist-models", "Whitelisting requests", "airflow_custody.client.whitelist.models", ("WhitelistRequest",)),
    (
        "whitelist-envelopes",
        "Whitelisting requests at the service",
        "airflow_custody.client.whitelist.envelopes",
        ("WhitelistEnvelope",),
    ),
    ("signing", "Signing", "airflow_custody.client.whitelist.signing", ("RequestSigner",)),
    (
        "pending-approvals",
        "Pending approvals",
        "airflow_custody.client.approvals.models",
        ("PendingApprovals",),
    ),
    ("health-models", "Health checks", "airflow_custody.client.health.models", ("HealthCheck",)),
    ("webhook-calls", "Webhook calls", "airflow_custody.client.webhooks.models", ("WebhookCall",)),
    ("new-webhook-calls", "New webhook calls", "airflow_custody.client.webhooks.calls", ("NewCalls", "CallCursor")),
    ("webhook-deliveries", "Webhook deliveries", "airflow_custody.client.webhooks", ("verify_delivery",)),
)
#: Classes whose methods are for the package itself: a user makes them, or hands them on.
WITHOUT_MEMBERS = ("ApiKey", "CallCursor", "NewCalls", "PasswordSignIn")
_MEMBERS = """\
   :members:
   :inherited-members: str, Exception, BaseModel, RetryPolicy
   :member-order: bysource
   :exclude-members: model_config
"""
_SUBJECTS = {"health": "Health", "whitelist": "Whitelisting", "users": "Users", "": "The client itself"}


def pages() -> dict[str, str]:
    """Return all generated pages: reStructuredText, by path below the folder of the documentation."""
    result: dict[str, str] = {}
    for floor, (title, text) in _FLOORS.items():
        result |= _floor(floor, title, text)
    result |= command_line.pages()
    result["reference/hook"] = page(
        heading("Hook"), *(_class(f"{module}.{each.__name__}", True) for module, each in catalogue.provided("hooks"))
    )
    result["reference/client"] = _client()
    result["reference/operations"] = _operations()
    result["reference/errors"] = page(
        heading("Errors"),
        "What each code stands for is on the page of :doc:`error codes </error-codes>`.",
        ".. automodule:: airflow_custody.client.errors\n   :members:\n   :member-order: bysource",
    )
    for path, title, module, names in _MODULES:
        result[f"reference/{path}"] = page(heading(title), *_members(module, names))
    result["reference/sandbox"] = page(
        heading("Sandbox"),
        ".. automodule:: airflow_custody.sandbox\n   :no-members:",
        *_members("airflow_custody.sandbox", ()),
    )
    result["reference/connection"] = settings.connection()
    result["reference/configuration"] = settings.configuration()
    result["reference/metrics"] = _metrics()
    result["reference/xcom"] = _xcom()
    result |= {f"examples/{each.stem}": _example(each) for each in catalogue.examples()}
    result["examples/_gallery"] = _gallery()
    return result


def documented() -> list[tuple[str, tuple[str, ...]]]:
    """Return the modules that are documented name by name, and the names."""
    modules = [(module, names) for _, _, module, names in _MODULES]
    return [
        (module, names or tuple(importlib.import_module(module).__all__))
        for module, names in [*modules, ("airflow_custody.sandbox", ())]
    ]


def write(folder: Path) -> None:
    """
    Write the generated pages, and delete those that no longer exist; what has not changed stays.

    :param folder: the folder of the documentation.
    """
    wanted = {folder / f"{path}.rst": text for path, text in pages().items()}
    for name in GENERATED:
        for path in (folder / name).rglob("*.rst"):
            if path not in wanted:
                path.unlink()
    for path, text in wanted.items():
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def _floor(floor: str, title: str, text: str) -> dict[str, str]:
    """Return the pages of a kind of classes: one for each, and their table."""
    classes = catalogue.provided(floor)
    folder = f"reference/{floor}"
    rows = [(f":class:`~{module}.{each.__name__}`", summary(each)) for module, each in classes]
    result = {
        f"{folder}/{each.__name__}": page(heading(_title(each, floor)), _class(f"{module}.{each.__name__}", False))
        for module, each in classes
    }
    result[folder] = page(
        heading(title),
        text,
        table(("Class", "What it does"), rows),
        toctree(f"/{folder}/{each.__name__}" for _, each in classes),
    )
    return result


def _title(each: type, floor: str) -> str:
    """Return the title of a class's page: short, and the words that people search for."""
    words = re.findall(r"[A-Z][a-z]+", each.__name__.removeprefix("Custody").removesuffix(floor[:-1].capitalize()))
    return " ".join([*words[:1], *(word.lower() for word in words[1:])])


def _class(name: str, with_members: bool) -> str:
    return f".. autoclass:: {name}\n" + ("   :members:\n   :member-order: bysource\n" if with_members else "")


def _members(module: str, names: Iterable[str]) -> list[str]:
    """Return the directives for names of a module."""
    loaded = importlib.import_module(module)
    result = []
    for name in names or loaded.__all__:
        value = getattr(loaded, name)
        is_error = inspect.isclass(value) and issubclass(value, Exception)
        if is_error and value.__module__.startswith("airflow_custody.client"):
            # It is on the page of errors.
            continue
        kind = "autoexception" if is_error else "autoclass" if inspect.isclass(value) else "autofunction"
        result.append(
            f".. {kind}:: {module}.{name}\n" + (_MEMBERS if kind == "autoclass" and name not in WITHOUT_MEMBERS else "")
        )
    return result


def _client() -> str:
    name = "airflow_custody.client.CustodyClient"
    parts = []
    for subject, methods in catalogue.client_methods().items():
        parts.append(heading(_SUBJECTS.get(subject, subject.capitalize()), 1))
        for method in methods:
            value = _attribute(method)
            kind = "autoproperty" if isinstance(value, property) or hasattr(value, "attrname") else "automethod"
            parts.append(f".. {kind}:: {name}.{method}\n")
    return page(heading("Client"), f".. autoclass:: {name}\n   :no-members:\n", *parts)


def _attribute(method: str) -> object:
    """Return an attribute of the client's class as it stands there."""
    from airflow_custody.client import CustodyClient

    return inspect.getattr_static(CustodyClient, method)


def _operations() -> str:
    methods: dict[str, list[str]] = {}
    for names in catalogue.client_methods().values():
        for name in names:
            for operation in catalogue.operations_of(_attribute(name)):
                link = f":meth:`~airflow_custody.client.CustodyClient.{name}`"
                methods.setdefault(operation.name, []).append(link)
    rows = [
        (
            f"{each.name[:1].upper()}{each.name[1:]}{'' if each.documented else ' |published|'}",
            f"``{each.method} {each.path}``",
            " and ".join(f"``{role}``" for role in each.roles).replace(" or ", "`` or ``") or "none",
            "yes" if each.is_repeatable else "no",
            ", ".join(methods.get(each.name, [])),
        )
        for each in catalogue.operations()
    ]
    return page(
        heading("Operations of the service"),
        "What this package calls, and the roles that the user needs for it. Paths are below ``/api/rest/v1``; one that "
        "is about an object has the object's id after it. Sending what is "
        "repeatable twice does no harm. When a response is lost, the client sends it again if its method is ``GET``, "
        "``PATCH`` or ``DELETE``; a ``POST`` is left to Airflow's retries.",
        table(("Operation", "Path", "Roles", "Repeatable", "Method"), rows),
    )


def _metrics() -> str:
    from airflow_custody import metrics

    rows = [
        (f"``{each.name}``", each.kind, each.unit, ", ".join(map(code, each.tags)), each.description)
        for each in metrics.METRICS
    ]
    paragraphs = (metrics.__doc__ or "").partition("\n\n")[2]
    return page(heading("Metrics"), paragraphs, table(("Metric", "Kind", "Unit", "Tags", "Meaning"), rows))


def _xcom() -> str:
    classes = [*catalogue.provided("operators"), *catalogue.provided("sensors")]
    rows = [(f":class:`~{module}.{each.__name__}`", field(each, "return") or "nothing") for module, each in classes]
    return page(
        heading("XCom"),
        "What a task returns, and what else it pushes.",
        table(("Task", "XCom"), rows),
    )


def _gallery() -> str:
    """Return all examples, each with its graph: a part of a page that is written."""
    parts = []
    for each in catalogue.examples():
        parts += [f".. rubric:: :doc:`/examples/{each.stem}`", each.docstring.partition("\n")[0]]
        parts += [_picture(graph, f"examples/{each.stem}.html") for graph in each.graphs()]
    return page(*parts)


def _picture(graph: catalogue.Graph, target: str, classes: str = "graph") -> str:
    """Return the picture of a graph; a click leads to a target."""
    return f".. image:: /images/{graph.picture}\n   :alt: {graph.text}\n   :class: {classes}\n   :target: {target}"


def _example(example: catalogue.Example) -> str:
    text = example.path.read_text()
    name = f"{example.stem}.py"
    used = [
        f":class:`~{module}.{each.__name__}`"
        for floor in _FLOORS
        for module, each in catalogue.provided(floor)
        if each.__name__ in text
    ]
    others = [path for path in sorted(catalogue.EXAMPLES.iterdir()) if path.suffix != ".py" and path.name in text]
    return page(
        # Code needs the room.
        ":html_theme.sidebar_secondary.remove: true",
        heading(example.title),
        example.docstring,
        *(_picture(graph, f"../_images/{Path(graph.picture).name}", "graph full") for graph in example.graphs()),
        f"Uses {', '.join(used)}." if used else "",
        heading(name.replace("_", r"\_"), 1),
        f":download:`Download <../../example_dags/{name}>`",
        f".. literalinclude:: ../../example_dags/{name}",
        *(
            f"{heading(path.name.replace('_', chr(92) + '_'), 1)}\n"
            f":download:`Download <../../example_dags/{path.name}>`\n\n"
            f".. literalinclude:: ../../example_dags/{path.name}"
            for path in others
            if path.is_file()
        ),
    )
