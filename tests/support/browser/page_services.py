"""Prepare sandboxes for the page: healthy, failing, hostile, unsigned and silent services."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

from airflow_custody.sandbox import Sandbox, SandboxControl

#: Labels that an attacker may choose, and that the page must show as plain text.
HOSTILE_LABELS = (
    "<script>alert('script')</script>",
    "<img src=x onerror=alert('image')>",
    "\" autofocus onfocus=alert('attribute') x=\"",
    "{{ 7 * 7 }}",
    "Supplier \u202egnp.exe",
    "Supplier\u200b Two",
    "\x1b[31mred",
    "A" * 300,
)


def address(number: int) -> str:
    """Return the address for a number."""
    return f"0x{number + 1:040x}"


def healthy(control: SandboxControl) -> None:
    """Prepare a healthy service with pending requests."""
    control.set_approvers(
        [
            {
                "sequential": [
                    {"externalGroupID": "operations", "minimumSignatures": 2},
                    {"externalGroupID": "risk", "minimumSignatures": 1},
                ]
            }
        ]
    )
    rows = [
        {"blockchain": "ETH", "network": "mainnet", "label": f"Supplier {name}", "address": address(number)}
        for number, name in enumerate(("Bremen", "Cadiz", "Turku", "Varna", "Nantes"))
    ]
    control.add_whitelist_requests(rows[:3], status="pending")
    control.add_whitelist_requests(rows[3:], signed=True)
    control.add_webhook()


def troubled(control: SandboxControl) -> None:
    """
    Prepare a service with problems.

    It has a failing check, an old pending request, an unsigned address, an address that is whitelisted twice, and a
    disabled webhook.
    """
    healthy(control)
    control.update_health(check="vault", status="failure")
    control.set_whitelist_age("3711", 5 * 3600)
    row = {"blockchain": "ETH", "network": "mainnet", "label": "Unknown", "address": address(99)}
    control.add_whitelist_requests([row])
    again = {"blockchain": "ETH", "network": "mainnet", "label": "Varna, again", "address": address(3)}
    control.add_whitelist_requests([again], signed=True)
    control.add_webhook(status="disabled")


def hostile(control: SandboxControl) -> None:
    """Prepare a service whose labels are attacks on the page's readers."""
    rows = [
        {"blockchain": "ETH", "label": label, "address": address(number)} for number, label in enumerate(HOSTILE_LABELS)
    ]
    control.add_whitelist_requests(rows, status="pending")


def unsigned(control: SandboxControl) -> None:
    """Prepare a service that lists an unsigned address as in effect."""
    healthy(control)
    row = {"blockchain": "ETH", "network": "mainnet", "label": "Supplier Oslo", "address": address(99)}
    (request_id,) = control.add_whitelist_requests([row], status="pending")
    control.set_whitelist_status(request_id, "APPROVED")


def waiting(control: SandboxControl) -> None:
    """Prepare a service with 311 pending requests, the oldest of which has been pending for four days."""
    rows = [
        {"blockchain": "ETH", "network": "mainnet", "label": f"Supplier {number:03}", "address": address(number)}
        for number in range(311)
    ]
    oldest, *_ = control.add_whitelist_requests(rows, status="pending")
    control.set_whitelist_age(oldest, 4 * 86_400)


def silent(control: SandboxControl) -> None:
    """Prepare a service that does not respond."""
    control.add_fault(delay=3600, times=None)


#: For each connection, the function that prepares its service.
SERVICES: dict[str, Callable[[SandboxControl], None]] = {
    "custody_default": healthy,
    "custody_treasury": troubled,
    "custody_hostile": hostile,
    "custody_unsigned": unsigned,
    "custody_waiting": waiting,
    "custody_unresponsive": silent,
}


def colleagues(sandbox: Sandbox) -> dict[str, str]:
    """
    Return further connections to a service, as environment variables.

    They are those of a signer and an auditor, and one with an invalid token.
    """
    base, control = json.loads(sandbox.connection(pins=True)), sandbox.control
    roles = ["TPUser", "WhitelistedAddressApprover"]
    signer = control.add_user("alice", roles, groups=["operations"], external_id="alice@example.test")
    auditor = control.add_user("carol", ["TPUser"], external_id="carol@example.test")
    tokens = {
        "SIGNER": control.add_token(roles, user_id=signer),
        "AUDITOR": control.add_token(["TPUser"], user_id=auditor),
        "EXPIRED": "not-a-token",
    }
    return {
        f"AIRFLOW_CONN_CUSTODY_TREASURY_{name}": json.dumps({**base, "password": token})
        for name, token in tokens.items()
    }


def away() -> dict[str, str]:
    """Return a connection to a closed port, as an environment variable."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    return {
        "AIRFLOW_CONN_CUSTODY_UNREACHABLE": json.dumps(
            {"conn_type": "custody", "host": url, "password": "not-a-secret"}
        )
    }
