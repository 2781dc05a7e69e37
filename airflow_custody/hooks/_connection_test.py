"""Tests a connection, and describes the result as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_custody.client.checks import check_connection, describe_roles, may_work, user_name
from airflow_custody.client.error_codes import label
from airflow_custody.client.text import count, sentences

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.users.operations import WireUser

#: Text for a user whose roles are not known.
UNKNOWN_ROLES = "The service does not return the user's roles."
_SIGNATURES = {
    "ok": "The service's current rules are signed by the pinned keys.",
    "unknown": "The service's rules could not be verified, because it does not offer them.",
}


def describe_user(user: WireUser, redact: Callable[..., str]) -> str:
    """Return sentences about a user, the user's roles, and missing roles."""
    name = user_name(user)
    who = f"User {redact(name, 60)}" if name else "The user, whose name the service does not return,"
    status = user.get("status")
    if status and not may_work(status):
        who += f" (status {redact(status, 60)}: check that the user is active)"
    roles = user.get("roles")
    if roles is None:
        return f"{who} is known. {UNKNOWN_ROLES}"
    return f"{who} has {describe_roles(roles, redact)}."


def try_client(client: CustodyClient) -> tuple[bool, str]:
    """
    Run the checks of ``custody check``, except for the clocks, and summarize the results.

    :param client: the client.
    :return: whether all checks succeeded, and the text for the user.
    """
    report = check_connection(client)
    failures, signatures = report.failures, report.checks["signatures"].state
    if failures and report.user is None:
        is_untested = report.checks["credentials"].state == "unknown" and failures[0].from_service
        words = " The credentials could not be tested." if is_untested else ""
        return False, f"{failures[0].text}{words} {label(failures[0].code)}"
    texts = [each.text for each in failures]
    if report.listing is not None:
        number = count(len(report.listing), "health check")
        texts.append(f"The service accepted the connection and lists {number}.")
        texts += [] if report.listing else ["Without health checks, the health operator and sensor never succeed."]
    texts.append(UNKNOWN_ROLES if report.user is None else describe_user(report.user, client.auth.redact))
    if signatures in _SIGNATURES:
        texts.append(_SIGNATURES[signatures])
    text = sentences(*texts)
    return not failures, f"{text} {label(failures[0].code)}" if failures else text
