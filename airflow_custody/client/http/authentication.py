"""The base of the ways to authenticate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from requests import PreparedRequest
from requests.auth import AuthBase

from airflow_custody.client.redaction import REDACTED, Secret, redact, without_json_escapes
from airflow_custody.client.text import sanitize

DEFAULT_SOURCE = "the 'auth' given to CustodyClient"
# A service may echo a token long after it was replaced.
_MAX_TOKENS = 200

# A secret of letters alone may be a word that the service uses, and one of digits alone an id.
_MIN_ECHOED_WORD = 16
_MIN_ECHOED_LENGTH = 8
# Characters of a response that is unescaped to find secrets in it.
_MAX_UNESCAPED = 64 * 1024


class Authentication(AuthBase):
    """
    The base of all ways to authenticate. Puts credentials on requests, and keeps them out of everything else.

    :param source: place of the credentials, for error messages.
    """

    #: Advice to the user when the service does not accept the credentials.
    advice = ""

    def __init__(self, *, source: str) -> None:
        self.source = source
        # Replaced, never changed: another thread may be redacting.
        self._secrets: Mapping[str, Secret] = {}
        self._tokens: tuple[Secret, ...] = ()

    def hide(self, secret: str) -> None:
        """Take a secret out of all text that :meth:`redact` returns."""
        # Each client that takes this has it hide what it knows.
        if secret not in self._secrets:
            self._secrets = {**self._secrets, secret: Secret(secret)}

    def hide_token(self, token: str) -> None:
        """Hide a token that will be replaced; the last two hundred of them stay hidden."""
        self._tokens = (*self._tokens[1 - _MAX_TOKENS :], Secret(token))

    def bind(self, transport: Any) -> None:
        """Keep the transport of the client, for those who fetch a token through it."""

    def apply(self, request: PreparedRequest, within: float | None = None) -> PreparedRequest:
        """
        Put the credentials on a request that is ready to be sent.

        :param request: the request.
        :param within: seconds for what has to be asked for first; None (default): the client's time-out.
        """
        return self(request)

    def renew(self, request: PreparedRequest) -> bool:
        """Tell whether a request whose response was 401 may be sent once more, with newer credentials."""
        return False

    def accepted(self, request: PreparedRequest) -> None:
        """Take notice that the service accepted the credentials of a request."""

    def redact(self, text: object, limit: int = 300) -> str:
        """Return text from outside fit for a message: secrets that it echoes replaced, then cut to the limit."""
        # More than sanitize() looks at: what is cut off here, even within an escaped secret, is not returned.
        head = str(text)[: limit * 16 + 1024]
        return sanitize(redact(head, (*self._secrets.values(), *self._tokens)), limit)

    def is_echoed_in(self, body: bytes) -> bool:
        """
        Tell whether a response repeats a secret.

        In a long one, secrets are found plain, escaped as JSON, and in base64 only, which costs little.
        """
        text = body.decode("utf-8", "replace")
        known = (*self._secrets.values(), *self._tokens)
        secrets = [secret.only_long(_MIN_ECHOED_WORD, _MIN_ECHOED_LENGTH) for secret in known if not secret.is_short]
        bare = without_json_escapes(text)
        if any(secret.is_in(text, bare) for secret in secrets):
            return True
        is_escaped = len(text) <= _MAX_UNESCAPED and any(sign in text for sign in "\\&%")
        return is_escaped and redact(text, secrets) != text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({REDACTED})"
