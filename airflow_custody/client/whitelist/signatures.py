"""The signatures that a request has, and those that it still needs according to the signed rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import name_some, sanitize
from airflow_custody.client.verification.results import RequestSignatures
from airflow_custody.client.whitelist.comparison import is_creation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_custody.client.verification.results import GroupSignatures
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

_MAX_SHOWN = 3


def find_signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> RequestSignatures | None:
    """
    Return the valid signatures of a request, with the combinations of groups that may sign it under the signed rules.

    :param envelope: the request.
    :param verifier: the verifier; None if no keys are pinned.
    :return: the signatures; None if they are unknown, or signing the request does not whitelist its address.
    """
    if verifier is None or not is_creation(envelope.action or "", accept_unknown=False):
        return None
    try:
        return verifier.examine(envelope.wire)
    except CustodyError:
        return None


def describe_signatures(envelope: WhitelistEnvelope, verifier: Verifier | None) -> str:
    """
    Describe for which groups a pending request waits, and who has signed it.

    :param envelope: the request.
    :param verifier: the verifier; None if no keys are pinned. The users who have signed are then only the service's
        claim.
    """
    found = find_signatures(envelope, verifier)
    if found is None:
        users = name_some(sorted(envelope.signed_by), 60)
        return f"the service lists signatures of {users}" if users else "the service lists no signatures"
    signed = f"signed by {name_some(found.user_ids, 60)}" if found.user_ids else "not signed yet"
    return f"{waiting}; {signed}" if (waiting := _waiting(found.paths)) else signed


def _waiting(paths: Sequence[Sequence[GroupSignatures]]) -> str:
    """Describe the groups that lack signatures; empty if they are unknown, or if no signature is lacking."""
    lacking = [[each for each in path if len(each.user_ids) < each.minimum] for path in paths]
    if not all(lacking) or not lacking:
        return ""
    ways = [
        " and ".join(
            f"{sanitize(each.group_id, 60)} ({len(each.user_ids)} of {each.minimum})" for each in groups[:_MAX_SHOWN]
        )
        + (" and other groups" if groups[_MAX_SHOWN:] else "")
        for groups in lacking[:_MAX_SHOWN]
    ]
    return f"waiting for {', or '.join(ways)}" + (", or another way" if lacking[_MAX_SHOWN:] else "")
