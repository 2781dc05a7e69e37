"""Hand out bearer tokens and recognise them."""

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

# TPUser and WhitelistedAddressCreator are part of the given interface, the others are published knowledge.
ROLES = ("TPUser", "WhitelistedAddressCreator", "WhitelistedAddressApprover", "Admin")

# How long a JWT lives when nothing else is said (published knowledge).
_JWT_SECONDS = 30 * 60


@dataclass(frozen=True)
class Caller:
    """Describe who a token belongs to."""

    user_id: str
    tenant_id: str
    roles: tuple[str, ...]

    def lacks(self, needed: Sequence[str]) -> list[str]:
        """List the needed roles that the caller does not have, whatever their case: a JWT has them lower."""
        own = {role.lower() for role in self.roles}
        return [role for role in needed if role.lower() not in own]


class Tokens:
    """Keep the tokens the sandbox accepts."""

    def __init__(self, state: State) -> None:
        self._state = state
        # Nobody verifies the signature: the tokens are looked up, their shape is for the client's eyes.
        self._key = secrets.token_bytes(32)

    def main(self, wanted: str | None) -> str:
        """Settle the token with every role: the wanted one, else the one in the state, else a new one."""
        kept = self._state.rows("SELECT token FROM tokens WHERE is_main")
        token = wanted or (str(kept[0]["token"]) if kept else secrets.token_urlsafe(24))
        self._keep(token, "1", "1", ROLES, None, is_main=True)
        self._state.write("DELETE FROM tokens WHERE is_main AND token != ?", token)
        return token

    def add(self, *, roles: Sequence[str], tenant_id: str, user_id: str, expires_in: float | None, jwt: bool) -> str:
        """Make a token and accept it from now on."""
        if jwt and expires_in is None:
            expires_in = self._state.setting("token_lifetime", _JWT_SECONDS)
        expires_at = None if expires_in is None else time.time() + expires_in
        if jwt:
            token = self._sign({"sub": user_id, "tenantId": tenant_id, "exp": int(expires_at or 0)}, roles)
        else:
            token = secrets.token_urlsafe(24)
        self._keep(token, user_id, tenant_id, roles, expires_at, is_main=False)
        return token

    def of(self, caller: Caller) -> str:
        """Make a JWT for a caller."""
        return self.add(
            roles=caller.roles, tenant_id=caller.tenant_id, user_id=caller.user_id, expires_in=None, jwt=True
        )

    def set_lifetime(self, seconds: float) -> None:
        """Say how long the tokens live that users are given from now on."""
        self._state.set("token_lifetime", seconds)

    def revoke(self, user_id: str) -> None:
        """Accept no token of a user any more, but for the main token."""
        self._state.write("DELETE FROM tokens WHERE user_id = ? AND NOT is_main", user_id)

    def caller(self, authorization: str | None) -> Caller:
        """Find out who sends this Authorization header, or refuse with 401."""
        scheme, _, token = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise ServiceError(401, "a bearer token is required")
        found = self._state.rows("SELECT * FROM tokens WHERE token = ?", token.strip())
        if not found:
            raise ServiceError(401, "the token is not known")
        row = found[0]
        if row["expires_at"] is not None and row["expires_at"] <= time.time():
            raise ServiceError(401, "the token has expired")
        return Caller(row["user_id"], row["tenant_id"], tuple(json.loads(row["roles"])))

    def _keep(
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
        # The claim `roles` in lower case is published knowledge; the random id keeps two tokens apart.
        claims = {**claims, "roles": [role.lower() for role in roles], "jti": secrets.token_hex(8)}
        head = _base64url(dumps({"alg": "HS256", "typ": "JWT"}).encode())
        text = f"{head}.{_base64url(dumps(claims).encode())}"
        return f"{text}.{_base64url(hmac.digest(self._key, text.encode(), hashlib.sha256))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
