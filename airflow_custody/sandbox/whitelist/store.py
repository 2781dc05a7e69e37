"""Whitelisting requests: creating them and finding them again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.listings import Listing
from airflow_custody.sandbox.request_log import decode_body
from airflow_custody.sandbox.rules.store import RuleStore, SignedRules
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.whitelist.addresses import is_valid_address
from airflow_custody.sandbox.whitelist.behaviour import Behaviour
from airflow_custody.sandbox.whitelist.deletions import MARKED, Deletions
from airflow_custody.sandbox.whitelist.envelopes import build_envelope, build_payload, share_rules
from airflow_custody.sandbox.whitelist.models import NewRequest, Search
from airflow_custody.sandbox.wire import dumps, equal_ignoring_case, is_decimal, omit_empty, timestamp

DEFAULT_CURRENCIES = ["ETH", "BTC", "XRP", "SOL", "ADA", "XLM"]

# The words of `status` are assumptions, but for the published one of a request in effect. A setting changes them on the
# wire.
PENDING = "pending"
#: The status of a request that has all its signatures.
EFFECTIVE = "APPROVED"
#: The status of a request that was rejected. It is listed only together with pending ones.
REJECTED = "rejected"
#: The status of a request that was deleted. It stays in the store, so that its id is not used again.
REMOVED = "removed"

_FIRST_ID = 3711
# Ids are 64-bit integers.
_MAX_ID = 2**63 - 1

_TABLES = """
CREATE TABLE IF NOT EXISTS whitelist (
    id INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, user_id TEXT NOT NULL, status TEXT NOT NULL,
    blockchain TEXT NOT NULL, network TEXT NOT NULL, label TEXT NOT NULL, address TEXT NOT NULL,
    fields TEXT NOT NULL, body BLOB NOT NULL, created_at TEXT NOT NULL, approvers TEXT NOT NULL,
    seen_from TEXT NOT NULL, rules_hash TEXT
);
CREATE TABLE IF NOT EXISTS signatures (
    request_id INTEGER NOT NULL, user_id TEXT NOT NULL, group_id TEXT NOT NULL, signature TEXT NOT NULL,
    comment TEXT NOT NULL, list_hash TEXT NOT NULL, signed_at TEXT NOT NULL, PRIMARY KEY (request_id, user_id)
);
CREATE TABLE IF NOT EXISTS signed_lists (hash TEXT PRIMARY KEY, hashes TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS whitelist_by_address ON whitelist (address);
"""
# The rules of a request are those under which it was signed, or NULL: those in force.
# A request whose deletion is pending has the status that it had before in `deleted_from`.
_ROWS = f"SELECT whitelist.*, deleted_from FROM {MARKED}"
_VISIBLE = "tenant_id = ? AND status != ? AND seen_from <= ? AND (user_id != ? OR ?)"


class WhitelistStore:
    """The store of whitelisting requests and their signatures."""

    def __init__(self, state: State, users: UserStore, rules: RuleStore) -> None:
        self._state = state
        self._users = users
        self._rules = rules
        #: Changes the envelopes that are served, which are otherwise those that there are.
        self.served: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = lambda envelopes: envelopes
        #: How the listings behave.
        self.listing = Listing(state, "whitelist")
        #: The deletions that are pending.
        self.deletions = Deletions(state)
        state.create_tables(_TABLES)

    def create(self, caller: Caller, request: NewRequest, body: bytes) -> str:
        """Create a request and return its id; one with the same fields may already exist."""
        (request_id,) = self._add(caller.tenant_id, caller.user_id, PENDING, [(request, body)])
        return request_id

    def add(self, requests: Sequence[NewRequest], *, tenant_id: str, user_id: str, status: str) -> list[str]:
        """Add requests, as if this user had created them, with this status, and return their ids."""
        bodies = [dumps(each.model_dump(by_alias=True, exclude_none=True)).encode() for each in requests]
        return self._add(tenant_id, user_id, status, list(zip(requests, bodies, strict=True)))

    def _add(self, tenant_id: str, user_id: str, status: str, requests: list[tuple[NewRequest, bytes]]) -> list[str]:
        behaviour, now = self.behaviour, timestamp()
        rules_hash = None if status == PENDING else self._rules.current().hash
        currencies = self._state.get_setting("currencies", DEFAULT_CURRENCIES)
        (first,) = self._state.rows("SELECT coalesce(max(id) + 1, ?) FROM whitelist", _FIRST_ID)[0]
        rows, payloads = [], []
        for number, (request, body) in enumerate(requests, start=first):
            chain = _active_currency(currencies, request.chain)
            if not is_valid_address(chain, request.address):
                raise invalid(f"the address does not follow the rules of {chain}")
            fields = behaviour.stored(request.model_dump(by_alias=True, exclude_none=True))
            chain, network = behaviour.chain_name or chain, fields.get("network", "")
            payloads.append((build_payload(chain, fields, network_is_hashed=False), network))
            rows.append(
                (
                    *(number, tenant_id, user_id, status, chain),
                    *(network, fields["label"], fields["address"], json.dumps(fields), body, behaviour.dated()),
                )
            )
        approvers = [json.dumps(branches) for branches in self._rules.thresholds(payloads)]
        self._state.write_many(
            "INSERT INTO whitelist VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(*row, who, now, rules_hash) for row, who in zip(rows, approvers, strict=True)],
        )
        return [str(row[0]) for row in rows]

    def search(self, **parameters: Any) -> Search:
        """Return the search that these query parameters ask for, as far as the listing understands them."""
        found = self.listing.understood(parameters)
        search = Search(rules_once=found.pop("rulesContainerNormalized", False), **found)
        return search.model_copy(update={"limit": self.listing.page_size(search.page_size)})

    def row(self, caller: Caller, request_id: str) -> sqlite3.Row:
        """Return one request of the caller's tenant."""
        found = self._state.rows(
            f"{_ROWS} WHERE id = ? AND {_VISIBLE}", _parse_id(request_id), *self._visible_to(caller)
        )
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        return found[0]

    def rows(self, caller: Caller, search: Search) -> list[sqlite3.Row]:
        """Return all requests that match a search, whatever its page."""
        condition, values = self._condition(caller, search)
        rows = self._state.rows(f"{_ROWS} WHERE {condition} ORDER BY id", *values)
        return self.listing.arrange(rows, lambda row: str(row["id"]))

    def rows_by_id(self, ids: Sequence[str]) -> list[sqlite3.Row]:
        """Return requests of any tenant in the order of their ids, each once; those removed are not there."""
        numbers = {_parse_id(each) for each in ids}
        rows = self._state.rows(
            f"{_ROWS} WHERE id IN (SELECT value FROM json_each(?)) AND status != ? ORDER BY id",
            *(json.dumps(sorted(numbers)), REMOVED),
        )
        if missing := numbers - {row["id"] for row in rows}:
            raise not_found(f"whitelisted address {min(missing)}")
        return rows

    def any_row(self, request_id: str) -> sqlite3.Row:
        """Return a request of any tenant, also one that was removed."""
        found = self._state.rows(f"{_ROWS} WHERE id = ?", _parse_id(request_id))
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        return found[0]

    def signed_rows(self, row: sqlite3.Row, limit: int = 20) -> list[sqlite3.Row]:
        """Return other requests of the same tenant that somebody has signed, those for the same address first."""
        return self._state.rows(
            f"{_ROWS} WHERE id IN (SELECT request_id FROM signatures) AND id != ? AND tenant_id = ? "
            "ORDER BY address != ?, id LIMIT ?",
            *(row["id"], row["tenant_id"], row["address"], limit),
        )

    def get(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """Return the envelope of one request of the caller's tenant."""
        (envelope,) = self.served(self.envelopes([self.row(caller, request_id)]))
        return envelope

    def find(self, caller: Caller, search: Search) -> dict[str, Any]:
        """Return one page of the requests that match a search, in the order of their ids (an assumption)."""
        if self.listing.is_arranged:
            found = self.rows(caller, search)
            found_here = found[search.offset : search.offset + search.page_size]
            return self.page(found_here, len(found), rules_once=search.rules_once)
        condition, values = self._condition(caller, search)
        (total,) = self._state.rows(f"SELECT count(*) FROM {MARKED} WHERE {condition}", *values)[0]
        rows = self._state.rows(
            f"{_ROWS} WHERE {condition} ORDER BY id LIMIT ? OFFSET ?",
            *(*values, search.page_size, search.offset),
        )
        return self.page(rows, total, rules_once=search.rules_once)

    def page(self, rows: Sequence[sqlite3.Row], total: int, *, rules_once: bool = False) -> dict[str, Any]:
        """
        Return one page of a listing.

        :param rules_once: whether each version of the rules is returned once, beside the requests.
        """
        envelopes, containers = self.served(self.envelopes(rows)), list[dict[str, str]]()
        if rules_once:
            envelopes, containers = share_rules(envelopes)
        return omit_empty(result=envelopes, totalItems=self.listing.total(total), rulesContainers=containers)

    def envelopes(self, rows: Sequence[sqlite3.Row]) -> list[dict[str, Any]]:
        """Return the envelopes of requests."""
        rules, behaviour = self._rules_of(rows), self.behaviour
        return [
            self._envelope(row, _fields_of(rules[row["id"]]) if behaviour.shows_rules(_is_pending(row)) else {})
            for row in rows
        ]

    def _rules_of(self, rows: Sequence[sqlite3.Row]) -> dict[int, SignedRules]:
        """Return the rules of requests, by id: of those in effect, what they were signed under."""
        current = self._rules.current() if rows else None
        hashes = {row["id"]: row["rules_hash"] for row in rows if not _is_pending(row)}
        versions = self._rules.versions(filter(None, hashes.values()))
        found = {row["id"]: versions.get(hashes.get(row["id"]) or "", current) for row in rows}
        return {request_id: rules for request_id, rules in found.items() if rules}

    def _envelope(self, row: sqlite3.Row, rules: Mapping[str, str]) -> dict[str, Any]:
        return build_envelope(
            row,
            self.signatures(row),
            external_id=self._users.external_id,
            network_is_hashed=self._state.get_setting("network_is_hashed", True),
            rules=rules,
            status_words=self._state.get_setting("status_words", {}),
            metadata=self._state.get_setting(f"metadata {row['id']}", {}),
            replaced=self._state.get_setting(f"envelope {row['id']}", {}),
        )

    def signatures(self, row: sqlite3.Row) -> list[sqlite3.Row]:
        """Return the signatures of a request, in the order in which they were made."""
        return self._state.rows(
            "SELECT signatures.*, hashes FROM signatures JOIN signed_lists ON hash = list_hash "
            "WHERE request_id = ? ORDER BY signatures.rowid",
            row["id"],
        )

    def add_signatures(
        self,
        rows: Sequence[sqlite3.Row],
        user_id: str,
        *,
        group: str,
        signature: str,
        comment: str,
        hashes: list[str],
    ) -> None:
        """Add a user's signature of a list of hashes, made for a group of approvers, to each of some requests."""
        text, now = json.dumps(hashes), timestamp()
        list_hash = hashlib.sha256(text.encode()).hexdigest()
        self._state.write("INSERT OR IGNORE INTO signed_lists VALUES (?, ?)", list_hash, text)
        self._state.write_many(
            "INSERT INTO signatures VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(row["id"], user_id, group, signature, comment, list_hash, now) for row in rows],
        )

    def take_effect(self, rows: Sequence[sqlite3.Row]) -> None:
        """Put requests into effect, under the rules that are in force."""
        rules_hash = self._rules.current().hash
        self._state.write_many(
            "UPDATE whitelist SET status = ?, rules_hash = ? WHERE id = ?",
            [(EFFECTIVE, rules_hash, row["id"]) for row in rows],
        )

    def set_status(self, request_id: str, status: str) -> None:
        """Set the status of a request; a deletion of it is no longer pending."""
        number = _parse_id(request_id)
        rules_hash = None if status == PENDING else self._rules.current().hash
        if not self._state.write(
            "UPDATE whitelist SET status = ?, rules_hash = coalesce(rules_hash, ?) WHERE id = ?",
            *(status, rules_hash, number),
        ):
            raise not_found(f"whitelisted address {request_id}")
        self.deletions.remove(number)

    def pretend_status(self, request_id: int, status: str) -> None:
        """Set the status of a request, and nothing else."""
        self._state.write("UPDATE whitelist SET status = ? WHERE id = ?", status, request_id)

    def change(self, request_id: str, fields: dict[str, Any]) -> None:
        """Change fields of a request, and thereby its payload and hash."""
        found = self._state.rows("SELECT * FROM whitelist WHERE id = ?", _parse_id(request_id))
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        changed = {**json.loads(found[0]["fields"]), **fields}
        self._state.write(
            "UPDATE whitelist SET fields = ?, label = ?, address = ? WHERE id = ?",
            *(json.dumps(changed), changed["label"], changed["address"], found[0]["id"]),
        )

    def set_metadata(self, request_id: str, metadata: dict[str, Any]) -> None:
        """Replace fields in the metadata of a request's envelope."""
        self._state.set_setting(f"metadata {_parse_id(request_id)}", metadata)

    def set_envelope(self, request_id: str, fields: dict[str, Any]) -> None:
        """Replace fields of a request's envelope."""
        self._state.set_setting(f"envelope {_parse_id(request_id)}", fields)

    def set_network_is_hashed(self, is_hashed: bool) -> None:
        """Set whether the network is part of the payload."""
        self._state.set_setting("network_is_hashed", is_hashed)

    def set_status_words(self, words: dict[str, str]) -> None:
        """Set how status words are written, by the sandbox's own words."""
        self._state.set_setting("status_words", words)

    def set_max_signatures(self, number: int | None) -> None:
        """Set how many requests of an approval are signed."""
        self._state.set_setting("max_signatures", number)

    @property
    def max_signatures(self) -> int | None:
        """The number of requests of an approval that are signed; None: all."""
        number: int | None = self._state.get_setting("max_signatures", None)
        return number

    def set_age(self, request_id: str, seconds: float) -> None:
        """Date a request's creation so many seconds back."""
        if not self._state.write(
            "UPDATE whitelist SET created_at = ? WHERE id = ?", timestamp(-seconds), _parse_id(request_id)
        ):
            raise not_found(f"whitelisted address {request_id}")

    def set_lag(self, seconds: float) -> None:
        """Hide requests from the service's operations until they are this old."""
        self._state.set_setting("whitelist_lag", seconds)

    @property
    def behaviour(self) -> Behaviour:
        """How the service treats requests that are created."""
        return Behaviour.model_validate(self._state.get_setting("whitelist_behaviour", {}))

    def set_behaviour(self, behaviour: Behaviour) -> None:
        """Set how the service treats the requests that are created from now on."""
        self._state.set_setting("whitelist_behaviour", behaviour.model_dump())

    def set_currencies(self, currencies: list[str]) -> None:
        """Set the active currencies."""
        self._state.set_setting("currencies", currencies)

    def list_all(self) -> list[dict[str, Any]]:
        """Return the requests of all tenants, with the bodies they were created from."""
        return [
            {
                **json.loads(row["fields"]),
                "id": str(row["id"]),
                "tenantId": row["tenant_id"],
                "userId": row["user_id"],
                "status": row["status"],
                "blockchain": row["blockchain"],
                "createdAt": row["created_at"],
                "body": decode_body(row["body"]),
            }
            for row in self._state.rows("SELECT * FROM whitelist WHERE status != ? ORDER BY id", REMOVED)
        ]

    def _condition(self, caller: Caller, search: Search) -> tuple[str, list[Any]]:
        where, values = [_VISIBLE], list[Any](self._visible_to(caller))
        if search.only_pending:
            where.append("status = ?")
            values.append(PENDING)
        elif not search.include_pending:
            where.append("coalesce(deleted_from, status) NOT IN (?, ?)")
            values += [PENDING, REJECTED]
        if search.ids:
            where.append("id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps([_parse_id(each) for each in search.ids]))
        if search.addresses:
            where.append("address IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(search.addresses))
        if search.blockchain:
            where.append("lower(blockchain) = lower(?)")
            values.append(search.blockchain)
        if search.network:
            where.append("network = ?")
            values.append(search.network)
        if search.query:
            where.append("instr(lower(label || char(10) || address), lower(?))")
            values.append(search.query)
        return " AND ".join(where), values

    def _visible_to(self, caller: Caller) -> tuple[str, str, str, str, bool]:
        latest = timestamp(-self._state.get_setting("whitelist_lag", 0.0))
        return caller.tenant_id, REMOVED, latest, caller.user_id, self.behaviour.creator_sees_own


def _active_currency(currencies: Sequence[str], chain: str) -> str:
    for currency in currencies:
        if equal_ignoring_case(currency, chain):
            return currency
    raise invalid(f"the currency {chain} is not active in the hardware security module")


def _parse_id(text: str) -> int:
    if not is_decimal(text) or len(text) > 19 or int(text) > _MAX_ID:
        raise invalid(f"{text!r} is not an id: a decimal number is expected")
    return int(text)


def _is_pending(row: sqlite3.Row) -> bool:
    return bool((row["deleted_from"] or row["status"]) == PENDING)


def _fields_of(rules: SignedRules) -> dict[str, str]:
    return {"rulesContainer": rules.container, "rulesSignatures": rules.signatures}
