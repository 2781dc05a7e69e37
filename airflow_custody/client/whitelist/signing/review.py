"""The review of requests before they are signed: what a user may sign, and what the user has already signed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.text import escape, lines, name_some, sanitize
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.keys import read_user_signatures
from airflow_custody.client.verification.results import RefusalError, RequestSignatures
from airflow_custody.client.verification.signed_text import check_shape
from airflow_custody.client.verification.trust import (
    ReportedState,
    Trust,
    decide_trust,
    what_to_do,
)
from airflow_custody.client.whitelist.comparison import check_asked
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.request import VANISHED, Request, compare_effective, status_word
from airflow_custody.client.whitelist.signatures import describe_signatures

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.signers.key import SigningKey
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.verification.rules_in_force import PendingVerifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest


_REJECTED = "Rejected requests can no longer be signed. Remove their ids, and sign the other requests."
_NOT_THIS_USERS_TURN = "Sign a request that waits for another group with the connection of a user in that group."


class ToSign(NamedTuple):
    """
    A reviewed request that needs this user's signature.

    :param hash: its hash, which is signed.
    :param text: its whole content, for the log.
    """

    hash: str
    text: str


@contextmanager
def concluding(consequence: str) -> Iterator[None]:
    """
    Append the consequence for the signatures to an error's message.

    :param consequence: the consequence, for example 'nothing was signed'.
    """
    try:
        yield
    except CustodyError as error:
        message = f"{error.message.rstrip('.')}; {consequence}"
        operation = error.operation or APPROVE_WHITELIST_REQUESTS.name
        raise error.with_facts(message=message, operation=operation) from None


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
    :param key: the signer's key. This user's signatures are recognized by its public key or, if the public key is
        unknown, by the user's external id.
    :param verifier: verifies the existing signatures of the requests; None: they are not verified.
    :param is_later_try: whether an earlier try may have sent some of the signatures.
    """

    expected: Mapping[str, WhitelistRequest] | None
    settings: ClientSettings
    user: WireUser
    key: SigningKey
    verifier: PendingVerifier | None
    is_later_try: bool

    def check_pending(self, row: WhitelistEnvelope, request: Request | None, hash_: str | None) -> ToSign:
        """
        Review a request that is pending this user's signature.

        :param row: the request, as listed for approval.
        :param request: the request, as found in all listings; None: the other listings were not read, because the
            request has an action.
        :param hash_: the request's hash in an earlier reading; None: this is the first reading.
        :raises CustodyError: if the request must not be signed.
        """
        found = ToSign(str(row.hash), self.check(row))
        is_effective = self._check_status(row)
        name = f"whitelisting request {sanitize(row.id, 40)}"
        if is_effective or (request is not None and request.is_settled):
            action = f"with the action {sanitize(row.action, 40)!r}" if row.action else "without an action"
            raise CustodyConflictError(
                f"{name} is listed as settled (status {status_word(row.status) or 'not given'}) and also for "
                f"approval, {action}: the signature may approve its deletion",
                code="request-differs",
            )
        if hash_ is not None and row.hash != hash_:
            raise CustodyConflictError(f"{name} has changed since it was read", code="request-differs")
        return found

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
            # Sign only texts with the form of a whitelisting request, because the signature of another text could be
            # used for another kind of request.
            check_shape(payload)
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

    def _check_status(self, envelope: WhitelistEnvelope) -> bool:
        """
        Refuse a request that is listed as in effect, if its signatures do not prove this.

        :return: whether the request's status is that of a request in effect.
        :raises CustodyVerificationError: if it is, but the signatures do not prove it.
        """
        if self.settings.status_words.meaning(envelope.status) != "effective":
            return False
        status = sanitize(envelope.status, 30)
        self._trust(envelope, "effective", f". The service lists it as in effect (status {status})")
        return True

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
        Refuse a key if this user has another key according to the verified rules.

        Otherwise, the service would reject the signature.
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

    def why_done(self, request: Request) -> str:
        """
        Return why this user need not sign a request; empty if there is no reason.

        For a request in effect whose verification fails, no reason is returned yet, because its last signature may be
        listed late.

        :param request: a request that is not pending this user's signature.
        :raises CustodyError: if the request's content is not as expected.
        """
        envelope = request.envelope
        if envelope is None or request.reported == "rejected" or (self.expected is None and not self.is_later_try):
            return ""
        may_be_signed = request.reported != "unknown" or self.is_later_try
        if may_be_signed and not self.why_unsigned(envelope):
            self.check_signed(envelope)
            return "Already signed"
        if self.expected is not None and request.reported == "effective" and request.state != "unverified":
            compare_effective(self.expected[envelope.id], request, self.settings)
            return f"Already in effect (status {request.status})"
        return ""

    def check_signed(self, envelope: WhitelistEnvelope) -> None:
        """
        Review a request that this user has already signed, in another task or by hand.

        :param envelope: the request.
        :raises CustodyError: if the review refuses it.
        """
        with concluding("this user has already signed the request"):
            self.check(envelope)

    def not_pending(self, requests: Iterable[Request]) -> CustodyConflictError:
        """
        Return the error for requests that are not pending this user's signature.

        :param requests: the requests, all of which the service lists.
        :raises CustodyVerificationError: if one of them is listed as in effect, but its signatures do not prove this.
        """
        shown, is_any_rejected = [], False
        for each in requests:
            envelope = each.shown
            self._check_status(envelope)
            own = self.why_unsigned(envelope) or "signed by this user"
            if each.has_vanished:
                why = VANISHED
            elif each.reported == "pending":
                why = f"{describe_signatures(envelope, self.verifier)}; {own}"
            else:
                decided = {"effective": "in effect; ", "rejected": "rejected; "}.get(each.reported, "")
                why = f"{decided}{own}"
            shown.append(f"{each.id} (status {sanitize(envelope.status or 'not given', 30)}; {why})")
            is_any_rejected = is_any_rejected or each.reported == "rejected"
        return CustodyConflictError(
            f"not pending this user's signature: {name_some(shown)}",
            advice=_REJECTED if is_any_rejected else _NOT_THIS_USERS_TURN,
            code="not-pending",
        )

    def why_unsigned(self, envelope: WhitelistEnvelope | None) -> str:
        """
        Return why a request lacks this user's signature over its current hash.

        :param envelope: the request; None: it is not listed.
        :return: the reason; empty if the request has the signature.
        :raises CustodyResponseError: if the request has more signatures than can be searched.
        """
        # Compare only the external id, not the numeric id, because one user's number may be another user's external id.
        me, key = self.user.get("externalUserId"), self.key.public_key
        if envelope is None:
            return "not listed"
        if key is None and not me:
            return "the service does not return this user's external id"
        try:
            entries = [each for each in read_user_signatures(envelope.wire) if not each.fault]
        except RefusalError as refusal:
            raise CustodyResponseError(
                f"whitelisting request {envelope.id} cannot be searched for this user's signature: {refusal}"
            ) from None
        named = [each for each in entries if each.user_id == me]
        own = named
        if key is not None:
            # Ignore the user id of an entry, because no signature covers it.
            own = [each for each in entries if each.digest and key.verifies_digest(each.signature, each.digest)]
        if any(envelope.hash in each.hashes for each in own):
            return ""
        if own:
            return "this user's signature does not cover its current hash"
        if named:
            return "the signature in this user's name does not verify with the signer's public key"
        return "no signature of this user"


def _verified(signatures: RequestSignatures) -> str:
    """Return a description of the users with verified signatures, and of the request's rules."""
    names = ", ".join(sanitize(each, 60) for each in signatures.user_ids)
    words = f"Existing signatures, verified: {names or 'none'}"
    if (rules := signatures.rules) is None:
        return f"{words}."
    date = f"of {format_unix_time(rules.timestamp) or rules.timestamp}" if rules.timestamp else "without a date"
    return f"{words}; rules {rules.sha256[:12]}, {date}."
