"""Stand in for the custody service: real HTTP, real state, faults on demand.

``Sandbox`` runs the stand-in inside the process (for tests), ``python -m airflow_custody.sandbox`` runs it on
its own, and ``SandboxControl`` drives either. It is written from the description of the service's interface and
never checked against a live installation; where that description says nothing, the choice made here is called a
guess.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.sandbox.control import SandboxControl
    from airflow_custody.sandbox.entries import health_entry
    from airflow_custody.sandbox.errors import SandboxError
    from airflow_custody.sandbox.received import fingerprint
    from airflow_custody.sandbox.server import Sandbox

__all__ = ["Sandbox", "SandboxControl", "SandboxError", "fingerprint", "health_entry"]

# Loaded on first use, so that importing this package costs nothing and works without the extra `sandbox`.
_HOMES = {
    "Sandbox": "server",
    "SandboxControl": "control",
    "SandboxError": "errors",
    "fingerprint": "received",
    "health_entry": "entries",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as missing:
        if missing.name and missing.name.startswith(__name__):
            raise
        raise ModuleNotFoundError(
            f"{name} needs {missing.name}: pip install 'airflow-provider-custody[sandbox]'", name=missing.name
        ) from missing
