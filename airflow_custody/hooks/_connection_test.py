"""What the test of a connection finds out, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import ascii_lower, count, sanitize

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.users.models import WireUser

# What the operators need, for the test of a connection.
_ROLES = {
    "TPUser": "everything",
    "WhitelistedAddressCreator": "creating whitelisting requests",
    "WhitelistedAddressApprover": "approving them",
    "Admin": "changing webhooks",
    "Admin or AdminReadOnly": "reading webhooks and their calls",
}


_MAX_ROLES = 30


def describe_checks(number: int) -> str:
    """Say that the service responded, and how many health checks it lists."""
    words = f"The service accepted the connection and lists {count(number, 'health check')}."
    return words if number else f"{words} Without any, no health gate passes."


def describe_roles(user: WireUser) -> str:
    """Name a user's roles, and those that the operators need and the user lacks."""
    roles = user.get("roles") or []
    own = {ascii_lower(role) for role in roles}
    missing = [f"{role} ({what})" for role, what in _ROLES.items() if own.isdisjoint(ascii_lower(role).split(" or "))]
    named = [sanitize(role, 60) for role in roles[:_MAX_ROLES]]
    if len(roles) > _MAX_ROLES:
        named.append(f"and {len(roles) - _MAX_ROLES} more")
    words = f"User {sanitize(user.get('id'), 60)} has the roles: {', '.join(named) or 'none'}."
    return f"{words} Missing: {', '.join(missing)}." if missing else words


def verify_rules(client: CustodyClient) -> str:
    """
    Verify the service's present rules, if keys are pinned, and say that it was done.

    :raises CustodyVerificationError: if they are not signed as pinned.
    """
    if client.verifier is None:
        return ""
    try:
        rules = client.get_rules()
    except CustodyError as error:
        # What a gateway in between refuses, the service may offer.
        if not (error.not_offered and error.from_service):
            raise
        return "Whether its rules are signed with the pinned keys is not known: it does not offer them to this user."
    client.verifier.verify_rules(rules)
    return "Its present rules are signed with the pinned keys."
