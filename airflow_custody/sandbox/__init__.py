"""
A stand-in for the custody service. It speaks real HTTP, keeps its own state, and injects faults on demand.

``Sandbox`` runs it inside this process, for tests. ``python -m airflow_custody.sandbox`` runs it as a separate process.
``SandboxControl`` controls a sandbox of either kind.

Four operations follow the API description of the service: listing health checks, creating a whitelisting request,
setting the status of a webhook, and deleting a webhook. The other operations follow public information about the
service. Everything beyond these two sources is an assumption, and is marked as an assumption in the code. The sandbox
has never been compared with a live installation.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_custody.sandbox.control import SandboxControl as SandboxControl
    from airflow_custody.sandbox.errors import SandboxError as SandboxError
    from airflow_custody.sandbox.health.store import health_entry as health_entry
    from airflow_custody.sandbox.request_log import fingerprint as fingerprint
    from airflow_custody.sandbox.server import Sandbox as Sandbox
    from airflow_custody.sandbox.server import connection_variables as connection_variables
    from airflow_custody.sandbox.settings import CallSettings as CallSettings
    from airflow_custody.sandbox.settings import ListingSettings as ListingSettings
    from airflow_custody.sandbox.settings import Settings as Settings

# The module of each name. It is imported when the name is first used, so importing this package is cheap, and does not
# need the extra `sandbox`.
_MODULES = {
    "Sandbox": "server",
    "SandboxControl": "control",
    "SandboxError": "errors",
    "Settings": "settings",
    "CallSettings": "settings",
    "ListingSettings": "settings",
    "connection_variables": "server",
    "fingerprint": "request_log",
    "health_entry": "health.store",
}
__all__ = tuple(_MODULES)


# An editor must report a misspelled name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith(__name__):
                raise
            package = str(error.name).partition(".")[0]
            raise ModuleNotFoundError(
                f"{name} needs {package}: pip install {package} [custody/package-missing]",
                name=error.name,
            ) from error
