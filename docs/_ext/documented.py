"""What the reference documents, and on which page: names, parameters, members."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from docstrings import read_docstring

from airflow_custody import client
from airflow_custody.client import errors
from airflow_custody.client.http.operation import Operation
from airflow_custody.get_provider_info import get_provider_info

FLOORS = ("task_groups", "operators", "sensors", "triggers", "hooks")
#: The page of a task, trigger or hook, by the last part of its module's name. Any other module has a page of its own.
_PAGE_OF_MODULE = {
    "webhook": "webhooks",
    "whitelist_approval": "signing",
    "whitelist_signing": "signing",
    "whitelist_plan": "plans",
    "whitelist_plan_approval": "plans",
    "whitelist_plan_completion": "plans",
    "custody": "connection",
}
_READ_ON = "See also the guide [{}](../how-to/{}.md)."


class Page(NamedTuple):
    """
    A page.

    :param title: its title.
    :param purpose: what is on it, for the list of pages.
    :param introduction: its first lines.
    :param further: names on it beside those of the floors, by module. No names: those in the module's ``__all__``.
    """

    title: str
    purpose: str
    introduction: str = ""
    further: tuple[tuple[str, tuple[str, ...]], ...] = ()


#: The pages, those that most readers come for first.
PAGES: Mapping[str, Page] = {
    "health": Page(
        "Health",
        "wait for a healthy service, or check it",
        _READ_ON.format("Start work only when the service is healthy", "health-gate"),
        (("client.health.models", ("HealthCheck", "HealthReport", "VaultdClient")),),
    ),
    "whitelist": Page(
        "Whitelisting requests",
        "create, delete and await a request",
        _READ_ON.format("Whitelist one address, with a decision", "one-request"),
        (
            ("client.whitelist.models", ("WhitelistRequest",)),
            ("client.whitelist.envelopes", ("WhitelistEnvelope",)),
        ),
    ),
    "task-groups": Page(
        "Task groups",
        "the whole workflow in one object",
        "A task group consists of ordinary tasks: those on the other pages. "
        + _READ_ON.format("Keep the whitelist as a file", "whitelist-file"),
    ),
    "webhooks": Page(
        "Webhooks",
        "enable, disable, create and delete a webhook; read its calls; verify a delivery",
        _READ_ON.format("React to webhooks and events", "events"),
        (
            ("client.webhooks", ("verify_delivery", "Delivery")),
            ("client.webhooks.models", ("WebhookCall", "WebhookEvent")),
            ("client.webhooks.calls", ("NewCalls", "CallCursor")),
        ),
    ),
    "connection": Page(
        "Connection and hook", "each field and extra of a connection, the hook, Airflow's configuration"
    ),
    "signing": Page(
        "Signing",
        "sign and reject requests; keys in a connection, a file or an HSM",
        _READ_ON.format("Approve and sign", "approve-and-sign"),
        (
            ("signers", ("ConnectionSigner", "Pkcs11ConnectionSigner")),
            ("client.signers", ()),
            ("client.signers.pkcs11", ("Pkcs11Signer",)),
            ("client.whitelist.signing.sending", ("RequestSigner",)),
        ),
    ),
    "plans": Page(
        "Whitelist file",
        "plan, approve and apply a whitelist file",
        "A row of the file has the parameters of [WhitelistRequest](whitelist.md#whitelistrequest). "
        + _READ_ON.format("Keep the whitelist as a file", "whitelist-file"),
    ),
    "verification": Page(
        "Verification",
        "verify an address by its signatures",
        _READ_ON.format("Verify addresses", "verify"),
        (("client.verification.verifier", ()),),
    ),
    "assets": Page(
        "Assets",
        "handle the events of a service in a DAG",
        _READ_ON.format("React to webhooks and events", "events"),
        (("assets", ()),),
    ),
    "retries": Page("Retries", "which failures are retried, and when", "", (("retry_policy", ()),)),
    "client": Page(
        "Client",
        "the service as Python, without Airflow",
        "",
        (
            ("client.client", ("CustodyClient",)),
            ("client.auth", ("ApiKey", "PasswordSignIn")),
            ("client.approvals.operations", ("PendingApprovals",)),
        ),
    ),
    "errors": Page(
        "Errors",
        "the exceptions",
        "[Error codes](../error-codes.md) says what to do about each code.",
        (("client.errors", ("CustodyError",)),),
    ),
    "operations": Page("Operations of the service", "calls, roles, and which are documented"),
    "commands": Page(
        "Command line",
        "the help of each command",
        _READ_ON.format("Use the Custody page and the command line", "page-and-commands"),
    ),
    "metrics": Page("Metrics", "names, tags and meaning", _READ_ON.format("Run it", "running")),
    "sandbox": Page(
        "Sandbox",
        "the stand-in for the service",
        _READ_ON.format("Run it", "running"),
        (("sandbox", ()),),
    ),
}
#: Methods that only Airflow calls.
_OF_AIRFLOW = ("get_connection_form_widgets", "get_ui_field_behaviour")
#: Classes whose methods are for the package itself: a user makes them, or passes them on.
_WITHOUT_MEMBERS = ("ApiKey", "CallCursor", "NewCalls", "PasswordSignIn")
# --- what is documented ----------------------------------------------------------------------------------------


def on_floor(floor: str) -> list[str]:
    """Return the full names of the classes of a floor, in the order of the provider's metadata."""
    # Airflow's metadata has no place for task groups.
    groups = get_provider_info().get(floor) or [{"python-modules": ["airflow_custody.task_groups.whitelist"]}]
    modules = [module for group in groups for module in group["python-modules"]]
    return [
        f"{module}.{name}"
        for module in modules
        for name, each in vars(importlib.import_module(module)).items()
        if name.startswith("Custody") and inspect.isclass(each) and f".{floor}." in each.__module__
        if not each.__module__.endswith("._base")
    ]


