"""Whitelisting requests: creating them and finding them again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.listings import Listing
from airflow_custody.sandbox.request_log import decode_body
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import Caller
from airflow_custody.sandbox.whitelist.addresses import is_valid_address
from airflow_custody.sandbox.whitelist.behaviour import Behaviour
from airflow_custody.sandbox.whitelist.deletions import MARKED, Deletions
from airflow_custody.sandbox.whitelist.envelopes import build_envelope
from airflow_custody.sandbox.wire import dumps, equal_ignoring_case, is_decimal, omit_empty, timestamp

DEFAULT_CURRENCIES = ["ETH", "BTC", "XRP", "SOL", "ADA", "XLM"]
DEFAULT_LIMIT = 20
MAX_LIMIT = 100

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
    seen_from TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS signatures (
    request_id INTEGER NOT NULL, user_id TEXT NOT NULL, group_id TEXT NOT NULL, signature TEXT NOT NULL,
    comment TEXT NOT NULL, hashes TEXT NOT NULL, signed_at TEXT NOT NULL, PRIMARY KEY (request_id, user_id)
);
CREATE INDEX IF NOT EXISTS whitelist_by_address ON whitelist (address);
"""
# A request whose deletion is pending has the status that it had before in `deleted_from`.
_ROWS = f"SELECT whitelist.*, deleted_from FROM {MARKED}"
_VISIBLE = "tenant_id = ? AND status != ? AND seen_from <= ? AND (user_id != ? OR ?)"

NotBlank = Annotated[str, StringConstraints(pattern=r"\S")]
LinkedId = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
# That other words are refused is an assumption.
AddressType = Literal["individual", "exchange", "baker", "contract", "stakepool", "validator", "node", "fiatprovider"]


class NewRequest(BaseModel):
    """The body of a create."""

    # An unknown field is ignored, and null means not given.
    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)

    blockchain: str | None = None
    currency: str | None = None
    label: NotBlank
    address: NotBlank
    linked_internal_address_ids: list[LinkedId] | None = None
    linked_wallet_ids: list[LinkedId] | None = None
    network: str | None = None
    memo: str | None = None
    address_type: AddressType | None = None
    contract_type: str | None = None
    customer_id: str | None = None
    exchange_account_id: str | None = None
    visibility_group_id: str | None = Field(None, alias="visibilityGroupID")

    @property
    def chain(self) -> str:
        """The chain, which `blockchain` or its deprecated alias `currency` names."""
        if self.blockchain and self.currency and not equal_ignoring_case(self.blockchain, self.currency):
            raise invalid(f"blockchain {self.blockchain} and currency {self.currency} are not the same")
        chain = self.blockchain or self.currency
        if not chain or not chain.strip():
            raise invalid("blockchain: Field required")
        return chain


class Search(BaseModel):
    """What to list, and which page of it."""

    limit: int = 0
    offset: int = 0
    ids: list[str] = []
    addresses: list[str] = []
    blockchain: str | None = None
    network: str | None = None
    query: str | None = None
    include_pending: bool = False
    only_pending: bool = False

    @property
    def page_size(self) -> int:
        """The number of requests on a page."""
        return self.limit or DEFAULT_LIMIT


class WhitelistStore:
    """The store of whitelisting requests and their signatures."""

    def __init__(self, state: State, users: UserStore) -> None:
        self._state = state
        self._users = users
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
        behaviour, approvers, now = self.behaviour, self._state.get_setting("approvers", None), timestamp()
        currencies = self._state.get_setting("currencies", DEFAULT_CURRENCIES)
        (first,) = self._state.rows("SELECT coalesce(max(id) + 1, ?) FROM whitelist", _FIRST_ID)[0]
        rows = []
        for number, (request, body) in enumerate(requests, start=first):
            chain = _active_currency(currencies, request.chain)
            if not is_valid_address(chain, request.address):
                raise invalid(f"the address does not follow the rules of {chain}")
            fields = behaviour.stored(request.model_dump(by_alias=True, exclude_none=True))
            rows.append(
                (
                    *(number, tenant_id, user_id, status, behaviour.chain_name or chain),
                    *(fields.get("network", ""), fields["label"], fields["address"], json.dumps(fields), body),
                    *(behaviour.dated(), json.dumps(approvers or _default_approvers(fields)), now),
                )
            )
        self._state.write_many("INSERT INTO whitelist VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return [str(row[0]) for row in rows]

    def search(self, **parameters: Any) -> Search:
        """Return the search that these query parameters ask for, as far as the listing understands them."""
        search = Search(**self.listing.understood(parameters))
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

    def get(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """Return the envelope of one request of the caller's tenant."""
        return self.envelope(self.row(caller, request_id))

    def find(self, caller: Caller, search: Search) -> dict[str, Any]:
        """Return one page of the requests that match a search, in the order of their ids (an assumption)."""
        if self.listing.is_arranged:
            found = self.rows(caller, search)
            return self.page(found[search.offset : search.offset + search.page_size], len(found))
        condition, values = self._condition(caller, search)
        (total,) = self._state.rows(f"SELECT count(*) FROM {MARKED} WHERE {condition}", *values)[0]
        rows = self._state.rows(
            f"{_ROWS} WHERE {condition} ORDER BY id LIMIT ? OFFSET ?",
            *(*values, search.page_size, search.offset),
        )
        return self.page(rows, total)

    def page(self, rows: Sequence[sqlite3.Row], total: int) -> dict[str, Any]:
        """Return one page of a listing."""
        return omit_empty(result=[self.envelope(row) for row in rows], totalItems=self.listing.total(total))

    def envelope(self, row: sqlite3.Row) -> dict[str, Any]:
        """Return the envelope of a request."""
        return build_envelope(
            row,
            self.signatures(row),
            external_id=self._users.external_id,
            network_is_hashed=self._state.get_setting("network_is_hashed", True),
            status_words=self._state.get_setting("status_words", {}),
            metadata=self._state.get_setting(f"metadata {row['id']}", {}),
            replaced=self._state.get_setting(f"envelope {row['id']}", {}),
        )

    def signatures(self, row: sqlite3.Row) -> list[sqlite3.Row]:
        """Return the signatures of a request, in the order in which they were made."""
        return self._state.rows("SELECT * FROM signatures WHERE request_id = ? ORDER BY rowid", row["id"])

    def add_signature(
        self, row: sqlite3.Row, caller: Caller, *, group: str, signature: str, comment: str, hashes: list[str]
    ) -> None:
        """Add the caller's signature, made for a group of approvers, to a request."""
        self._state.write(
            "INSERT INTO signatures VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(row["id"], caller.user_id, group, signature, comment, json.dumps(hashes), timestamp()),
        )

    def set_status(self, request_id: str, status: str) -> None:
        """Set the status of a request; a deletion of it is no longer pending."""
        number = _parse_id(request_id)
        if not self._state.write("UPDATE whitelist SET status = ? WHERE id = ?", status, number):
            raise not_found(f"whitelisted address {request_id}")
        self.deletions.remove(number)

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

    def set_approvers(self, branches: list[dict[str, Any]] | None) -> None:
        """Set who must sign the requests that are created from now on."""
        self._state.set_setting("approvers", branches)

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


def _default_approvers(fields: dict[str, Any]) -> list[dict[str, Any]]:
    # With both linked lists other thresholds apply; the numbers are assumptions.
    both = fields.get("linkedInternalAddressIds") and fields.get("linkedWalletIds")
    return [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2 if both else 1}]}]
