"""Check whether a user may sign a request, or has signed it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.text import escape, lines, name_some, sanitize
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.results import RefusalError, RequestSignatures
from airflow_custody.client.verification.signature_count import Entry, read_entries
from airflow_custody.client.verification.signed_text import read_signed_text
from airflow_custody.client.verification.trust import (
    ReportedState,
    Trust,
    decide_trust,
    what_to_do,
)
from airflow_custody.client.whitelist.comparison import check_asked

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.signers.key import SigningKey
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.verification.keys import PublicKey
    from airflow_custody.client.verification.rules_in_force import PendingVerifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest


def message_to_sign(hashes: Iterable[str]) -> bytes:
    """
    Return the bytes that a signature covers.

    :param hashes: the requests' current hashes, in ascending order of the requests' ids.
    :return: a JSON array of the hashes, without white space.
    """
    return json.dumps(list(hashes), separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class SigningReview:
    """
    The review of requests before a user signs them.

    :param expected: the expected content of each request, by id; None: any content.
    :param settings: the client's settings, with the status words and the accepted fields.
    :param user: the user, as far as the service returns it.
    :param key: the signer's key. Its public key identifies this user's signatures. If the public key is unknown, the
        user's external id does.
    :param verifier: verifies the existing signatures of the requests; None: they are not verified.
    """

    expected: Mapping[str, WhitelistRequest] | None
    settings: ClientSettings
    user: WireUser
    key: SigningKey
    verifier: PendingVerifier | None

    def check(self, envelope: WhitelistEnvelope) -> str:
        """
        Review a request, and return the whole content for the log.

        :param envelope: the request, as it was read.
        :raises CustodyVerificationError: if the pinned keys have not signed its rules, or one of its signatures is
            invalid.
        :raises CustodyError: if part of its content is not expected.
        """
        payload = envelope.payload()
        request = None if self.expected is None else self.expected[envelope.id]
        comparison = check_asked(request, envelope, payload, self.settings, tenant_id=self.user.get("tenantId"))
        try:
            # Another kind of text is never signed, because its signature could be used for another kind of request.
            read_signed_text(str(envelope.text), str(envelope.hash))
        except RefusalError as refusal:
            raise CustodyRequestError(
                f"the payload of whitelisting request {envelope.id} {refusal}", code="request-differs"
            ) from None
        signatures = self._trust(envelope, "pending").signatures
        self._check_key(envelope)
        filled_in = comparison.filled_in
        unsigned = {
            "network": None if "network" in payload else envelope.network,
            "visibilityGroupID": envelope.visibility_group_id,
            "action": envelope.action,
            "tenantId": envelope.tenant_id,
        }
        shown = ", ".join(f"{name} {sanitize(value, 60)}" for name, value in unsigned.items() if value)
        return lines(
            f"To be signed, whitelisting request {envelope.id}, hash {envelope.hash}:",
            escape(str(envelope.text)),
            "expected=None: the content is not checked before signing." if request is None else None,
            f"Filled in by the service: {escape(', '.join(filled_in))}" if filled_in else None,
            f"Compared, but not covered by the signature: {', '.join(comparison.unsigned)}"
            if comparison.unsigned
            else None,
            f"Only in the envelope, which is not signed: {shown or 'nothing'}",
            None if signatures is None else _verified(signatures),
        )

    def check_status(self, envelope: WhitelistEnvelope) -> None:
        """
        Refuse a request that is listed as in effect without proof.

        :raises CustodyVerificationError: if the signatures do not prove it.
        """
        if self.settings.status_words.meaning(envelope.status) == "effective":
            status = sanitize(envelope.status, 30)
            self._trust(envelope, "effective", f". The service lists it as in effect (status {status})")

    def _trust(self, envelope: WhitelistEnvelope, state: ReportedState, more: str = "") -> Trust:
        if self.verifier is not None:
            self.verifier.fetch_for([envelope.wire])
        trust = decide_trust(envelope.wire, state, self.verifier)
        if (error := trust.error) is not None:
            advice = what_to_do([envelope.id], error.advice)
            raise CustodyVerificationError(error.message + more, advice=advice, code=error.code)
        return trust

    def _check_key(self, envelope: WhitelistEnvelope) -> None:
        """
        Refuse a key if the verified rules give this user another key.

        The service would reject the signature.
        """
        me, key = self.user.get("externalUserId"), self.key.public_key
        if self.verifier is None or key is None or not me:
            return
        keys = self.verifier.users_of(envelope.wire)
        if keys.get(me) in (None, key):
            return
        owners = [sanitize(each, 60) for each in keys if keys[each] == key]
        raise CustodyConfigurationError(
            f"according to the rules of whitelisting request {envelope.id}, the signing key {self.key.name!r} belongs "
            f"to {name_some(owners) if owners else 'no user'}, not to {sanitize(me, 60)}",
            setting="signer",
            advice="Sign with the connection and the key of the same user.",
            code="signing-failed",
        )

    def why_unsigned(self, envelope: WhitelistEnvelope | None) -> str:
        """
        Return why a request lacks this user's signature over its current hash.

        :param envelope: the request; None: it is not listed.
        :return: the reason; empty if the request has the signature.
        :raises CustodyResponseError: if the request has more signatures than can be searched.
        """
        # The numeric id is not compared, because one user's number may be another user's external id.
        me, key = self.user.get("externalUserId"), self.key.public_key
        if envelope is None:
            return "not listed"
        if key is None and not me:
            return "the service does not return this user's external id"
        entries = _usable_entries(envelope)
        named = [each for each in entries if each.user_id == me]
        own = named if key is None else [each for each in entries if _is_made_by(key, each)]
        if any(envelope.hash in each.hashes for each in own):
            return ""
        if own:
            return "this user's signature does not cover its current hash"
        if named:
            return "the signature in this user's name does not verify with the signer's public key"
        return "no signature of this user"


def _usable_entries(envelope: WhitelistEnvelope) -> list[Entry]:
    try:
        return [each for each in read_entries(envelope.wire) if not each.fault]
    except RefusalError as refusal:
        raise CustodyResponseError(
            f"whitelisting request {envelope.id} cannot be searched for this user's signature: {refusal}"
        ) from None


def _is_made_by(key: PublicKey, entry: Entry) -> bool:
    """
    Tell whether a key has made a signature.

    The user's name is ignored, because no signature covers it.
    """
    return entry.digest is not None and key.verifies_digest(entry.signature, entry.digest)


def _verified(signatures: RequestSignatures) -> str:
    """Return a description of the users with verified signatures, and of the request's rules."""
    names = ", ".join(sanitize(each, 60) for each in signatures.user_ids)
    words = f"Existing signatures, verified: {names or 'none'}"
    if (rules := signatures.rules) is None:
        return f"{words}."
    date = f"of {format_unix_time(rules.timestamp) or rules.timestamp}" if rules.timestamp else "without a date"
    return f"{words}; rules {rules.sha256[:12]}, {date}."
