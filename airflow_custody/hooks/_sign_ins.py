"""How a process that lives long signs in: once for a connection as it is, however many hooks are made of it."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_custody.client.per_process import PerProcess
from airflow_custody.client.shared_sign_in import SharedSignIn

if TYPE_CHECKING:
    from airflow_custody.client.auth import PasswordSignIn
    from airflow_custody.client.http.authentication import Authentication

#: After how many seconds without use one is forgotten, unless it must not sign in again now, or ever.
IDLE = 900.0
#: How many are kept, whatever has become of them.
MAX_KEPT = 1000
#: Names a process's digests, so that they tell nothing outside of it.
_DIGEST_KEY = secrets.token_bytes(32)


@dataclass
class _Kept:
    """
    How a connection signs in.

    :param digest: that of the connection as it was.
    :param auth: signs in, and knows what became of it.
    :param used: when it was last asked for.
    """

    digest: bytes
    auth: PasswordSignIn
    used: float


class SignIns:
    """
    What signs in with a password, one for each connection: it knows the token, and what the service has refused.

    One that has changed gets a new one, which knows whether the service has refused the same name and password (401),
    and nothing else of what became of the one before. What needs no sign-in is not kept.

    :param clock: returns the time in seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = PerProcess(threading.Lock)
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        #: What services have refused, by the accounts' digests.
        self._shared: OrderedDict[bytes, SharedSignIn] = OrderedDict()

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
        with self._lock.value:
            now = self._clock()
            self._forget(now)
            kept = self._kept.get(conn_id)
            if kept is not None and kept.digest == digest:
                kept.used = now
                self._kept.move_to_end(conn_id)
                return kept.auth
            # What signed in for it before has no use any more.
            self._kept.pop(conn_id, None)
            if isinstance(made, PasswordSignIn):
                made.share(self._shared_sign_in(_digest(account)))
                self._kept[conn_id] = _Kept(digest, made, now)
            return made

    def _shared_sign_in(self, account: bytes) -> SharedSignIn:
        found = self._shared.setdefault(account, SharedSignIn())
        self._shared.move_to_end(account)
        if len(self._shared) > MAX_KEPT:
            self._shared.popitem(last=False)
        return found

    def _forget(self, now: float) -> None:
        # The one that was not used for longest comes first.
        for conn_id, kept in list(self._kept.items()):
            if len(self._kept) >= MAX_KEPT or (now - kept.used >= IDLE and not kept.auth.has_failed):
                del self._kept[conn_id]


def _digest(secret: Any) -> bytes:
    return hashlib.blake2b(repr(secret).encode("utf-8", "surrogatepass"), key=_DIGEST_KEY).digest()


#: Those of this process.
SIGN_INS = SignIns()
