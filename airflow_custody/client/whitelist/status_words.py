"""The status words of requests, of which the service's vendor publishes no list."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from airflow_custody.client.text import ASCII_LOWER

#: The status of a request in effect, from a published sample.
EFFECTIVE_STATUSES = ("approved",)
#: Statuses of a request that can no longer take effect. Some of them are guesses; a word that the service never uses
#: does no harm.
REJECTED_STATUSES = ("rejected", "declined", "expired", "canceled", "cancelled")


@dataclass(frozen=True)
class StatusWords:
    """
    The known status words of an installation, compared without regard to case.

    :attr:`ClientSettings.status_words` creates them from the settings. Only tests create them in another way.

    :param effective: words of requests in effect.
    :param rejected: words of rejected requests.
    """

    effective: tuple[str, ...]
    rejected: tuple[str, ...]

    @cached_property
    def _meanings(self) -> dict[str, Literal["effective", "rejected"]]:
        """The meanings of all words, in lower case."""
        effective = {word.translate(ASCII_LOWER): "effective" for word in self.effective}
        return {**effective, **{word.translate(ASCII_LOWER): "rejected" for word in self.rejected}}  # type: ignore[dict-item]

    def meaning(self, status: str | None) -> Literal["effective", "rejected", "unknown"]:
        """Return the meaning of a status word by itself, whatever the listings say about the request."""
        return self._meanings.get(status.translate(ASCII_LOWER), "unknown") if status else "unknown"
