"""How a process that lives long signs in: once for a connection as it is, however many hooks are made of it."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_custody.client.auth import Account, PasswordSignIn
    from airflow_custody.client.http.authentication import Authentication

#: Names a process's digests, so that they tell nothing outside of it.
_DIGEST_KEY = secrets.token_bytes(32)


class SignIns:
    """
    What signs in with a password, one for each connection: it knows the token, and what the service has refused.

    One that has changed gets a new one, which knows whether the service has refused the same name and password (401),
    and nothing else of what became of the one before. What needs no sign-in is not kept.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked process does: another thread of its parent may have held the lock."""
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[bytes, PasswordSignIn]] = {}
        self._accounts: dict[bytes, Account] = {}

    def of(self, conn_id: str, connected_with: object, made: Authentication, account: object) -> Authentication:
        """
        Return what signs in for a connection.

        :param conn_id: id of the connection.
        :param connected_with: all that is in the connection, its secrets included; its ``repr`` tells it from another.
        :param made: what was made for it: it is returned, and kept, if there is none yet for this connection as it is.
        :param account: the base URL, the name and the password: once refused (401), they are not sent again, whatever
            else differs. Its ``repr`` tells it from another.
        """
        from airflow_custody.client.auth import PasswordSignIn

        digest = _digest(connected_with)
        with self._lock:
            kept = self._kept.pop(conn_id, None)
            if isinstance(made, PasswordSignIn):
                if kept is None or kept[0] != digest:
                    made.account = self._accounts.setdefault(_digest(account), made.account)
                    kept = digest, made
                self._kept[conn_id] = kept
                return kept[1]
            return made


def _digest(secret: object) -> bytes:
    return hashlib.blake2b(repr(secret).encode("utf-8", "surrogatepass"), key=_DIGEST_KEY).digest()


#: Those of this process.
SIGN_INS = SignIns()
os.register_at_fork(after_in_child=SIGN_INS.forget)
