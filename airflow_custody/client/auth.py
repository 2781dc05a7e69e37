"""The token, and how it travels."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime, timezone

from requests import PreparedRequest
from requests.auth import AuthBase

from airflow_custody.client.errors import CustodyAuthenticationError, CustodyConfigurationError
from airflow_custody.client.text import readable

_REDACTED = "***"
# Shorter texts turn up by chance in anything that the service says.
_SHORTEST_REDACTED = 4


class BearerToken(AuthBase):
    """
    Put a bearer token on requests, and keep it out of everything else.

    :param token: the token; never shown by this class.
    :param origin: where the user finds the token, for error messages.
    :raises CustodyConfigurationError: if the token is missing or can not be sent in a header.
    """

    def __init__(self, token: str, *, origin: str) -> None:
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
        self._token = token
        self._expires = jwt_expiry(token)
        self.origin = origin

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

    def shown(self, text: object, limit: int = 300) -> str:
        """Return text from outside fit to be shown: the token replaced should it be echoed, then cut to size."""
        whole = str(text)
        if len(self._token) >= _SHORTEST_REDACTED:
            whole = whole.replace(self._token, _REDACTED)
        return readable(whole, limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_REDACTED})"


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
