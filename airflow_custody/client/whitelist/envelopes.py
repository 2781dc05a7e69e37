"""Whitelisting requests in the form that the service returns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

from pydantic import StrictInt, StrictStr, ValidationError, WrapValidator

from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.text import sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.verification.keys import UserSignature, read_user_signatures
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_text import read_json_object
from airflow_custody.client.wire import LENIENT, TypedDict


class WireCreated(TypedDict, total=False):
    # Parse strictly, because lenient parsing would read true as the id 1.
    id: StrictStr | StrictInt


class WireCreateResponse(TypedDict, total=False):
    result: WireCreated | None


class WireMetadata(TypedDict, total=False):
    hash: str | None
    payloadAsString: str | None


class WireTrail(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    userId: str | None
    externalUserId: str | None
    action: str | None
    comment: str | None
    date: str | None


class WireSignedAddress(TypedDict, total=False):
    # Signatures may have any type here, so that a malformed entry does not make the other entries unreadable. The
    # verification checks the types.
    signatures: Any


class WireEnvelope(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str
    tenantId: str | None
    status: str | None
    action: str | None
    blockchain: str | None
    network: str | None
    metadata: WireMetadata | None
    signedAddress: WireSignedAddress | None
    # The approvers, as the service sent them. Any type is accepted, because no decision depends on them.
    approvers: Any
    trails: list[WireTrail] | None
    visibilityGroupID: str | None
    rulesContainer: Any
    rulesSignatures: Any
    # Identifies the row's rules in the listing's `rulesContainers`.
    rulesContainerHash: Any
    # Why the row's rules cannot be used. This package adds the field when it reads a listing; evidence contains it.
    rulesFault: Any


class UnreadableRow(dict[str, Any]):
    """An unreadable row of a listing, of which only the id is kept."""


#: The ids of a user, each with its kind, because one user's number may be another user's external id.
UserIds = frozenset[tuple[str, str]]


def user_ids(number: str | None, external: str | None) -> UserIds:
    """
    Return the ids of a user in a comparable form.

    :param number: the id; None or empty: not given.
    :param external: the external id; None or empty: not given.
    """
    return frozenset((kind, each) for kind, each in (("id", number), ("externalUserId", external)) if each)


def _read_row(value: Any, handler: Callable[[Any], Any]) -> Any:
    """Return a row of a listing; if it is unreadable, return only its id."""
    try:
        return handler(value)
    except ValidationError:
        identifier = value.get("id") if isinstance(value, dict) else None
        if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
            raise
        return UnreadableRow(id=str(identifier))


class WireEnvelopes(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    result: list[Annotated[WireEnvelope, WrapValidator(_read_row)]] | None
    totalItems: str | None
    rulesContainers: Any


class WireEnvelopeResponse(TypedDict, total=False):
    result: WireEnvelope | None


class WireSignatures(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    signatures: str | None


class WhitelistEnvelope:
    """
    A whitelisting request in the form that the service returns.

    The hash that signers sign covers only :meth:`payload`. Any other value is only the service's claim.

    :param wire: see :attr:`wire`.
    """

    def __init__(self, wire: WireEnvelope) -> None:
        #: The known fields of the envelope, with the service's own names; numbers are read as text. If the envelope
        #: comes from a listing, its rules are included. For an unreadable row, there is only the id.
        self.wire = wire
        #: The request's id.
        self.id = wire.get("id", "")
        #: Whether the envelope could be read. If not, only the request's id is known.
        self.is_readable = not isinstance(wire, UnreadableRow)
        #: The status word, as sent. The service's vendor does not publish a list of these words.
        self.status = wire.get("status")
        metadata = wire.get("metadata") or {}
        #: The text that the hash covers, as sent.
        self.text = metadata.get("payloadAsString")
        #: The hash that signers sign.
        self.hash = metadata.get("hash")
        #: The id of the request's tenant.
        self.tenant_id = wire.get("tenantId")
        #: The effect of signing the request, as sent. The service's vendor does not publish a list of these words.
        self.action = wire.get("action")
        #: The symbol of the chain, which the hash does not cover.
        self.blockchain = wire.get("blockchain")
        #: The network, which the hash does not cover.
        self.network = wire.get("network")
        #: The group of users who can see the address.
        self.visibility_group_id = wire.get("visibilityGroupID")
        #: The entries of the request's history, as sent.
        self.trails: tuple[WireTrail, ...] = tuple(wire.get("trails") or ())

    @cached_property
    def signings(self) -> tuple[UserSignature, ...]:
        """The readable signatures. They are not verified here."""
        with suppress(RefusalError):
            return tuple(each for each in read_user_signatures(self.wire) if not each.fault)
        return ()

    @cached_property
    def signed_by(self) -> frozenset[str]:
        """
        The external ids of the users with signatures.

        These signatures are not verified, and may cover an earlier hash than the current one.
        """
        return frozenset(each.user_id for each in self.signings)

    @cached_property
    def created_at(self) -> datetime | None:
        """The earliest date in the request's history; None if it is unknown."""
        dates = [parse_timestamp(trail.get("date")) for trail in self.trails]
        return None if None in dates else min(filter(None, dates), default=None)

    @cached_property
    def created_by(self) -> UserIds:
        """The user ids in the earliest entry of the request's history; empty if they are unknown."""
        trails = self.trails
        first = [each for each in trails if len(trails) == 1 or parse_timestamp(each.get("date")) == self.created_at]
        if len(first) != 1 or (len(trails) > 1 and self.created_at is None):
            return frozenset()
        return user_ids(first[0].get("userId"), first[0].get("externalUserId"))

    def read_payload(self) -> dict[str, object]:
        """
        Return the requested content, in the same way as :meth:`payload`.

        :raises RefusalError: for the same reasons as :meth:`payload`. The error does not name the request.
        """
        try:
            if not self.text or not self.hash:
                raise RefusalError("or its hash is missing")
            return read_json_object(self.text, self.hash)
        except RefusalError as error:
            raise RefusalError(f"its payload {error}") from None

    def payload(self) -> dict[str, object]:
        """
        Return the requested content, verified against its hash.

        :return: the JSON object of ``payloadAsString``.
        :raises CustodyResponseError: if payload or hash is missing, or they do not match; if the payload is larger than
            1 MiB, nested too deeply, or not a JSON object; if two of its keys are equal or differ only in case, or a
            known key is written in another case. Such keys are refused because the service's own reader ignores case,
            and uses the last of several equal keys.
        """
        try:
            return self.read_payload()
        except RefusalError as error:
            raise CustodyResponseError(
                f"whitelisting request {sanitize(self.id, 40)} cannot be verified: {error}",
                code="request-differs",
            ) from None

    def __repr__(self) -> str:
        return f"WhitelistEnvelope({self.id!r}, status={self.status!r})"
