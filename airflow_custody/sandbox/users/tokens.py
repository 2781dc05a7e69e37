"""Bearer tokens and API keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_custody.sandbox.errors import ServiceError
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.wire import decode_base64, dumps

#: The roles of the main token.
ROLES = ("TPUser", "WhitelistedAddressCreator", "WhitelistedAddressApprover", "Admin")

_API_KEY_SCHEME = "TPV1-HMAC-SHA256"
_API_KEY_FIELD = re.compile(r"(ApiKey|Nonce|Timestamp|Signature)=(\S+)")
# Maximum difference between the time stamp of an API key's signature and the service's clock. It is an assumption.
_MAX_CLOCK_SKEW_MS = 30_000

_TABLES = """
CREATE TABLE IF NOT EXISTS tokens (
    token TEXT PRIMARY KEY, user_id TEXT NOT NULL, tenant_id TEXT NOT NULL, roles TEXT NOT NULL,
    expires_at REAL, is_main INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS api_keys (id TEXT PRIMARY KEY, secret TEXT NOT NULL, user_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nonces (api_key TEXT, nonce TEXT, PRIMARY KEY (api_key, nonce));
"""


@dataclass(frozen=True)
class Caller:
    """The user on whose behalf a call is made."""

    user_id: str
    tenant_id: str
    roles: tuple[str, ...]

    def missing(self, required: Sequence[str]) -> list[str]:
        """Return the required roles that the caller lacks, ignoring case."""
        own = {role.lower() for role in self.roles}
        return [role for role in required if role.lower() not in own]


class TokenStore:
    """The store of tokens, API keys and used nonces."""

    def __init__(self, state: State, users: UserStore) -> None:
        self._state = state
        self._users = users
        state.create_tables(_TABLES)
        # The key that signs JWTs. The signatures are never verified, because tokens are looked up in the store.
        self._key = secrets.token_bytes(32)

    def set_main(self, token: str | None) -> str:
        """Set the main token, and return it. None: keep the current main token, or create one."""
        current = self._state.rows("SELECT token FROM tokens WHERE is_main")
        token = token or (str(current[0]["token"]) if current else secrets.token_urlsafe(24))
        self._state.write("DELETE FROM tokens WHERE is_main")
        self._save(token, "1", "1", ROLES, None, True)
        return token

    def add_token(
        self,
        roles: Sequence[str],
        tenant_id: str = "1",
        user_id: str = "2",
        expires_in: float | None = None,
        jwt: bool = False,
    ) -> str:
        """
        Add a token, and return it.

        :param roles: the roles of the token, such as ``TPUser``.
        :param tenant_id: id of the user's tenant. Default ``1``.
        :param user_id: id of the user. Default ``2``.
        :param expires_in: lifetime in seconds; negative for an expired token. Default: a JWT expires after the setting
            ``token_lifetime`` (half an hour), and any other token never expires.
        :param jwt: whether the token is a JWT, with the claims ``exp`` and ``roles``. Default: no.
        """
        token, settings = secrets.token_urlsafe(24), self._state.settings
        if jwt:
            expires_in = settings.token_lifetime if expires_in is None else expires_in
            now = time.time() + settings.clock_offset
            claims = {"sub": user_id, "tenantId": tenant_id, "exp": int(now + expires_in)}
            # Add a random id, so that each token is unique.
            token = self._sign({**claims, "roles": [role.lower() for role in roles], "jti": token})
        expires_at = None if expires_in is None else time.time() + expires_in
        self._save(token, user_id, tenant_id, roles, expires_at, False)
        return token

    def revoke_tokens(self, user_id: str) -> None:
        """
        Revoke all tokens of a user, except the main token.

        :param user_id: id of the user.
        """
        self._state.write("DELETE FROM tokens WHERE user_id = ? AND NOT is_main", user_id)

    def add_api_key(self, user_id: str) -> dict[str, str]:
        """
        Add an API key, and return its `id` and `secret` (hex).

        :param user_id: id of the user.
        """
        key = {"id": secrets.token_hex(8), "secret": secrets.token_hex(32)}
        owner = self._users.require(user_id).id
        self._state.write("INSERT INTO api_keys VALUES (?, ?, ?)", key["id"], key["secret"], owner)
        return key

    def authenticate(self, authorization: str, call: Sequence[str], body: bytes) -> Caller:
        """
        Return the caller of an Authorization header, or raise a 401 error.

        :param authorization: the header.
        :param call: method, host, path, query and content type. An API key signs them together with the body.
        :param body: the body.
        """
        if authorization.startswith(_API_KEY_SCHEME):
            user = self._users.require(self._check_api_key(authorization, call, body))
            return Caller(user.id, user.tenant_id, user.roles)
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise ServiceError(401, "a bearer token is required")
        found = self._state.rows("SELECT * FROM tokens WHERE token = ?", token.strip())
        if not found:
            raise ServiceError(401, "unknown token")
        row = found[0]
        if row["expires_at"] is not None and row["expires_at"] <= time.time():
            raise ServiceError(401, "the token has expired")
        return Caller(row["user_id"], row["tenant_id"], tuple(json.loads(row["roles"])))

    def _check_api_key(self, authorization: str, call: Sequence[str], body: bytes) -> str:
        """Return the API key's user id, or raise a 401 error."""
        fields = dict(_API_KEY_FIELD.findall(authorization))
        if set(fields) != {"ApiKey", "Nonce", "Timestamp", "Signature"}:
            raise ServiceError(401, "malformed Authorization header of an API key")
        found = self._state.rows("SELECT * FROM api_keys WHERE id = ?", fields["ApiKey"])
        if not found:
            raise ServiceError(401, "unknown API key")
        parts = [fields["ApiKey"], fields["Nonce"], fields["Timestamp"], *call]
        expected = sign(found[0]["secret"], parts, body)
        if not hmac.compare_digest(decode_base64(fields["Signature"]), expected):
            raise ServiceError(401, "the API key's signature is wrong")
        now = (time.time() + self._state.settings.clock_offset) * 1000
        if not fields["Timestamp"].isdigit() or abs(now - int(fields["Timestamp"])) > _MAX_CLOCK_SKEW_MS:
            raise ServiceError(401, "the API key's timestamp is too far from the service's clock")
        if self._state.write("INSERT OR IGNORE INTO nonces VALUES (?, ?)", fields["ApiKey"], fields["Nonce"]) == 0:
            raise ServiceError(401, "the API key's nonce has already been used")
        return str(found[0]["user_id"])

    def _save(
        self, token: str, user_id: str, tenant_id: str, roles: Sequence[str], expires_at: float | None, is_main: bool
    ) -> None:
        self._state.write(
            "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?, ?)",
            *(token, user_id, tenant_id, json.dumps(list(roles)), expires_at, is_main),
        )

    def _sign(self, claims: dict[str, object]) -> str:
        text = ".".join(_base64url(dumps(each).encode()) for each in ({"alg": "HS256", "typ": "JWT"}, claims))
        return f"{text}.{_base64url(hmac.digest(self._key, text.encode(), hashlib.sha256))}"


def sign(secret: str, parts: Sequence[str], body: bytes) -> bytes:
    """Return an API key's signature over all non-empty parts, joined by spaces."""
    message = b" ".join(part for part in [b"TPV1", *(part.encode() for part in parts), body] if part)
    return hmac.digest(bytes.fromhex(secret), message, hashlib.sha256)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
