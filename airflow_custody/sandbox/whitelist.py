"""Keep whitelisting requests."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from airflow_custody.sandbox.addresses import follows_rules
from airflow_custody.sandbox.errors import invalid, not_found
from airflow_custody.sandbox.received import readable
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tokens import Caller
from airflow_custody.sandbox.wire import MAX_ID, dumps, is_number, present, same_text, stamp, without_none

DEFAULT_CURRENCIES = ["ETH", "BTC", "XRP", "SOL", "ADA", "XLM"]

# The words of `status` and of the trail's `action` are not published: these are guesses.
WAITING = "waiting"
#: Signed by enough people.
EFFECTIVE = "active"
#: Shown only where those that wait are shown too, and by its id.
REJECTED = "rejected"
#: Not shown by any look-up, as if it was deleted; kept because its id must not be given again.
REMOVED = "removed"
_CREATED = "created"
_APPROVED = "approved"

_FIRST_ID = 3711
_DEFAULT_LIMIT = 20
MAX_LIMIT = 100

NotBlank = Annotated[str, StringConstraints(pattern=r"\S")]
LinkedId = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
# The words are published knowledge, that others are refused is a guess.
AddressType = Literal["individual", "exchange", "baker", "contract", "stakepool", "validator", "node", "fiatprovider"]


class NewAddress(BaseModel):
    """Describe the body of a create.

    The chain, label, address and the linked ids are part of the given interface; the other fields, and that
    the linked ids are decimal numbers, are published knowledge.
    """

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
        """Name the chain, by `blockchain` or by its deprecated alias."""
        if self.blockchain and self.currency and not same_text(self.blockchain, self.currency):
            raise invalid(f"blockchain {self.blockchain} and currency {self.currency} are not the same")
        chain = self.blockchain or self.currency
        if not chain or not chain.strip():
            raise invalid("blockchain: Field required")
        return chain


class Search(BaseModel):
    """Describe which requests to list (published knowledge)."""

    limit: int = 0
    offset: int = 0
    ids: list[str] = []
    addresses: list[str] = []
    blockchain: str | None = None
    network: str | None = None
    query: str | None = None
    waiting_too: bool = False
    waiting_only: bool = False

    @property
    def page_size(self) -> int:
        """Tell how many come at once."""
        return self.limit or _DEFAULT_LIMIT


class WhitelistBook:
    """Create whitelisting requests and find them again."""

    def __init__(self, state: State) -> None:
        self._state = state

    def create(self, caller: Caller, asked: NewAddress, body: bytes) -> str:
        """Keep a request and return its id; the same again is a new one, as nothing tells them apart."""
        chain = self._active(asked.chain)
        if not follows_rules(chain, asked.address):
            raise invalid(f"the address does not follow the rules of {chain}")
        fields = asked.model_dump(by_alias=True, exclude_none=True)
        number = self._state.insert(
            "INSERT INTO whitelist SELECT coalesce(max(id) + 1, ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM whitelist",
            *(_FIRST_ID, caller.tenant_id, caller.user_id, WAITING, chain, asked.network or ""),
            *(asked.label, asked.address, json.dumps(fields), body, stamp()),
            json.dumps(self._state.setting("approvers", None) or _approvers(fields)),
        )
        return str(number)

    def get(self, caller: Caller, request_id: str) -> dict[str, Any]:
        """Show one request of the caller's tenant."""
        return self.envelope(self.row(caller, request_id))

    def row(self, caller: Caller, request_id: str) -> sqlite3.Row:
        """Find one request of the caller's tenant."""
        found = self._state.rows(
            f"SELECT * FROM whitelist WHERE id = ? AND {self._SHOWN}", _number(request_id), *self._shown_to(caller)
        )
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        return found[0]

    def find(self, caller: Caller, search: Search) -> dict[str, Any]:
        """List requests of the caller's tenant, page by page, in the order of their ids (a guess)."""
        condition, values = self._condition(caller, search)
        (total,) = self._state.rows(f"SELECT count(*) FROM whitelist WHERE {condition}", *values)[0]
        rows = self._state.rows(
            f"SELECT * FROM whitelist WHERE {condition} ORDER BY id LIMIT ? OFFSET ?",
            *(*values, search.page_size, search.offset),
        )
        return present(result=[self.envelope(row) for row in rows], totalItems=str(total) if total else "")

    def rows(self, caller: Caller, search: Search) -> list[sqlite3.Row]:
        """Find all requests that a search is for, whatever its page."""
        condition, values = self._condition(caller, search)
        return self._state.rows(f"SELECT * FROM whitelist WHERE {condition} ORDER BY id", *values)

    def _condition(self, caller: Caller, search: Search) -> tuple[str, list[Any]]:
        where, values = [self._SHOWN], list[Any](self._shown_to(caller))
        if search.waiting_only:
            where.append("status = ?")
            values.append(WAITING)
        elif not search.waiting_too:
            where.append("status NOT IN (?, ?)")
            values += [WAITING, REJECTED]
        if search.ids:
            where.append("id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps([_number(one) for one in search.ids]))
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

    def signatures(self, row: sqlite3.Row) -> list[sqlite3.Row]:
        """List who has signed a request."""
        return self._state.rows("SELECT * FROM signatures WHERE request_id = ? ORDER BY rowid", row["id"])

    def envelope(self, row: sqlite3.Row) -> dict[str, Any]:
        """Wrap a request the way look-ups show it (published knowledge)."""
        fields = json.loads(row["fields"])
        payload = _payload(row["blockchain"], fields)
        text = dumps(payload)
        metadata = {"hash": hashlib.sha256(text.encode()).hexdigest(), "payloadAsString": text, "payload": payload}
        metadata.update(self._state.setting(f"metadata {row['id']}", {}))
        signatures = self.signatures(row)
        created = {"id": "1", "userId": row["user_id"], "action": _CREATED, "date": row["created_at"]}
        return present(
            id=str(row["id"]),
            tenantId=row["tenant_id"],
            status=row["status"],
            action="create",
            blockchain=row["blockchain"],
            network=row["network"],
            metadata=without_none(metadata),
            signedAddress=_signed(text, signatures),
            approvers={"parallel": json.loads(row["approvers"])},
            trails=[created, *(_signed_trail(number, each) for number, each in enumerate(signatures, start=2))],
            visibilityGroupID=fields.get("visibilityGroupID", ""),
        )

    def change(self, request_id: str, fields: dict[str, Any]) -> None:
        """Change a request behind everybody's back, so that its payload and hash change."""
        found = self._state.rows("SELECT * FROM whitelist WHERE id = ?", _number(request_id))
        if not found:
            raise not_found(f"whitelisted address {request_id}")
        (row,) = found
        changed = {**json.loads(row["fields"]), **fields}
        self._state.write(
            "UPDATE whitelist SET fields = ?, label = ?, address = ? WHERE id = ?",
            *(json.dumps(changed), changed["label"], changed["address"], row["id"]),
        )

    def set_metadata(self, request_id: str, metadata: dict[str, Any]) -> None:
        """Show a request with this in its metadata, whatever that makes of it."""
        self._state.set(f"metadata {_number(request_id)}", metadata)

    def set_approvers(self, branches: list[dict[str, Any]] | None) -> None:
        """Say who must sign the requests that are created from now on."""
        self._state.set("approvers", branches)

    def everything(self) -> list[dict[str, Any]]:
        """List all requests with what was received, for tests."""
        return [
            {
                **json.loads(row["fields"]),
                "id": str(row["id"]),
                "tenantId": row["tenant_id"],
                "userId": row["user_id"],
                "status": row["status"],
                "blockchain": row["blockchain"],
                "createdAt": row["created_at"],
                "body": readable(row["body"]),
            }
            for row in self._state.rows("SELECT * FROM whitelist WHERE status != ? ORDER BY id", REMOVED)
        ]

    def set_status(self, request_id: str, status: str) -> None:
        """Change a request's status, as if enough people had signed it."""
        if not self._state.write("UPDATE whitelist SET status = ? WHERE id = ?", status, _number(request_id)):
            raise not_found(f"whitelisted address {request_id}")

    def set_age(self, request_id: str, seconds: float) -> None:
        """Make a request look as if it had been created so long ago."""
        if not self._state.write(
            "UPDATE whitelist SET created_at = ? WHERE id = ?", stamp(-seconds), _number(request_id)
        ):
            raise not_found(f"whitelisted address {request_id}")

    def set_lag(self, seconds: float) -> None:
        """Show requests in look-ups only when they are so old."""
        self._state.set("whitelist_lag", seconds)

    _SHOWN = "tenant_id = ? AND status != ? AND created_at <= ?"

    def _shown_to(self, caller: Caller) -> tuple[str, str, str]:
        return caller.tenant_id, REMOVED, stamp(-self._state.setting("whitelist_lag", 0.0))

    def currencies(self) -> list[str]:
        """List the active currencies."""
        return list(self._state.setting("currencies", DEFAULT_CURRENCIES))

    def set_currencies(self, currencies: list[str]) -> None:
        """Change the active currencies."""
        self._state.set("currencies", currencies)

    def _active(self, chain: str) -> str:
        for currency in self.currencies():
            if same_text(currency, chain):
                return currency
        raise invalid(f"the currency {chain} is not active in the hardware security module")


def _number(text: str) -> int:
    if not is_number(text) or len(text) > 19 or int(text) > MAX_ID:
        raise invalid(f"{text!r} is not an id: a decimal number is expected")
    return int(text)


def _signed(payload: str, signatures: list[sqlite3.Row]) -> dict[str, Any] | None:
    if not signatures:
        return None
    return {
        "payload": payload,
        "signatures": [
            {
                "signature": {"userId": each["user_id"], "signature": each["signature"], "comment": each["comment"]},
                "hashes": json.loads(each["hashes"]),
            }
            for each in signatures
        ],
    }


def _signed_trail(number: int, signature: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": str(number),
        "userId": signature["user_id"],
        "action": _APPROVED,
        "comment": signature["comment"],
        "date": signature["signed_at"],
    }


def _payload(blockchain: str, fields: dict[str, Any]) -> dict[str, Any]:
    payload = {
        "currency": blockchain,
        "addressType": fields.get("addressType", ""),
        "address": fields["address"],
        "memo": fields.get("memo", ""),
        "label": fields["label"],
        "customerId": fields.get("customerId", ""),
        "exchangeAccountId": fields.get("exchangeAccountId", ""),
        # The sandbox has no internal addresses or wallets: it makes up what it says about them.
        "linkedInternalAddresses": [
            {"id": one, "address": f"internal-address-{one}", "label": f"Internal address {one}"}
            for one in fields.get("linkedInternalAddressIds", [])
        ],
        "contractType": fields.get("contractType", ""),
        "tnParticipantID": "",
    }
    if wallets := fields.get("linkedWalletIds"):
        payload["linkedWallets"] = [
            {"id": one, "path": f"m/44'/60'/{one}'", "label": f"Wallet {one}"} for one in wallets
        ]
    if network := fields.get("network"):
        payload["network"] = network
    return payload


def _approvers(fields: dict[str, Any]) -> list[dict[str, Any]]:
    # That other thresholds apply with both linked lists is published knowledge, the numbers are guesses.
    both = fields.get("linkedInternalAddressIds") and fields.get("linkedWalletIds")
    return [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2 if both else 1}]}]
