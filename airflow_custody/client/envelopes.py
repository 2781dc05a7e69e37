"""
Whitelisting requests as the service shows them.

Published knowledge, not part of the given interface: a service may not offer the look-ups at all.
"""

from __future__ import annotations

import hashlib
import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.models import parse_timestamp
from airflow_custody.client.text import readable

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

if TYPE_CHECKING:
    from airflow_custody.client.models import WhitelistRequest

#: Size in bytes above which a payload is refused unread.
MAX_PAYLOAD_BYTES = 1024 * 1024

_LENIENT = ConfigDict(coerce_numbers_to_str=True)


class WireMetadata(TypedDict, total=False):
    hash: str | None
    payloadAsString: str | None


class WireTrail(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    userId: str | None
    action: str | None
    comment: str | None
    date: str | None


class WireSignature(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    userId: str | None


class WireSigning(TypedDict, total=False):
    signature: WireSignature | None


class WireSignedAddress(TypedDict, total=False):
    signatures: list[WireSigning] | None


class WireEnvelope(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    id: str
    tenantId: str | None
    status: str | None
    action: str | None
    blockchain: str | None
    network: str | None
    metadata: WireMetadata | None
    signedAddress: WireSignedAddress | None
    trails: list[WireTrail] | None
    visibilityGroupID: str | None


class WireEnvelopes(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    result: list[WireEnvelope] | None
    totalItems: str | None


class WireEnvelopeAnswer(TypedDict, total=False):
    result: WireEnvelope | None


class WireSignatures(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    signatures: str | None


class WhitelistEnvelope:
    """
    Show one whitelisting request as a look-up returned it.

    Only :meth:`payload` is covered by the hash that approvers sign; everything else is the service's say-so.
    """

    __slots__ = ("wire",)

    def __init__(self, wire: WireEnvelope) -> None:
        #: The envelope as it was sent, by the names on the wire.
        self.wire = wire

    @property
    def id(self) -> str:
        """The request's id."""
        return self.wire.get("id", "")

    @property
    def status(self) -> str | None:
        """The status word, as sent; the words are not published."""
        return self.wire.get("status")

    @property
    def hash(self) -> str | None:
        """The hash that approvers sign."""
        return (self.wire.get("metadata") or {}).get("hash")

    @property
    def signed_by(self) -> frozenset[str]:
        """The ids of the users who have signed it."""
        signings = (self.wire.get("signedAddress") or {}).get("signatures") or ()
        return frozenset(filter(None, ((each.get("signature") or {}).get("userId") for each in signings)))

    @property
    def created_at(self) -> datetime | None:
        """The date of the first entry of the trail; None if there is no readable one."""
        dates = [parse_timestamp(trail.get("date")) for trail in self.wire.get("trails") or ()]
        return min((date for date in dates if date is not None), default=None)

    def payload(self) -> dict[str, Any]:
        """
        Return what the request asks for, verified against its hash.

        :return: the JSON object of ``payloadAsString``.
        :raises CustodyResponseError: if payload or hash is missing, they do not belong together, or the payload is
            larger than 1 MiB, no JSON object, or names a key twice.
        """
        metadata = self.wire.get("metadata") or {}
        text, hash_ = metadata.get("payloadAsString"), metadata.get("hash")
        if not text or not hash_:
            raise self._unusable("its payload or its hash is missing")
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MAX_PAYLOAD_BYTES:
            raise self._unusable(f"its payload is larger than {MAX_PAYLOAD_BYTES} bytes")
        if hashlib.sha256(data).hexdigest() != hash_:
            raise self._unusable("its payload does not have the hash that the service gives for it")
        try:
            payload = json.loads(text, object_pairs_hook=_without_duplicates)
        except _DuplicateKeyError as error:
            raise self._unusable(f"its payload names {readable(error, 60)} twice") from None
        except (ValueError, RecursionError):
            raise self._unusable("its payload is not JSON") from None
        if not isinstance(payload, dict):
            raise self._unusable("its payload is not a JSON object")
        return payload

    def _unusable(self, why: str) -> CustodyResponseError:
        return CustodyResponseError(f"whitelisting request {readable(self.id, 40)} can not be verified: {why}")

    def __repr__(self) -> str:
        return f"WhitelistEnvelope({self.id!r}, status={self.status!r})"


class _DuplicateKeyError(ValueError):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


# --- is it the one that was asked for? ---------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """
    Say how a payload compares with a request.

    :param differing: fields in which the payload certainly asks for something else.
    :param unclear: fields of which the payload shows too little, or in another spelling, to tell.
    """

    differing: tuple[str, ...]
    unclear: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the payload is what was asked for, in every field."""
        return not self.differing and not self.unclear


def compare(request: WhitelistRequest, payload: Mapping[str, Any]) -> Comparison:
    """
    Compare what was asked for with a verified payload, field by field.

    Takes neither a different spelling nor a missing field for a difference, nor for the same: one would create a
    request twice, the other would take somebody else's.

    :param request: what was asked for.
    :param payload: what :meth:`WhitelistEnvelope.payload` returned.
    :return: the fields that differ, and those that leave it open.
    """
    found: dict[str, list[str]] = {"differing": [], "unclear": []}

    def judge(name: str, verdict: str | None) -> None:
        if verdict:
            found[verdict].append(name)

    asked_chain = request.blockchain or request.currency or ""
    if asked_chain.casefold() != str(payload.get("currency") or "").casefold():
        judge("blockchain", "differing" if payload.get("currency") else "unclear")
    for name in ("address", "label"):
        judge(name, _text_verdict(getattr(request, name), payload.get(name)))
    for name, key in (("memo", "memo"), ("customer_id", "customerId"), ("exchange_account_id", "exchangeAccountId")):
        judge(name, _text_verdict(getattr(request, name), payload.get(key)))
    for name, key in (("network", "network"), ("address_type", "addressType"), ("contract_type", "contractType")):
        # What was left to the service may have got a value there.
        if getattr(request, name) is not None:
            judge(name, _text_verdict(getattr(request, name), payload.get(key)))
    judge(
        "linked_internal_address_ids",
        _links_verdict(request.linked_internal_address_ids, payload.get("linkedInternalAddresses") or ()),
    )
    # Only some payloads show the wallets: that none are there does not say that none were asked for.
    wallets = payload.get("linkedWallets")
    if request.linked_wallet_ids and wallets is None:
        judge("linked_wallet_ids", "unclear")
    else:
        judge("linked_wallet_ids", _links_verdict(request.linked_wallet_ids, wallets or ()))
    return Comparison(tuple(found["differing"]), tuple(found["unclear"]))


def _text_verdict(asked: str | None, shown: object) -> str | None:
    asked, shown = asked or "", "" if shown is None else str(shown)
    if asked == shown:
        return None
    return "unclear" if not shown or _loosely(asked) == _loosely(shown) else "differing"


def _loosely(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _links_verdict(asked: Iterable[str] | None, shown: object) -> str | None:
    if not isinstance(shown, (list, tuple)) or not all(isinstance(link, Mapping) and link.get("id") for link in shown):
        return "unclear"
    return None if set(asked or ()) == {str(link["id"]) for link in shown} else "differing"
