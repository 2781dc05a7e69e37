"""API keys, and the calls that are signed with them."""

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

# An assumption.
MAX_CLOCK_SKEW_MS = 30_000

_TABLES = """
CREATE TABLE IF NOT EXISTS api_keys (id TEXT PRIMARY KEY, secret TEXT NOT NULL, user_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nonces (api_key TEXT, nonce TEXT, PRIMARY KEY (api_key, nonce));
"""
_FIELD = re.compile(r"(ApiKey|Nonce|Timestamp|Signature)=(\S+)")


class ApiKeyStore:
    """The store of API keys and of the nonces that were used with them."""

    def __init__(self, state: State) -> None:
        self._state = state
        state.create_tables(_TABLES)

    def add(self, user_id: str) -> dict[str, str]:
        """Add a key for a user, and return its id and its secret in hex."""
        key = {"id": secrets.token_hex(8), "secret": secrets.token_hex(32)}
        self._state.write("INSERT INTO api_keys VALUES (?, ?, ?)", key["id"], key["secret"], user_id)
        return key

    def set_clock_offset(self, seconds: float) -> None:
        """Set how far ahead the service's clock is."""
        self._state.set_setting("clock_offset", seconds)

    def authenticate(
        self, authorization: str, *, method: str, host: str, path: str, query: str, content_type: str, body: bytes
    ) -> str:
        """Return the id of the user whose key signed this call, or raise a 401 error."""
        fields = dict(_FIELD.findall(authorization))
        if set(fields) != {"ApiKey", "Nonce", "Timestamp", "Signature"}:
            raise ServiceError(401, "the API key's header is malformed")
        found = self._state.rows("SELECT * FROM api_keys WHERE id = ?", fields["ApiKey"])
        if not found:
            raise ServiceError(401, "the API key is not known")
        expected = sign(
            found[0]["secret"],
            [fields["ApiKey"], fields["Nonce"], fields["Timestamp"], method, host, path, query, content_type],
            body,
        )
        try:
            signature = base64.b64decode(fields["Signature"], validate=True)
        except (binascii.Error, ValueError):
            signature = b""
        if not hmac.compare_digest(signature, expected):
            raise ServiceError(401, "the API key's signature is wrong")
        now = (time.time() + self._state.get_setting("clock_offset", 0.0)) * 1000
        if not fields["Timestamp"].isdigit() or abs(now - int(fields["Timestamp"])) > MAX_CLOCK_SKEW_MS:
            raise ServiceError(401, "the API key's timestamp is too far from the service's clock")
        if self._state.write("INSERT OR IGNORE INTO nonces VALUES (?, ?)", fields["ApiKey"], fields["Nonce"]) == 0:
            raise ServiceError(401, "the API key's nonce was used before")
        return str(found[0]["user_id"])


def sign(secret: str, parts: list[str], body: bytes) -> bytes:
    """Return the signature of a call: of its parts and its body, without the empty ones, joined by spaces."""
    text = b" ".join(part for part in [b"TPV1", *(part.encode() for part in parts), body] if part)
    return hmac.digest(bytes.fromhex(secret), text, hashlib.sha256)
