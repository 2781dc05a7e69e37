"""The test of a connection, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_custody.client.connection_test import check_client, describe_roles, may_work, user_name
from airflow_custody.client.error_codes import label
from airflow_custody.client.text import count, sentences

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.users.operations import WireUser

#: What to say where nobody knows which roles the user has.
UNKNOWN_ROLES = "The service does not say which roles the user has."


def describe_user(user: WireUser, redact: Callable[..., str]) -> str:
    """Name a user's roles, and those that the operators need and the user lacks."""
    name = user_name(user)
    who = f"User {redact(name, 60)}" if name else "The user, whose name the service does not say,"
    status = user.get("status")
    if status and not may_work(status):
        who += f" (status {redact(status, 60)}: may this user work?)"
    roles = user.get("roles")
    if roles is None:
        return f"{who} is known. {UNKNOWN_ROLES}"
    return f"{who} has {describe_roles(roles, redact)}."


def try_client(client: CustodyClient) -> tuple[bool, str]:
    """
    Make authenticated calls that change nothing, and return whether they succeeded and what to tell the user.

    :param client: the client. The same responses are good as for ``custody check``, which also compares the clocks.
    """
    found = check_client(client)
    failures = found.failures
    if failures and found.user is None:
        is_untested = found.credentials.state == "unknown" and failures[0].from_service
        words = " The credentials could not be tested." if is_untested else ""
        return False, f"{failures[0].text}{words} {label(failures[0].code)}"
    texts = [each.text for each in failures]
    if found.checks is not None:
        number = count(len(found.checks), "health check")
        texts.append(f"The service accepted the connection and lists {number}.")
        texts += [] if found.checks else ["Without any, no health gate passes."]
    texts.append(UNKNOWN_ROLES if found.user is None else describe_user(found.user, client.auth.redact))
    if found.signatures.state == "ok":
        texts.append("Its present rules are signed with the pinned keys.")
    elif found.signatures.state == "unknown":
        texts.append(
            "Whether its rules are signed with the pinned keys is not known: it does not offer them to this user."
        )
    text = sentences(*texts)
    return not failures, f"{text} {label(failures[0].code)}" if failures else text
