"""What the transport needs of a way to authenticate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from requests import PreparedRequest
from requests.auth import AuthBase

from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow_custody.client.http.transport import Transport

_REDACTED = "***"
# Shorter texts turn up by chance in anything that the service says.
_MIN_REDACTED_LENGTH = 4


class Authentication(AuthBase):
    """
    The base of all ways to authenticate. Puts credentials on requests, and keeps them out of everything else.

    :param source: where the user finds the credentials, for error messages.
    """

    #: What to tell the user when the service does not accept the credentials.
    advice = ""

    def __init__(self, *, source: str) -> None:
        self.source = source
        # Replaced, never changed: another thread may be redacting.
        self._secrets: frozenset[str] = frozenset()
        self._recent_tokens: tuple[str, ...] = ()

    def hide(self, secret: str) -> None:
        """Take a secret out of all text that :meth:`redact` returns."""
        self._secrets |= {secret}

    def hide_token(self, token: str) -> None:
        """Do the same for a token that will be replaced; a service may echo one that was, so some are kept."""
        self._recent_tokens = (*self._recent_tokens[-3:], token)

    def bind(self, transport: Transport) -> None:
        """Take the transport of the client that this belongs to."""

    def renew(self, request: PreparedRequest) -> bool:
        """Tell whether a request whose response was 401 may be sent once more, with newer credentials."""
        return False

    def redact(self, text: object, limit: int = 300) -> str:
        """Return text from outside fit for a message: secrets that it echoes replaced, then cut to the limit."""
        whole = str(text)
        # The longest first: one may contain another.
        for secret in sorted((*self._secrets, *self._recent_tokens), key=len, reverse=True):
            if len(secret) >= _MIN_REDACTED_LENGTH:
                whole = whole.replace(secret, _REDACTED)
        return sanitize(whole, limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_REDACTED})"
