"""What is said wherever signatures prove nothing: because no keys are pinned, or because they do not verify."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airflow_custody.client.text import is_decimal

#: What is said, once in a task, without pinned keys.
NOT_PINNED = "No super-administrators' keys are pinned: what is whitelisted is the service's word."
# An id that somebody may paste into a terminal.
_MAX_ID = 40


def describe_legacy(omitted: Iterable[str]) -> str:
    """Say that a legacy form was signed, and what it lacks."""
    return f"in a legacy form: what is received as {' and '.join(omitted) or 'no field'} is not signed"


def what_to_do(ids: Sequence[str], advice: str | None = None) -> str:
    """
    Return what to do about requests that are not verified.

    :param ids: the requests' ids; the first is named in a command.
    :param advice: what the verifier says, which comes first. Default None.
    """
    pronoun = "it" if len(ids) == 1 else "them"
    option = next((f" --id {each}" for each in ids[:1] if is_decimal(each) and len(each) <= _MAX_ID), "")
    default = (
        f"Do not use {pronoun} before somebody has found out who put {pronoun} there; "
        f"`custody whitelist verify{option}` shows what is proved."
    )
    return f"{advice} {default}" if advice else default
