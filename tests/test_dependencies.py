"""What the package imports is what ``pyproject.toml`` declares."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from lowest import read_project
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGE = Path(__file__).parent.parent / "airflow_custody"
MODULES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))
PROJECT = read_project()

# Namespaces that several distributions share, and what another one stands for; the longest name that matches decides.
DISTRIBUTIONS = {
    "airflow": "apache-airflow",
    "airflow.providers": "(name the provider in DISTRIBUTIONS)",
    "airflow.providers.common.compat": "apache-airflow-providers-common-compat",
    # Each version of pydantic requires one version of it, and documents its functions.
    "pydantic_core": "pydantic",
}
# The modules, or folders of them, that may import what an extra brings.
EXTRAS = {
    "addresses": ("client/whitelist/address_decoders.py",),
    "pkcs11": ("client/signers/pkcs11.py",),
    "sandbox": ("sandbox/",),
}
# Airflow 2 requires both and calls what imports them to draw the connection form; Airflow 3 does neither. To declare
# them would bring Flask into every Airflow 3.
AIRFLOW_2_ONLY = {"hooks/custody.py": {"flask_appbuilder", "wtforms"}}
# A plugin's pages are made of what Airflow's own are made of, in the versions that Airflow brings. To declare them
# would bring FastAPI into every Airflow 2, which imports none of these modules.
AIRFLOW_OWN = {
    "plugin/": {"fastapi", "jinja2", "markupsafe", "sqlalchemy", "starlette"},
    # For those who test with pytest: nothing else imports the module.
    "sandbox/pytest_plugin.py": {"pytest"},
    # Airflow 3 requires this provider. Where it is missing, importing the module says so.
    "operators/whitelist_plan_approval.py": {"airflow.providers.standard.operators.hitl"},
}


def imported(source: str) -> Iterator[str]:
    """Yield the full names of the modules that a source imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield node.module


def distribution_of(module: str) -> str:
    """Return the name of the distribution that a module comes from."""
    shared = [name for name in DISTRIBUTIONS if f"{module}.".startswith(f"{name}.")]
    if shared:
        return DISTRIBUTIONS[max(shared, key=len)]
    top = module.split(".")[0]
    (distribution,) = set(distributions().get(top, [top]))
    return str(canonicalize_name(distribution))


@cache
def distributions() -> Mapping[str, list[str]]:
    """Return the distributions of each top-level module that is installed."""
    return packages_distributions()


def declared_for(module: str) -> set[str]:
    """Return the distributions that a module of the package may import."""
    texts = list(PROJECT["dependencies"])
    for extra, places in EXTRAS.items():
        if module.startswith(places):
            texts += PROJECT["optional-dependencies"][extra]
    return {canonicalize_name(Requirement(text).name) for text in texts}


@pytest.mark.parametrize("module", MODULES)
def test_every_import_is_declared(module: str) -> None:
    own = {"airflow_custody", *sys.stdlib_module_names, *AIRFLOW_2_ONLY.get(module, ())}
    own.update(*(names for folder, names in AIRFLOW_OWN.items() if module.startswith(folder)))
    found = set(imported((PACKAGE / module).read_text()))
    foreign = {name for name in found - own if name.split(".")[0] not in own}
    undeclared = {name for name in foreign if distribution_of(name) not in declared_for(module)}
    assert not undeclared, f"declare what brings {undeclared}, or import it where its extra belongs"


def test_every_exception_to_the_rule_is_needed() -> None:
    assert EXTRAS.keys() == PROJECT["optional-dependencies"].keys()
    for place in (place for places in EXTRAS.values() for place in places):
        assert any(module.startswith(place) for module in MODULES), place
    for module, names in AIRFLOW_2_ONLY.items():
        assert names <= {name.split(".")[0] for name in imported((PACKAGE / module).read_text())}
