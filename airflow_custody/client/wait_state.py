"""The state of something that a task waits for, after a poll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_custody.client.errors import CustodyError


@dataclass(frozen=True)
class WaitState:
    """
    The state of a wait after a poll.

    :param is_done: whether what is waited for has come.
    :param summary: the state in words.
    :param result: the state as plain JSON data; once it is done, the task's result.
    :param error: the error that ends the wait. Default None: it goes on, or is done.
    :param in_doubt: whether something is missing, so that another poll soon says whether the wait has failed. Default
        False.
    :param warnings: what is odd about it and not yet said. Default: nothing.
    """

    is_done: bool
    summary: str
    result: Mapping[str, Any]
    error: CustodyError | None = None
    in_doubt: bool = False
    warnings: Sequence[str] = ()
