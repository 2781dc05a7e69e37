"""A network between Airflow and one sandbox that can be cut: needs root and network namespaces."""

from __future__ import annotations

import subprocess
from contextlib import suppress

NAMESPACE = "custody-faults"
_AIRFLOW_END, _SERVICE_END = "custody-a", "custody-s"
_SERVICE_MAC = "02:00:00:00:00:02"
_AIRFLOW_ADDRESS, SERVICE_ADDRESS = "10.213.0.1", "10.213.0.2"

#: Put before a command, this runs it at the service's end of the network.
AT_SERVICE = ("ip", "netns", "exec", NAMESPACE)


def create() -> str:
    """Create the network, and return why that is not possible here; empty if it is there."""
    remove()
    try:
        _run("ip", "netns", "add", NAMESPACE)
        _run("ip", "link", "add", _AIRFLOW_END, "type", "veth", "peer", "name", _SERVICE_END)
        _run("ip", "link", "set", _SERVICE_END, "netns", NAMESPACE)
        _run("ip", "addr", "add", f"{_AIRFLOW_ADDRESS}/30", "dev", _AIRFLOW_END)
        _run("ip", "link", "set", _AIRFLOW_END, "up")
        _run(*AT_SERVICE, "ip", "addr", "add", f"{SERVICE_ADDRESS}/30", "dev", _SERVICE_END)
        _run(*AT_SERVICE, "ip", "link", "set", _SERVICE_END, "address", _SERVICE_MAC, "up")
        _run(*AT_SERVICE, "ip", "link", "set", "lo", "up")
        connect()
    except FileNotFoundError:
        return "there is no command ip"
    except subprocess.CalledProcessError as error:
        remove()
        return error.stderr.strip() or str(error)
    return ""


def remove() -> None:
    """Remove the network, as far as it is there."""
    with suppress(FileNotFoundError, subprocess.CalledProcessError):
        _run("ip", "netns", "delete", NAMESPACE)
    with suppress(FileNotFoundError, subprocess.CalledProcessError):
        _run("ip", "link", "delete", _AIRFLOW_END)


def cut() -> None:
    """Cut the network: what Airflow's end sends is lost, and no part of the kernel notices."""
    _send_to("02:00:00:00:00:99")


def connect() -> None:
    """Connect what was cut."""
    _send_to(_SERVICE_MAC)


def _send_to(mac: str) -> None:
    _run("ip", "neigh", "replace", SERVICE_ADDRESS, "lladdr", mac, "dev", _AIRFLOW_END, "nud", "permanent")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
