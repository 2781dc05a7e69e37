"""The requests of one approval: what of them is accounted for, and whose signatures they have. No I/O."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.errors import (
    CustodyConflictError,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signature_count import MAX_ENTRIES, MAX_HASHES
from airflow_custody.client.verification.signed_text import read_signed_text
from airflow_custody.client.verification.trust import decide_trust, state_of, what_to_do
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.review import compare, envelope_faults, unknown_keys

if TYPE_CHECKING:
    from airflow_custody.client.users.models import WireUser
    from airflow_custody.client.verification.keys import PublicKey
    from airflow_custody.client.verification.verifier import RequestSignatures, Verifier
    from airflow_custody.client.whitelist.envelopes import Signing, WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

NOTHING_SIGNED = "nothing was signed"
NOTHING_OF_BATCH_SIGNED = "nothing of this batch was signed"
UNIDENTIFIED = "the service does not say under which external id this user signs"
NO_SIGNATURE = "no signature of this user"


def message_to_sign(hashes: Sequence[str]) -> bytes:
    """
    Return the bytes that an approval signs.

    :param hashes: the requests' current hashes, in ascending order of the requests' ids.
    :return: a JSON array of them, without white space.
    """
    return json.dumps(list(hashes), separators=(",", ":"), ensure_ascii=False).encode()


class ApprovalBatch:
    """
    The requests that one approval is about, and what of them is accounted for.

    :param ids: the requests' ids, in ascending order.
    :param expected: the expected content of each; None: anything.
    :param accepted: the keys that are accepted by name.
    :param public_key: the signer's public key, by which this user's signatures are found; None: not known, they are
        found by the name that the service gives them.
    :param user: the user who signs, as far as the service says.
    :param verifier: verifies the signatures that the requests have; None: these are the service's word.
    """

    def __init__(
        self,
        ids: list[str],
        expected: Mapping[str, WhitelistRequest] | None,
        accepted: frozenset[str],
        *,
        public_key: PublicKey | None,
        user: WireUser,
        verifier: Verifier | None,
    ) -> None:
        self.ids = ids
        #: Words of an error for these requests that have no signature: others may have one.
        self.nothing_signed = NOTHING_SIGNED
        self.public_key = public_key
        self._expected = expected
        self._accepted = accepted
        self.user = user
        self._verifier = verifier
        #: Whether signatures are this key's: one signature may cover a hundred requests.
        self._own_signings: dict[bytes, bool] = {}

    def review(self, envelope: WhitelistEnvelope, *, consequence: str | None = None) -> str:
        """
        Return a request's hash, once all that is behind it is accounted for.

        :param envelope: the request, as it was read.
        :param consequence: end of an error's text. Default: that nothing was signed.
        :raises CustodyVerificationError: if its rules are not signed as pinned, or a signature that it has is invalid.
        :raises CustodyError: if something else is not accounted for.
        """
        consequence = consequence or self.nothing_signed
        try:
            payload = envelope.payload()
        except CustodyResponseError as unusable:
            raise failed(CustodyResponseError, f"{unusable.message}; {consequence}", code=unusable.code) from None
        request = None if self._expected is None else self._expected[envelope.id]
        if request is None:
            self._refuse_other_kinds(envelope, consequence)
        else:
            comparison = compare(request, payload, network=envelope.network)
            faults, accepting = comparison.refusal(self._accepted)
            if faults:
                raise failed(
                    CustodyRequestError,
                    f"whitelisting request {envelope.id} is not what was asked for: {faults}; {consequence}",
                    advice=accepting and f"If it may be signed {accepting}",
                    code="request-differs",
                )
        contradictions = envelope_faults(
            envelope, payload, request, tenant_id=self.user.get("tenantId"), accepted=self._accepted
        )
        if contradictions:
            raise failed(
                CustodyRequestError,
                f"whitelisting request {envelope.id} contradicts itself or what was asked for: "
                f"{'; '.join(contradictions)}; {consequence}",
                code="request-differs",
            )
        if (unverified := decide_trust(envelope.wire, "pending", self._verifier).error) is not None:
            raise failed(
                CustodyVerificationError,
                f"{unverified.message}; {consequence}",
                advice=what_to_do([envelope.id], unverified.advice),
                code=unverified.code,
            )
        return str(envelope.hash)

    def _refuse_other_kinds(self, envelope: WhitelistEnvelope, consequence: str) -> None:
        """Refuse what is not the text of an address: compared with nothing, it could be a request of another kind."""
        metadata = envelope.wire.get("metadata") or {}
        try:
            text = read_signed_text(metadata.get("payloadAsString") or "", metadata.get("hash") or "")
        except RefusalError as refusal:
            raise failed(
                CustodyRequestError,
                f"the payload of whitelisting request {envelope.id} {refusal}; {consequence}",
                code="request-differs",
            ) from None
        if unknown := unknown_keys(text.fields, self._accepted):
            raise failed(
                CustodyRequestError,
                f"the payload of whitelisting request {envelope.id} has keys that are not known: "
                f"{name_some(unknown)}; {consequence}",
                advice="If it may be signed although nobody here knows what they mean, name them in 'accept_fields'.",
                code="request-differs",
            )

    def refuse_unsigned(self, envelope: WhitelistEnvelope) -> None:
        """
        Refuse a request that the service shows as in effect, if signatures do not prove that it is.

        :raises CustodyVerificationError: if they do not.
        """
        if state_of(envelope.status, "anywhere") != "effective":
            return
        if (error := decide_trust(envelope.wire, "effective", self._verifier).error) is not None:
            raise failed(
                CustodyVerificationError,
                f"{error.message}. The service shows it as in effect (status {sanitize(envelope.status, 30)}), and not "
                f"as pending this user's approval; {self.nothing_signed}",
                advice=what_to_do([envelope.id], error.advice),
                code=error.code,
            )

    def refuse_other_texts(self, listed: Mapping[str, WhitelistEnvelope], hashes: Sequence[str]) -> None:
        """
        Refuse to conclude anything from requests that do not show what was signed: an older text may be signed, too.

        :param listed: the requests as they are shown now, by id.
        :param hashes: the signed hashes, in the order of the ids.
        :raises CustodyConflictError: if one shows something else.
        """
        signed = dict(zip(self.ids, hashes, strict=True))
        if others := [each for each in self.ids if each in listed and listed[each].hash != signed[each]]:
            raise failed(
                CustodyConflictError,
                f"another text than the one that was signed is shown now for whitelisting request {name_some(others)}",
                code="request-differs",
            )

    def describe(self, envelope: WhitelistEnvelope) -> str:
        """Return all of what is signed, and what is the service's, in one line for the log."""
        text = escape(str((envelope.wire.get("metadata") or {}).get("payloadAsString")))
        line = f"To be signed, whitelisting request {envelope.id}, hash {envelope.hash}: {text}"
        if self._expected is None:
            line += ". Compared with nothing: expected=None"
        else:
            comparison = compare(self._expected[envelope.id], envelope.payload(), network=envelope.network)
            if filled_in := comparison.filled_in(self._accepted):
                line += f". Filled in by the service: {escape(', '.join(filled_in))}"
            if comparison.outside:
                line += f". Compared, but not covered by the signature: {', '.join(comparison.outside)}"
        unsigned = {
            "network": None if "network" in envelope.payload() else envelope.network,
            "visibilityGroupID": envelope.visibility_group_id,
            "action": envelope.action,
            "tenantId": envelope.tenant_id,
        }
        shown = ", ".join(f"{name} {sanitize(value, 60)}" for name, value in unsigned.items() if value)
        line += f". Only in the envelope, which is not signed: {shown or 'nothing'}."
        signatures = decide_trust(envelope.wire, "pending", self._verifier).signatures
        return line if signatures is None else f"{line} {_verified(signatures)}"

    def external_user_id(self, listed: Mapping[str, WhitelistEnvelope]) -> str | None:
        """
        Return the id that this user's signatures carry; None if it is not known.

        It is never the numeric id: that is another name space, and one user's number may be another's external id.
        """
        if external := self.user.get("externalUserId"):
            return external
        number = self.user.get("id")
        found = {
            trail.get("externalUserId")
            for envelope in listed.values()
            for trail in envelope.trails
            if number and trail.get("userId") == number
        }
        return found.pop() if len(found) == 1 else None

    def is_identified(self, listed: Mapping[str, WhitelistEnvelope]) -> bool:
        """Tell whether this user's signatures can be told from those of others: by key, or else by name."""
        return self.public_key is not None or self.external_user_id(listed) is not None

    def has_signed(self, listed: Mapping[str, WhitelistEnvelope]) -> bool:
        """Tell whether one of the requests has a signature of this user, whatever it covers."""
        self._refuse_too_many(listed, self.nothing_signed)
        me = self.external_user_id(listed)
        return any(self._own(each, me) for each in listed.values())

    def unsigned(self, listed: Mapping[str, WhitelistEnvelope], *, consequence: str | None = None) -> dict[str, str]:
        """
        Return the requests without this user's signature over their current hash, and why that is so.

        :param listed: the requests, by id.
        :param consequence: end of an error's text. Default: that nothing was signed.
        :raises CustodyResponseError: if one has more signatures than are searched.
        """
        self._refuse_too_many(listed, consequence or self.nothing_signed)
        if not self.is_identified(listed):
            return dict.fromkeys(self.ids, UNIDENTIFIED)
        me = self.external_user_id(listed)
        found = {each: self._why_unsigned(listed.get(each), me) for each in self.ids}
        return {each: why for each, why in found.items() if why}

    def _refuse_too_many(self, listed: Mapping[str, WhitelistEnvelope], consequence: str) -> None:
        """Refuse a text that would take too long to search: its sender decides on its length."""
        for each in listed.values():
            if len(each.signings) > MAX_ENTRIES or any(len(one.hashes) > MAX_HASHES for one in each.signings):
                raise failed(
                    CustodyResponseError,
                    f"whitelisting request {each.id} cannot be searched for this user's signature: it has more than "
                    f"{MAX_ENTRIES} signatures, or one that covers more than {MAX_HASHES} hashes; {consequence}",
                    code="response-unusable",
                )

    def _why_unsigned(self, envelope: WhitelistEnvelope | None, me: str | None) -> str:
        if envelope is None:
            return "not listed"
        own = self._own(envelope, me)
        if envelope.hash and any(envelope.hash in each.hashes for each in own):
            return ""
        if own:
            return "this user's signature covers another hash than its current one"
        if me in envelope.signed_by:
            return "the signer's public key does not verify the signature that has this user's name"
        return NO_SIGNATURE

    def _own(self, envelope: WhitelistEnvelope, me: str | None) -> list[Signing]:
        """Return this user's signatures."""
        if self.public_key is None:
            return [each for each in envelope.signings if me and each.user_id == me]
        # No signature covers its user's name: one that this key has not made is another's, whatever it is called.
        return [each for each in envelope.signings if self._is_own(self.public_key, each)]

    def _is_own(self, public_key: PublicKey, signing: Signing) -> bool:
        try:
            signature = base64.b64decode(signing.signature, validate=True)
            message = message_to_sign(signing.hashes)
        except ValueError:
            return False
        # Not the signing itself: it may be large, and another one at each poll.
        name = hashlib.sha256(signature + message).digest()
        if name not in self._own_signings:
            self._own_signings[name] = public_key.verifies(signature, message)
        return self._own_signings[name]


def _verified(signatures: RequestSignatures) -> str:
    """Return whose signatures a request has, and under which rules, in words."""
    names = ", ".join(sanitize(each, 60) for each in signatures.user_ids)
    words = f"Verified signatures that it has: {names or 'none'}"
    # Nothing is signed without rules.
    return words + (
        f"; rules {signatures.rules.sha256[:12]}, {_date(signatures.rules.timestamp)}." if signatures.rules else "."
    )


def _date(seconds: int) -> str:
    if not seconds:
        return "without a date"
    try:
        return f"of {datetime.fromtimestamp(seconds, timezone.utc).date()}"
    except (ValueError, OverflowError, OSError):
        return f"of {seconds}, which is no date"


def failed(
    error_type: type[CustodyError],
    message: str,
    *,
    code: ErrorCode,
    advice: str | None = None,
    retryable: bool | None = None,
) -> CustodyError:
    """Return an error of an approval."""
    return error_type(message, operation=APPROVE_WHITELIST_REQUESTS.name, advice=advice, retryable=retryable, code=code)
