"""Which attacks are ordered, and how they change what is served."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from airflow_custody.sandbox.errors import ServiceError, invalid
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.whitelist.attacks import rows, rules, signatures, texts
from airflow_custody.sandbox.whitelist.attacks.base import ATTACKS, Attack, Envelope, Means, Unsuitable
from airflow_custody.sandbox.whitelist.signers import Signers
from airflow_custody.sandbox.whitelist.store import WhitelistStore

_TABLES = """
CREATE TABLE IF NOT EXISTS attacks (request_id INTEGER PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL);
"""
_REGISTERED = (texts, rules, signatures, rows)


class Attacks:
    """
    The store of the attacks that are ordered: for each request at most one.

    The stores know nothing of them: what they return is lawful, and changed when it is served.
    """

    def __init__(self, state: State, rules: RuleStore, whitelist: WhitelistStore, signers: Signers) -> None:
        self._state = state
        self._rules = rules
        self._whitelist = whitelist
        self._signers = signers
        state.create_tables(_TABLES)
        whitelist.served = self.change

    @staticmethod
    def all() -> list[dict[str, Any]]:
        """Return all attacks there are, in the order of their rows."""
        ordered = sorted(ATTACKS.values(), key=lambda each: each.row)
        return [
            {"name": each.name, "row": each.row, "outcome": each.outcome, "description": each.description}
            for each in ordered
        ]

    def order(self, request_id: str, name: str | None) -> None:
        """Attack a request from now on; None: no longer."""
        if name is not None and name not in ATTACKS:
            raise invalid(f"{name!r} is not an attack: {', '.join(ATTACKS)}")
        row = self._whitelist.any_row(request_id)
        self._stop(row["id"])
        if name is None:
            return
        row = self._whitelist.any_row(request_id)
        attack = ATTACKS[name]
        (lawful,) = self._whitelist.envelopes([row])
        try:
            is_changed = self._attacked(attack, lawful) != lawful
        except Unsuitable as error:
            raise ServiceError(409, f"request {request_id} cannot be attacked this way: {error}") from None
        if not is_changed and attack.status in (None, row["status"]):
            raise ServiceError(409, f"request {request_id} is already shown this way")
        self._state.write("INSERT INTO attacks VALUES (?, ?, ?)", row["id"], name, row["status"])
        if attack.status is not None:
            self._whitelist.pretend_status(row["id"], attack.status)

    def _stop(self, request_id: int) -> None:
        for found in self._state.rows("SELECT * FROM attacks WHERE request_id = ?", request_id):
            if ATTACKS[found["name"]].status is not None:
                self._whitelist.pretend_status(request_id, found["status"])
        self._state.write("DELETE FROM attacks WHERE request_id = ?", request_id)

    def change(self, envelopes: Sequence[Envelope]) -> list[Envelope]:
        """Return envelopes as they are served: those that are attacked are changed."""
        ordered = {str(row["request_id"]): row["name"] for row in self._state.rows("SELECT * FROM attacks")}
        return [self._served(ordered.get(each["id"]), each) if ordered else each for each in envelopes]

    def _served(self, name: str | None, lawful: Envelope) -> Envelope:
        if name is None:
            return lawful
        try:
            return self._attacked(ATTACKS[name], lawful)
        except Unsuitable:
            # The request has changed since.
            return lawful

    def _attacked(self, attack: Attack, lawful: Envelope) -> Envelope:
        envelope = copy.deepcopy(lawful)
        means = Means(
            superadmins=self._rules.superadmins(),
            superadmin_minimum=self._rules.pins()["superadmin_minimum"],
            signers=self._signers.private_keys(),
            others=lambda: self._others(lawful["id"]),
        )
        attack.change(envelope, means)
        return envelope

    def _others(self, request_id: str) -> list[Envelope]:
        return self._whitelist.envelopes(self._whitelist.signed_rows(self._whitelist.any_row(request_id)))
