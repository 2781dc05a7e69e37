"""Bearer tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_custody.sandbox.errors import ServiceError
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.wire import dumps

#: The roles of the main token.
ROLES = ("TPUser", "WhitelistedAddressCreator", "WhitelistedAddressApprover", "Admin")

DEFAULT_JWT_LIFETIME = 30 * 60

_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    token TEXT PRIMARY KEY, user_id TEXT NOT NULL, tenant_id TEXT NOT NULL, roles TEXT NOT NULL,
    expires_at REAL, is_main INTEGER NOT NULL
);
"""


@dataclass(frozen=True)
class Caller:
    """The user that a call is made for."""

    user_id: str
    tenant_id: str
    roles: tuple[str, ...]

    def missing(self, required: Sequence[str]) -> list[str]:
        """Return the required roles that the caller lacks, ignoring case: in a JWT they are in lower case."""
        own = {role.lower() for role in self.roles}
        return [role for role in required if role.lower() not in own]


class TokenStore:
    """The store of the tokens that the service accepts."""

    def __init__(self, state: State) -> None:
        self._state = state
        state.create_tables(_TABLES)
        # Nothing verifies the signatures made with this key: the tokens are looked up.
        self._key = secrets.token_bytes(32)

    def set_main(self, token: str | None) -> str:
        """Set the token that has every role, and return it; None keeps the current one, or creates one."""
        current = self._state.rows("SELECT token FROM tokens WHERE is_main")
        token = token or (str(current[0]["token"]) if current else secrets.token_urlsafe(24))
        self._save(token, "1", "1", ROLES, None, is_main=True)
        self._state.write("DELETE FROM tokens WHERE is_main AND token != ?", token)
        return token

    def add(self, *, roles: Sequence[str], tenant_id: str, user_id: str, expires_in: float | None, jwt: bool) -> str:
        """Add a token and return it."""
        if jwt and expires_in is None:
            expires_in = self._state.get_setting("token_lifetime", DEFAULT_JWT_LIFETIME)
        expires_at = None if expires_in is None else time.time() + expires_in
        if jwt:
            now = time.time() + self._state.get_setting("token_clock_offset", 0.0)
            claims = {"sub": user_id, "tenantId": tenant_id, "exp": int(now + (expires_in or 0))}
            if self._state.get_setting("token_has_iat", False):
                claims["iat"] = int(now)
            token = self._sign(claims, roles)
        else:
            token = secrets.token_urlsafe(24)
        self._save(token, user_id, tenant_id, roles, expires_at, is_main=False)
        return token

    def set_claims(self, *, clock_offset: float, has_iat: bool) -> None:
        """Set how far ahead the clock is that the JWTs' times are of, and whether they say when they were issued."""
        self._state.set_setting("token_clock_offset", clock_offset)
        self._state.set_setting("token_has_iat", has_iat)

    def all(self) -> list[str]:
        """Return all tokens."""
        return [str(row["token"]) for row in self._state.rows("SELECT token FROM tokens")]

    def set_lifetime(self, seconds: float) -> None:
        """Set the lifetime of the JWTs that the service issues from now on."""
        self._state.set_setting("token_lifetime", seconds)

    def revoke(self, user_id: str) -> None:
        """Revoke all tokens of a user, except the main token."""
        self._state.write("DELETE FROM tokens WHERE user_id = ? AND NOT is_main", user_id)

    def authenticate(self, authorization: str) -> Caller:
        """Return the caller who sent this Authorization header, or raise a 401 error."""
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise ServiceError(401, "a bearer token is required")
        found = self._state.rows("SELECT * FROM tokens WHERE token = ?", token.strip())
        if not found:
            raise ServiceError(401, "the token is not known")
        row = found[0]
        if row["expires_at"] is not None and row["expires_at"] <= time.time():
            raise ServiceError(401, "the token has expired")
        return Caller(row["user_id"], row["tenant_id"], tuple(json.loads(row["roles"])))

    def _save(
        self,
        token: str,
        user_id: str,
        tenant_id: str,
        roles: Sequence[str],
        expires_at: float | None,
        *,
        is_main: bool,
    ) -> None:
        self._state.write(
            "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?)",
            *(token, user_id, tenant_id, json.dumps(list(roles)), expires_at, is_main),
        )

    def _sign(self, claims: dict[str, Any], roles: Sequence[str]) -> str:
        # The random id makes every token unique.
        claims = {**claims, "roles": [role.lower() for role in roles], "jti": secrets.token_hex(8)}
        head = _base64url(dumps({"alg": "HS256", "typ": "JWT"}).encode())
        text = f"{head}.{_base64url(dumps(claims).encode())}"
        return f"{text}.{_base64url(hmac.digest(self._key, text.encode(), hashlib.sha256))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
