"""The status words of requests. The service's vendor publishes no list of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_custody.client.arguments import check_names
from airflow_custody.client.text import ascii_lower

#: The status of a request in effect, from a published sample.
EFFECTIVE_STATUSES = ("approved",)
#: Statuses, some of them guesses, of a request that can no longer take effect. A word that the service never uses
#: does no harm.
REJECTED_STATUSES = ("rejected", "declined", "expired", "canceled", "cancelled")


@dataclass(frozen=True)
class StatusWords:
    """
    The known status words, compared without regard to case.

    :param effective: words of requests in effect; None: any settled request that was not rejected is in effect.
        Default ``approved``.
    :param rejected: words of rejected requests. Default: five words.
    """

    effective: tuple[str, ...] | None = EFFECTIVE_STATUSES
    rejected: tuple[str, ...] = REJECTED_STATUSES

    @classmethod
    def read(cls, effective: object = EFFECTIVE_STATUSES, rejected: object = REJECTED_STATUSES) -> StatusWords:
        """
        Read the words from the parameters of an operator or a command.

        :param effective: ``effective_statuses``: a word, a list of words, or None.
        :param rejected: ``rejected_statuses``: a word, or a list of words, which may be empty; None: empty.
        :raises CustodyRequestError: if a parameter has any other value; ``setting`` names it.
        """
        effective_words = check_names("effective_statuses", effective)
        rejected_words = check_names("rejected_statuses", rejected, may_be_empty=True) or []
        return cls(None if effective_words is None else tuple(effective_words), tuple(rejected_words))

    def meaning(self, status: str | None) -> Literal["effective", "rejected", "unknown"]:
        """Return the meaning of a status word alone, without regard to the listings."""
        if is_one_of(status, self.rejected):
            return "rejected"
        effective = EFFECTIVE_STATUSES if self.effective is None else self.effective
        return "effective" if is_one_of(status, effective) else "unknown"


#: The default words.
DEFAULT_WORDS = StatusWords()


def is_one_of(status: str | None, words: Iterable[str]) -> bool:
    """
    Tell whether a status is one of these words.

    :param status: the status, as sent.
    :param words: the words, compared without regard to case.
    """
    return bool(status) and ascii_lower(status or "") in map(ascii_lower, words)
