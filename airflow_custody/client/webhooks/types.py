"""The types of webhooks that are published. Others may exist, so an unknown one is never refused."""

from __future__ import annotations

from airflow_custody.client.text import ascii_lower, sanitize

#: The types that the makers of the service publish.
PUBLISHED_TYPES = (
    "requestStatus.updated",
    "transactionExternal.received",
    "transactionInternal.received",
    "currencyStatus.updated",
)
_MIN_SIMILARITY = 0.7


def type_hint(webhook_type: str) -> str:
    """
    Return in words which published type may be meant by one that is not published, but similar; empty for any other.

    :param webhook_type: the type. Case does not matter.
    """
    known = {ascii_lower(each): each for each in PUBLISHED_TYPES}
    word = ascii_lower(webhook_type[:100])
    if word in known:
        return ""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1, cutoff=_MIN_SIMILARITY)
    return f"{sanitize(webhook_type, 60)!r} is no published type; do you mean {known[near[0]]!r}?" if near else ""
