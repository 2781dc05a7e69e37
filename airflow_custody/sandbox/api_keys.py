"""Recognise calls that are signed with an API key (published knowledge)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import time

from airflow_custody.sandbox.errors import ServiceError
from airflow_custody.sandbox.state import State

SCHEME = "TPV1-HMAC-SHA256"

# How wrong a caller's clock may be is a guess.
_TOLERANCE_MS = 30_000
_FIELD = re.compile(r"(ApiKey|Nonce|Timestamp|Signature)=(\S+)")


class ApiKeys:
    """Keep API keys, and the nonces that were used with them."""

    def __init__(self, state: State) -> None:
        self._state = state

    def add(self, user_id: str) -> dict[str, str]:
        """Make a key for a user; its secret is hex."""
        made = {"id": secrets.token_hex(8), "secret": secrets.token_hex(32)}
        self._state.write("INSERT INTO api_keys VALUES (?, ?, ?)", made["id"], made["secret"], user_id)
        return made

    def set_clock_offset(self, seconds: float) -> None:
        """Make the service's clock go wrong."""
        self._state.set("clock_offset", seconds)

    def user_of(
        self, authorization: str, *, method: str, host: str, path: str, query: str, content_type: str, body: bytes
    ) -> str:
        """Find out whose key signed this call, or refuse with 401."""
        fields = dict(_FIELD.findall(authorization))
        if set(fields) != {"ApiKey", "Nonce", "Timestamp", "Signature"}:
            raise ServiceError(401, "the API key's header is malformed")
        found = self._state.rows("SELECT * FROM api_keys WHERE id = ?", fields["ApiKey"])
        if not found:
            raise ServiceError(401, "the API key is not known")
        wanted = sign(
            found[0]["secret"],
            [fields["ApiKey"], fields["Nonce"], fields["Timestamp"], method, host, path, query, content_type],
            body,
        )
        try:
            given = base64.b64decode(fields["Signature"], validate=True)
        except (binascii.Error, ValueError):
            given = b""
        if not hmac.compare_digest(given, wanted):
            raise ServiceError(401, "the API key's signature is wrong")
        now = (time.time() + self._state.setting("clock_offset", 0.0)) * 1000
        if not fields["Timestamp"].isdigit() or abs(now - int(fields["Timestamp"])) > _TOLERANCE_MS:
            raise ServiceError(401, "the API key's timestamp is too far from the service's clock")
        if self._state.write("INSERT OR IGNORE INTO nonces VALUES (?, ?)", fields["ApiKey"], fields["Nonce"]) == 0:
            raise ServiceError(401, "the API key's nonce was used before")
        return str(found[0]["user_id"])


def sign(secret: str, parts: list[str], body: bytes) -> bytes:
    """Sign the parts of a call: joined by one space, what is empty left out."""
    text = b" ".join(part for part in [b"TPV1", *(part.encode() for part in parts), body] if part)
    return hmac.digest(bytes.fromhex(secret), text, hashlib.sha256)
