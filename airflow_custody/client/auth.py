"""Who sends a request, and how the service is shown that. Part of the given interface: the bearer token."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from requests import PreparedRequest
from requests.auth import AuthBase

from airflow_custody.client.errors import CustodyAuthenticationError, CustodyConfigurationError
from airflow_custody.client.text import readable

if TYPE_CHECKING:
    from airflow_custody.client.transport import Transport

_REDACTED = "***"
# Shorter texts turn up by chance in anything that the service says.
_SHORTEST_REDACTED = 4


class Authentication(AuthBase):
    """
    Put on requests what shows who sends them, and keep the secrets behind it out of everything else.

    The base of all ways to sign in.

    :param origin: where the user finds the secret, for error messages.
    """

    #: What to tell the user when the service does not accept it.
    advice = ""

    def __init__(self, *, origin: str) -> None:
        self.origin = origin
        self._secrets: list[str] = []

    def use(self, transport: Transport) -> None:
        """Get to know the transport of the client that this belongs to."""

    def again(self, request: PreparedRequest) -> str | None:
        """Return a new ``Authorization`` for a request that is sent once more; None if the old one will do."""
        return None

    def renew(self, request: PreparedRequest) -> bool:
        """Tell whether a request that was answered with 401 may have another try, with something newer."""
        return False

    def shown(self, text: object, limit: int = 300) -> str:
        """Return text from outside fit to be shown: secrets replaced should they be echoed, then cut to size."""
        whole = str(text)
        for secret in self._secrets:
            if len(secret) >= _SHORTEST_REDACTED:
                whole = whole.replace(secret, _REDACTED)
        return readable(whole, limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_REDACTED})"


class BearerToken(Authentication):
    """
    Send a bearer token.

    :param token: the token; never shown by this class.
    :param origin: where the user finds the token, for error messages.
    :raises CustodyConfigurationError: if the token is missing or can not be sent in a header.
    """

    def __init__(self, token: str, *, origin: str) -> None:
        super().__init__(origin=origin)
        self._token = checked_token(token)
        self._secrets = [token]
        self._expires = jwt_expiry(token)
        self.advice = f"The token is wrong, withdrawn or has expired; it comes from {origin}."

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """
        Add the ``Authorization`` header to a request.

        :raises CustodyAuthenticationError: if the token is a JWT whose ``exp`` has passed.
        """
        if self._expires is not None and self._expires <= datetime.now(timezone.utc):
            raise CustodyAuthenticationError(
                f"the API token expired at {self._expires:%Y-%m-%d %H:%M:%S} UTC; nothing was sent",
                advice=f"Put a new token into {self.origin}.",
            )
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def checked_token(token: object) -> str:
    """Return a token that can be sent in a header, or refuse it without showing it."""
    if not isinstance(token, str) or not token:
        raise CustodyConfigurationError("the API token is missing", setting="token")
    if any(character.isspace() or not character.isprintable() for character in token):
        raise CustodyConfigurationError(
            "the API token holds a line break, white space or a control character; it must be the bare "
            "token, without 'Bearer' (its value is not shown here)",
            setting="token",
        )
    try:
        token.encode("iso-8859-1")
    except UnicodeEncodeError:
        # "from None": the original error quotes the token.
        raise CustodyConfigurationError(
            "the API token holds a character that can not be sent in an HTTP header (outside "
            "ISO-8859-1; its value is not shown here)",
            setting="token",
        ) from None
    return token


def jwt_expiry(token: str) -> datetime | None:
    """
    Return when a JWT expires, without checking its signature.

    :param token: any token.
    :return: its ``exp`` as an aware time; None if it is no JWT or says nothing readable about its end.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        expires = payload["exp"]
        if isinstance(expires, bool) or not isinstance(expires, (int, float)):
            return None
        return datetime.fromtimestamp(expires, tz=timezone.utc)
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError, binascii.Error):
        return None
