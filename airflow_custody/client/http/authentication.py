"""The base of the ways to authenticate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pydantic import SecretStr
from requests import PreparedRequest

from airflow_custody.client.secrets import REDACTED, as_secret, redact
from airflow_custody.client.text import sanitize

DEFAULT_SOURCE = "the 'auth' given to CustodyClient"
# Keep replaced tokens, because a service may still echo them.
_MAX_TOKENS = 200


class Authentication(ABC):
    """
    The base of all ways to authenticate.

    It puts credentials on requests, and keeps them out of everything else.

    :param source: place of the credentials, for error messages.
    """

    #: Advice to the user when the service does not accept the credentials.
    advice = ""
    #: Whether credentials are valid only briefly, because they sign the time.
    signs_time = False

    def __init__(self, *, source: str) -> None:
        self.source = source
        # Replace this collection, never modify it, because another thread may be reading it to redact a text.
        self._secrets: frozenset[SecretStr] = frozenset()
        self._tokens: tuple[SecretStr, ...] = ()

    @property
    def is_refused(self) -> bool:
        """
        Whether the service has refused the credentials.

        If so, this object does not send them again.
        """
        return False

    def hide(self, secret: str | SecretStr) -> None:
        """Redact a secret in all text that :meth:`redact` returns."""
        self._secrets |= {as_secret(secret)}

    def hide_token(self, token: SecretStr) -> None:
        """
        Hide a token that will be replaced.

        The last 200 tokens stay hidden.
        """
        if token not in self._tokens:
            self._tokens = (*self._tokens[1 - _MAX_TOKENS :], token)

    @abstractmethod
    def apply(self, request: PreparedRequest, transport: Any) -> None:
        """
        Put the credentials on a request that is ready to be sent.

        :param request: the request.
        :param transport: the client's transport, to fetch a token with the same host, TLS and proxy.
        """

    def renew(self, request: PreparedRequest) -> bool:
        """
        Tell whether to repeat a request after a 401.

        It is sent once more, with newer credentials.
        """
        return False

    def redact(self, text: object, limit: int = 300) -> str:
        """
        Return text from outside in a form for messages.

        Secrets in it are replaced, then it is cut to the limit.
        """
        secrets = (each.get_secret_value() for each in (*self._secrets, *self._tokens))
        return sanitize(redact(str(text), secrets), limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({REDACTED})"