def _page_of(name: str) -> str:
    module = name.split(".")[-2]
    return "task-groups" if ".task_groups." in name else _PAGE_OF_MODULE.get(module, module)


def page_names() -> list[str]:
    """Return the names of all pages: also those of modules for which no page is described."""
    others = {_page_of(name) for floor in FLOORS for name in on_floor(floor)} - PAGES.keys()
    return [*PAGES, *sorted(others)]


def describe(page: str) -> Page:
    """Return a page's description."""
    return PAGES.get(page, Page(page.capitalize(), ""))


def documented(page: str) -> list[str]:
    """Return the full names of the classes and functions on a page."""
    result = [name for floor in FLOORS for name in on_floor(floor) if _page_of(name) == page]
    for path, names in describe(page).further:
        module = importlib.import_module(f"airflow_custody.{path}")
        result += [f"{module.__name__}.{name}" for name in names or module.__all__]
    # The client's errors have a page of their own, which lists all but their base in a table.
    is_wrong = page != "errors"
    return [name for name in result if not (is_wrong and ".client." in name and name.endswith("Error"))]


def error_names() -> list[str]:
    """Return the full names of the client's errors, the base first."""
    found = [each for each in vars(errors).values() if inspect.isclass(each)]
    return [f"{errors.__name__}.{each.__name__}" for each in found if issubclass(each, errors.CustodyError)]


def load(name: str) -> Any:
    """Return an object by its full name."""
    module, _, member = name.rpartition(".")
    return getattr(importlib.import_module(module), member)


def import_path(name: str) -> str:
    """Return the shortest module that an object can be imported from."""
    *parts, member = name.split(".")
    obj = load(name)
    for length in range(2, len(parts)):
        shorter = ".".join(parts[:length])
        if getattr(importlib.import_module(shorter), member, None) is obj:
            return shorter
    return ".".join(parts)


def is_task(obj: Any) -> bool:
    """Tell whether an object is the class of an operator or a sensor."""
    return hasattr(obj, "template_fields") and hasattr(obj, "execute")


def is_task_group(obj: Any) -> bool:
    """Tell whether an object is the class of a task group."""
    return hasattr(obj, "get_child_by_label")


