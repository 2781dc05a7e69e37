"""The description of one code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_custody.client.error_codes import ErrorCode


@dataclass(frozen=True)
class Entry:
    """
    What an error code stands for: a cause, and what to do about it.

    :param code: the code.
    :param title: the failure in a few words.
    :param message: an example of the text, without the code.
    :param cause: why it happens.
    :param cure: what to do about it.
    :param errors: names of the types of the errors that have it.
    :param is_retried: whether Airflow tries a task again that fails with it; None: that depends, as ``cause`` says.
    """

    code: ErrorCode
    title: str
    message: str
    cause: str
    cure: str
    errors: tuple[str, ...]
    is_retried: bool | None = False

    @property
    def anchor(self) -> str:
        """Where the documentation describes it, on the page of error codes."""
        return f"custody-{self.code}"


@dataclass(frozen=True)
class Group:
    """
    The codes of one subject.

    :param title: the subject.
    :param entries: the codes.
    """

    title: str
    entries: tuple[Entry, ...]
