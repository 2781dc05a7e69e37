"""Texts about hidden requests: the service counts them, but does not return them."""

from __future__ import annotations

from airflow_custody.client.text import count

#: Advice about hidden requests.
HIDDEN_ADVICE = (
    "The service leaves out requests whose signatures it finds invalid, and may leave out requests that this user may "
    "not see. Ask the service's administrator."
)


def describe_hidden(hidden: int) -> str:
    """Return a description of hidden requests, to begin or end a sentence."""
    return f"the service counts {count(hidden, 'request')} that it does not return"


def warn_of_hidden(hidden: int) -> str:
    """Return a plan's warning about one or more hidden requests."""
    which = "It may be for a row" if hidden == 1 else "Some of them may be for rows"
    return f"The {describe_hidden(hidden)[4:]}. {which} that the plan creates."