def shows_members(obj: type) -> bool:
    """Tell whether the methods of a class are documented: not those that only Airflow or the package calls."""
    return not is_task(obj) and ".triggers." not in obj.__module__ and obj.__name__ not in _WITHOUT_MEMBERS


def operations() -> list[Operation]:
    """Return all operations of the service that the client knows, by path."""
    modules = pkgutil.walk_packages(client.__path__, f"{client.__name__}.")
    names = [each for module in modules for each in vars(importlib.import_module(module.name)).items()]
    # A private name is a variant of an operation.
    found = {each.name: each for name, each in names if isinstance(each, Operation) and not name.startswith("_")}
    return sorted(found.values(), key=lambda each: (each.path, each.method, each.name))


def documented_base(obj: type) -> type | None:
    """Return the nearest base class that has an entry of its own; None if there is none."""
    entries = [load(name) for page in page_names() for name in documented(page)]
    return next((base for base in inspect.getmro(obj)[1:] if base in entries), None)


def members(obj: type) -> dict[str, Any]:
    """Return the public methods and properties of a class, by name: also those of bases without an entry."""
    without = inspect.getmro(documented_base(obj) or object)
    bases = [base for base in inspect.getmro(obj) if base not in without]
    own = [base for base in reversed(bases) if base.__module__.startswith("airflow_custody.")]
    found = {name: value for base in own for name, value in vars(base).items() if not name.startswith("_")}
    return {name: each for name, each in found.items() if _is_member(each) and name not in _OF_AIRFLOW}


def _is_member(value: Any) -> bool:
    return isinstance(value, (classmethod, staticmethod)) or inspect.isfunction(value) or is_property(value)


def is_property(value: Any) -> bool:
    """Tell whether a member of a class is an attribute for its user."""
    return isinstance(value, property) or type(value).__name__ == "cached_property"


def function_of(member: Any) -> Any:
    """Return the function of a method."""
    return getattr(member, "__func__", member)


# --- parameters ------------------------------------------------------------------------------------------------


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
    if is_task(obj):
        return _parameters_of_task(obj)
    try:
        found = inspect.signature(obj).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in found if each.name not in ("self", "cls")]


def _parameters_of_task(obj: type) -> list[inspect.Parameter]:
    """Return the parameters of a task: also those that its bases in this package take from ``**kwargs``."""
    # The metaclass of an operator has a signature that says nothing.
    own = [each for each in inspect.getmro(obj) if each.__module__.startswith("airflow_custody.")]
    found: dict[str, inspect.Parameter] = {}
    for base in own:
        if "__init__" in vars(base):
            for name, each in inspect.signature(vars(base)["__init__"]).parameters.items():
                if name != "self" and each.kind is not each.VAR_KEYWORD:
                    found.setdefault(name, each)
    return [*found.values()]


def parameter_texts(obj: Any) -> dict[str, str]:
    """Return the texts of parameters, by name; a class's own text comes before that of its bases."""
    own = list(inspect.getmro(obj)) if inspect.isclass(obj) else [obj]
    result: dict[str, str] = {}
    for each in reversed(own):
        if each.__module__.startswith("airflow_custody."):
            result |= read_docstring(each.__doc__ and inspect.cleandoc(each.__doc__)).parameters
    return result


def spell_type(annotation: str, obj: Any) -> str:
    """Return a type as a user knows it: without checks, and with what a module's own name for a type stands for."""

    def spell(value: Any) -> str:
        if isinstance(value, str):
            return repr(value)
        origin, arguments = get_origin(value), get_args(value)
        if origin is Annotated:
            return spell(arguments[0])
        if origin in (Union, UnionType):
            return " | ".join(map(spell, arguments))
        name = getattr(origin or value, "__name__", str(value))
        return f"{name}[{', '.join(map(spell, arguments))}]" if arguments else name

    module = importlib.import_module(obj.__module__)
    plain = re.sub(r"^Annotated\[([^,]+),.*\]$", r"\1", annotation)
    own = {name: value for name, value in vars(module).items() if get_origin(value) is not None}
    return re.sub(r"\b_?[A-Z]\w+", lambda found: spell(own[found[0]]) if found[0] in own else found[0], plain)
