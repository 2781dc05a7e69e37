"""May a user sign a request, and is that user's signature there?"""

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
from airflow_custody.client.whitelist.review import check_asked
from airflow_custody.client.whitelist.status_words import DEFAULT_WORDS

if TYPE_CHECKING:
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
    :return: a JSON array of them, without white space.
    """
    return json.dumps(list(hashes), separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True)
class SigningReview:
    """
    The review of requests by a user who signs.

    :param expected: the expected content of each, by id; None: anything.
    :param accepted: the keys that are accepted by name.
    :param user: the user, as far as the service says.
    :param key: the signer's key. By its public key, this user's signatures are found; if that is not known, by the name
        that the service gives them.
    :param verifier: verifies the signatures that the requests have; None: they are not verified.
    """

    expected: Mapping[str, WhitelistRequest] | None
    accepted: frozenset[str]
    user: WireUser
    key: SigningKey
    verifier: PendingVerifier | None

    def check(self, envelope: WhitelistEnvelope) -> str:
        """
        Return an entry for the log with all of what is signed, once everything behind it is accounted for.

        :param envelope: the request, as it was read.
        :raises CustodyVerificationError: if its rules are not signed as pinned, or a signature that it has is invalid.
        :raises CustodyError: if something else is not accounted for.
        """
        payload = envelope.payload()
        request = None if self.expected is None else self.expected[envelope.id]
        comparison = check_asked(request, envelope, payload, self.accepted, tenant_id=self.user.get("tenantId"))
        try:
            # A signature of another kind of text could be used for a request of that kind.
            read_signed_text(str(envelope.text), str(envelope.hash))
        except RefusalError as refusal:
            raise CustodyRequestError(
                f"the payload of whitelisting request {envelope.id} {refusal}", code="request-differs"
            ) from None
        signatures = self._trust(envelope, "pending").signatures
        self._check_key(envelope)
        filled_in = comparison.filled_in(self.accepted)
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
            f"Compared, but not covered by the signature: {', '.join(comparison.outside)}"
            if comparison.outside
            else None,
            f"Only in the envelope, which is not signed: {shown or 'nothing'}",
            None if signatures is None else _verified(signatures),
        )

    def check_status(self, envelope: WhitelistEnvelope) -> None:
        """
        Refuse a request that the service shows as in effect, if signatures do not prove that it is.

        :raises CustodyVerificationError: if they do not.
        """
        if DEFAULT_WORDS.meaning(envelope.status) == "effective":
            status = sanitize(envelope.status, 30)
            self._trust(envelope, "effective", f". The service shows it as in effect (status {status})")

    def _trust(self, envelope: WhitelistEnvelope, state: ReportedState, more: str = "") -> Trust:
        if self.verifier is not None:
            self.verifier.fetch_for([envelope.wire])
        trust = decide_trust(envelope.wire, state, self.verifier)
        if (error := trust.error) is not None:
            advice = what_to_do([envelope.id], error.advice)
            raise CustodyVerificationError(error.message + more, advice=advice, code=error.code)
        return trust

    def _check_key(self, envelope: WhitelistEnvelope) -> None:
        """Refuse a key that is not this user's by the verified rules: the service would refuse the signature."""
        me, key = self.user.get("externalUserId"), self.key.public_key
        if self.verifier is None or key is None or not me:
            return
        keys = self.verifier.users_of(envelope.wire)
        if keys.get(me) in (None, key):
            return
        owners = [sanitize(each, 60) for each in keys if keys[each] == key]
        raise CustodyConfigurationError(
            f"the signing key {self.key.name!r} is not that of the user {sanitize(me, 60)}, "
            f"{'but that of ' + name_some(owners) if owners else 'nor of any other user'} by the rules of whitelisting "
            f"request {envelope.id}",
            setting="signer",
            advice="Sign with the connection and the key of the same user.",
            code="signing-failed",
        )

    def why_unsigned(self, envelope: WhitelistEnvelope | None) -> str:
        """
        Return why a request lacks this user's signature over its current hash; empty if it has it.

        :param envelope: the request; None: it is not listed.
        :raises CustodyResponseError: if it has more signatures than are searched.
        """
        # Never by the numeric id: that is another name space, and one user's number may be another's external id.
        me, key = self.user.get("externalUserId"), self.key.public_key
        if envelope is None:
            return "not listed"
        if key is None and not me:
            return "the service does not say under which external id this user signs"
        entries = _usable_entries(envelope)
        named = [each for each in entries if each.user_id == me]
        own = named if key is None else [each for each in entries if _is_made_by(key, each)]
        if any(envelope.hash in each.hashes for each in own):
            return ""
        if own:
            return "this user's signature covers another hash than its current one"
        if named:
            return "the signer's public key does not verify the signature that has this user's name"
        return "no signature of this user"


def _usable_entries(envelope: WhitelistEnvelope) -> list[Entry]:
    try:
        return [each for each in read_entries(envelope.wire) if not each.fault]
    except RefusalError as refusal:
        raise CustodyResponseError(
            f"whitelisting request {envelope.id} cannot be searched for this user's signature: {refusal}"
        ) from None


def _is_made_by(key: PublicKey, entry: Entry) -> bool:
    """Tell whether a key has made a signature. No signature covers its user's name, whatever that is."""
    return entry.digest is not None and key.verifies_digest(entry.signature, entry.digest)


def _verified(signatures: RequestSignatures) -> str:
    """Return whose signatures a request has, and under which rules, in words."""
    names = ", ".join(sanitize(each, 60) for each in signatures.user_ids)
    words = f"Verified signatures that it has: {names or 'none'}"
    if (rules := signatures.rules) is None:
        return f"{words}."
    date = f"of {format_unix_time(rules.timestamp) or rules.timestamp}" if rules.timestamp else "without a date"
    return f"{words}; rules {rules.sha256[:12]}, {date}."
