"""Creates, finds and changes whitelisting requests."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_custody.sandbox.errors import ServiceError, invalid, not_found
from airflow_custody.sandbox.listings import Listing
from airflow_custody.sandbox.request_log import decode_body
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tenant.store import TenantStore
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.whitelist.envelopes import build_envelope, share_rules
from airflow_custody.sandbox.whitelist.models import ApprovalSearch, NewRequest, Search
from airflow_custody.sandbox.wire import dumps, is_decimal, omit_empty, timestamp

# Only the status word for a request in effect is published; the other words are assumptions. The setting `status_words`
# changes the words on the wire.
PENDING = "pending"
#: The status of a request with all required signatures.
EFFECTIVE = "APPROVED"
#: The status of a rejected request, which is listed only together with pending requests.
REJECTED = "rejected"
#: The status of a deleted request. The request stays in the store, so that its id is not reused.
REMOVED = "removed"

_FIRST_ID = 3711
# Ids are 64-bit integers.
_MAX_ID = 2**63 - 1

# `rules_hash` identifies the rules in force when a request was settled. NULL: the request was never settled.
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
_VISIBLE = "tenant_id = ? AND status != ? AND seen_from <= ? AND (user_id != ? OR ?)"


class WhitelistStore:
    """The store of whitelisting requests and their signatures."""

    def __init__(self, state: State, users: UserStore, rules: RuleStore, tenant: TenantStore) -> None:
        self._state = state
        self._users = users
        self._rules = rules
        self._tenant = tenant
        #: The behaviour of the listings.
        self.listing = Listing(state, "whitelist")
        state.create_tables(_TABLES)

    # --- creating -----------------------------------------------------------------------------------------------

    def create(self, caller: Caller, request: NewRequest, body: bytes) -> str:
        """Create a request, and return its id."""
        (request_id,) = self.add(caller.tenant_id, caller.user_id, PENDING, [(request, body)])
        return request_id

    def add(self, tenant_id: str, user_id: str, status: str, requests: list[tuple[NewRequest, bytes]]) -> list[str]:
        """Add requests as if a user had created them. Return their ids."""
        settings, now = self._state.settings, timestamp()
        rules_hash = None if status == PENDING else self._rules.current()["hash"]
        (first,) = self._state.rows("SELECT coalesce(max(id) + 1, ?) FROM whitelist", _FIRST_ID)[0]
        approvers = json.dumps(self._rules.approvers())
        rows = []
        for number, (request, body) in enumerate(requests, start=first):
            chain, fields = self._accept(tenant_id, request)
            stored = (fields.get("network", ""), fields["label"], fields["address"], json.dumps(fields))
            created_at = settings.created_at or timestamp(settings.clock_offset)
            rows.append(
                (number, tenant_id, user_id, status, chain, *stored, body, created_at, approvers, now, rules_hash)
            )
        self._state.write_many("INSERT INTO whitelist VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return [str(row[0]) for row in rows]

    def _accept(self, tenant_id: str, request: NewRequest) -> tuple[str, dict[str, Any]]:
        """Return chain and fields in stored form, or reject the request."""
        settings = self._state.settings
        chain = self._tenant.active_chain(request.chain, request.network or "")
        if unusable := {*settings.unusable_links}.intersection(request.linked_internal_address_ids or ()):
            raise invalid(f"linked address {min(unusable)} is on another blockchain, or in an omnibus wallet")
        # Addresses of other chains are not checked.
        if chain == "ETH" and not re.fullmatch("0x[0-9a-fA-F]{40}", request.address):
            raise invalid(f"not a valid address on {chain}")
        fields = self._stored(request.model_dump(by_alias=True, exclude_none=True))
        taken = "SELECT 1 FROM whitelist WHERE tenant_id = ? AND address = ? AND status NOT IN (?, ?)"
        values = (tenant_id, fields["address"], REJECTED, REMOVED)
        if not settings.second_requests and self._state.rows(taken, *values):
            raise ServiceError(409, "the address is already whitelisted, or a request for it is pending")
        return settings.chain_name or chain, fields

    def _stored(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a request in stored form."""
        settings, address = self._state.settings, fields["address"]
        found = {**settings.fill, **fields, "label": fields["label"][: settings.label_length]}
        if settings.drop_links:
            found = {name: value for name, value in found.items() if not name.startswith("linked")}
        forms = {"lower": address.lower(), "upper": address.upper(), "no prefix": address.removeprefix("0x")}
        return {**found, "address": forms.get(settings.address_form, address)}

    # --- finding ------------------------------------------------------------------------------------------------

    def row(self, caller: Caller, request_id: str) -> sqlite3.Row:
        """Return one request of the caller's tenant."""
        found = self._state.rows(
            f"SELECT * FROM whitelist WHERE id = ? AND {_VISIBLE}", _parse_id(request_id), *self._visible_to(caller)
        )
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        return found[0]

    def rows(self, caller: Caller, search: Search | ApprovalSearch) -> list[sqlite3.Row]:
        """Return all requests that match a search, on all pages."""
        condition, values = self._condition(caller, search)
        rows = self._state.rows(f"SELECT * FROM whitelist WHERE {condition} ORDER BY id", *values)
        return self.listing.arrange(rows, lambda row: str(row["id"]))

    def rows_by_id(self, ids: Sequence[str]) -> list[sqlite3.Row]:
        """
        Return requests of any tenant, ordered by id and without duplicates.

        :raises ServiceError: if a request does not exist or was removed.
        """
        numbers = {_parse_id(each) for each in ids}
        rows = self._state.rows(
            "SELECT * FROM whitelist WHERE id IN (SELECT value FROM json_each(?)) AND status != ? ORDER BY id",
            *(json.dumps(sorted(numbers)), REMOVED),
        )
        if missing := numbers - {row["id"] for row in rows}:
            raise not_found(f"whitelisted address {min(missing)}")
        return rows

    def get(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """Return the envelope of one request of the caller's tenant."""
        (envelope,) = self.envelopes([self.row(caller, request_id)])
        return envelope

    def find(self, caller: Caller, search: Search) -> dict[str, Any]:
        """Return one page of matching requests, ordered by id (an assumption)."""
        search = self.listing.understood(search)
        if self.listing.is_arranged:
            found = self.rows(caller, search)
            return self.page(self.cut(found, search), len(found), rules_once=search.rules_once)
        condition, values = self._condition(caller, search)
        (total,) = self._state.rows(f"SELECT count(*) FROM whitelist WHERE {condition}", *values)[0]
        rows = self._state.rows(
            f"SELECT * FROM whitelist WHERE {condition} ORDER BY id LIMIT ? OFFSET ?",
            *(*values, self.listing.page_size(search.limit), search.offset),
        )
        return self.page(rows, total, rules_once=search.rules_once)

    def cut(self, rows: list[sqlite3.Row], search: Search | ApprovalSearch) -> list[sqlite3.Row]:
        """Return the rows of one page."""
        return self.listing.cut(rows, lambda row: str(row["id"]), search.offset, search.limit)

    def page(self, rows: Sequence[sqlite3.Row], total: int, *, rules_once: bool = False) -> dict[str, Any]:
        """
        Return one page of a listing.

        :param rows: the requests of the page.
        :param total: number of all requests of the listing.
        :param rules_once: whether the rules are returned once, beside the requests, and not in each request.
        """
        envelopes, containers = self.envelopes(rows), list[dict[str, str]]()
        if rules_once:
            envelopes, containers = share_rules(envelopes)
        return omit_empty(result=envelopes, totalItems=self.listing.total(total), rulesContainers=containers)

    def envelopes(self, rows: Sequence[sqlite3.Row]) -> list[dict[str, Any]]:
        """Return the envelopes of requests."""
        rules, settings = self._rules_of(rows), self._state.settings
        return [
            build_envelope(
                row,
                self._signatures(row),
                settings=settings,
                external_id=self._users.external_id,
                rules=_fields_of(rules[row["id"]]) if settings.rules_on_pending or not _is_pending(row) else {},
                metadata=self._state.load(f"metadata {row['id']}", {}),
                replaced=self._state.load(f"envelope {row['id']}", {}),
            )
            for row in rows
        ]

    def _rules_of(self, rows: Sequence[sqlite3.Row]) -> dict[int, sqlite3.Row]:
        """
        Return the rules of requests, by request id.

        A settled request has the rules under which it took effect. A pending request has the rules in force.
        """
        current = self._rules.current()
        hashes = {row["id"]: row["rules_hash"] for row in rows if not _is_pending(row)}
        versions = self._rules.versions(filter(None, hashes.values()))
        return {row["id"]: versions.get(hashes.get(row["id"]) or "", current) for row in rows}

    def _signatures(self, row: sqlite3.Row) -> list[sqlite3.Row]:
        """Return the signatures of a request, in the order of signing."""
        return self._state.rows(
            "SELECT signatures.*, hashes FROM signatures JOIN signed_lists ON hash = list_hash "
            "WHERE request_id = ? ORDER BY signatures.rowid",
            row["id"],
        )

    def _condition(self, caller: Caller, search: Search | ApprovalSearch) -> tuple[str, list[Any]]:
        where, values = [_VISIBLE], list[Any](self._visible_to(caller))
        if isinstance(search, ApprovalSearch):
            where.append("status = ?")
            values.append(PENDING)
        elif not search.include_pending:
            where.append("status NOT IN (?, ?)")
            values += [PENDING, REJECTED]
        if search.ids:
            where.append("id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps([_parse_id(each) for each in search.ids]))
        if isinstance(search, Search) and search.addresses:
            where.append("address IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(search.addresses))
        return " AND ".join(where), values

    def _visible_to(self, caller: Caller) -> tuple[str, str, str, str, bool]:
        settings = self._state.settings
        latest = timestamp(-settings.whitelist_lag)
        return caller.tenant_id, REMOVED, latest, caller.user_id, settings.creator_sees_own

    # --- signing -----------------------------------------------------------------------------------

    def signers(self, rows: Sequence[sqlite3.Row]) -> dict[int, dict[str, str]]:
        """Return the signing users and their groups, by request."""
        found: dict[int, dict[str, str]] = {row["id"]: {} for row in rows}
        query = "SELECT * FROM signatures WHERE request_id IN (SELECT value FROM json_each(?))"
        for each in self._state.rows(query, json.dumps([*found])):
            found[each["request_id"]][each["user_id"]] = each["group_id"]
        return found

    def add_signatures(
        self, rows: Sequence[sqlite3.Row], user_id: str, group: str, signature: str, comment: str, hashes: list[str]
    ) -> None:
        """Add a group's signature over a list of hashes to requests."""
        text, now = json.dumps(hashes), timestamp()
        list_hash = hashlib.sha256(text.encode()).hexdigest()
        self._state.write("INSERT OR IGNORE INTO signed_lists VALUES (?, ?)", list_hash, text)
        self._state.write_many(
            "INSERT INTO signatures VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(row["id"], user_id, group, signature, comment, list_hash, now) for row in rows],
        )

    def take_effect(self, rows: Sequence[sqlite3.Row]) -> None:
        """Put requests into effect, under the rules in force."""
        rules_hash = self._rules.current()["hash"]
        self._state.write_many(
            "UPDATE whitelist SET status = ?, rules_hash = ? WHERE id = ?",
            [(EFFECTIVE, rules_hash, row["id"]) for row in rows],
        )

    # --- control ------------------------------------------------------------------------------------------------

    def whitelist_requests(self) -> list[dict[str, Any]]:
        """
        Return the whitelisting requests of all tenants.

        Each request has its fields by their names on the wire, and `id`, `tenantId`, `userId`, `status`, `createdAt`
        and `body` (the body of the call that created the request).
        """
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

    def set_whitelist_status(self, request_id: str, status: str) -> None:
        """
        Set the status of a whitelisting request, without adding signatures.

        With any status other than ``pending``, the request no longer waits for approval. A request that takes effect in
        this way lacks signatures, like a forged request. A request with the status ``removed`` can no longer be found,
        as if it had been deleted.

        :param request_id: the request's id.
        :param status: the new status.
        """
        rules_hash = self._any_row(request_id)["rules_hash"]
        if rules_hash is None and status != PENDING:
            rules_hash = self._rules.current()["hash"]
        self._update(request_id, status=status, rules_hash=rules_hash)

    def set_whitelist_age(self, request_id: str, seconds: float) -> None:
        """
        Set the age of a whitelisting request, by changing its creation date.

        :param request_id: the request's id.
        :param seconds: the age, in seconds.
        """
        self._update(request_id, created_at=timestamp(-seconds))

    def change_whitelist_request(self, /, request_id: str, **fields: object) -> None:
        """
        Change fields of a whitelisting request. This also changes its payload and hash.

        :param request_id: the request's id.
        :param fields: new values, by the names on the wire.
        """
        changed = {**json.loads(self._any_row(request_id)["fields"]), **fields}
        self._update(request_id, fields=json.dumps(changed), label=changed["label"], address=changed["address"])

    def set_whitelist_metadata(self, /, request_id: str, **metadata: object) -> None:
        """
        Replace fields in the returned metadata of a whitelisting request.

        :param request_id: the request's id.
        :param metadata: new values, by the names on the wire, such as ``hash`` or ``payloadAsString``. None removes the
            field.
        """
        self._state.save(f"metadata {_parse_id(request_id)}", metadata)

    def set_whitelist_envelope(self, /, request_id: str, **fields: object) -> None:
        """
        Replace fields in the returned envelope of a whitelisting request.

        :param request_id: the request's id.
        :param fields: new values, by the names on the wire. None removes the field.
        """
        self._state.save(f"envelope {_parse_id(request_id)}", fields)

    def _any_row(self, request_id: str) -> sqlite3.Row:
        found = self._state.rows("SELECT * FROM whitelist WHERE id = ?", _parse_id(request_id))
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        return found[0]

    def _update(self, request_id: str, **columns: object) -> int:
        """Change columns of a request, and return its id."""
        number: int = self._any_row(request_id)["id"]
        changes = ", ".join(f"{name} = ?" for name in columns)
        self._state.write(f"UPDATE whitelist SET {changes} WHERE id = ?", *columns.values(), number)
        return number


def added(request: Mapping[str, Any]) -> tuple[NewRequest, bytes]:
    """Return a request with these fields, and the body that creates it."""
    new = NewRequest.model_validate(request)
    return new, dumps(new.model_dump(by_alias=True, exclude_none=True)).encode()


def _parse_id(text: str) -> int:
    is_short_number = is_decimal(text) and len(text) <= 19
    if not is_short_number or int(text) > _MAX_ID:
        raise invalid(f"{text!r} is not an id (a decimal number)")
    return int(text)


def _is_pending(row: sqlite3.Row) -> bool:
    return bool(row["status"] == PENDING)


def _fields_of(rules: sqlite3.Row) -> dict[str, str]:
    return {"rulesContainer": rules["container"], "rulesSignatures": rules["signatures"]}
