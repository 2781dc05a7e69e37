"""What the test of a connection finds out, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.users.models import WireUser

# What the operators need, for the test of a connection.
_ROLES = {
    "TPUser": "everything",
    "WhitelistedAddressCreator": "creating whitelisting requests",
    "WhitelistedAddressApprover": "approving them",
    "Admin": "webhooks",
}


def describe_roles(user: WireUser) -> str:
    """Name a user's roles, and those that the operators need and the user lacks."""
    roles = user.get("roles") or []
    own = {role.casefold() for role in roles}
    missing = [f"{role} ({what})" for role, what in _ROLES.items() if role.casefold() not in own]
    words = f"User {user.get('id')} has the roles: {', '.join(roles) or 'none'}."
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
        if not error.not_offered:
            raise
        return "Whether its rules are signed with the pinned keys is not known: it does not offer them to this user."
    client.verifier.verify_rules(rules)
    return "Its present rules are signed with the pinned keys."
