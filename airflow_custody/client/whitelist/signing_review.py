"""What of a request is accounted for before it is signed, and whether its user's signature is there. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_custody.client.errors import (
    CustodyConfigurationError,
    CustodyError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyVerificationError,
)
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signature_count import MAX_ENTRIES, MAX_HASHES
from airflow_custody.client.verification.signed_text import read_signed_text
from airflow_custody.client.verification.trust import decide_trust, state_of, what_to_do
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.review import check_asked, compare, unknown_keys

if TYPE_CHECKING:
    from airflow_custody.client.signers.key import SigningKey
    from airflow_custody.client.users.models import WireUser
    from airflow_custody.client.verification.keys import PublicKey
    from airflow_custody.client.verification.verifier import RequestSignatures, Verifier
    from airflow_custody.client.whitelist.envelopes import Signing, WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

# Why a request lacks this user's signature.
NOT_LISTED = "not listed"
UNIDENTIFIED = "the service does not say under which external id this user signs"
NO_SIGNATURE = "no signature of this user"


def message_to_sign(hashes: Iterable[str]) -> bytes:
    """
    Return the bytes that a signature covers.

    :param hashes: the requests' current hashes, in ascending order of the requests' ids.
    :return: a JSON array of them, without white space.
    """
    return json.dumps(list(hashes), separators=(",", ":"), ensure_ascii=False).encode()


@contextmanager
def concluding(consequence: str) -> Iterator[None]:
    """Say at the end of an error what came of the signature."""
    try:
        yield
    except CustodyError as error:
        error.operation = error.operation or APPROVE_WHITELIST_REQUESTS.name
        error.message = f"{error.message.rstrip('.')}; {consequence}"
        raise


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

    def __init__(
        self,
        expected: Mapping[str, WhitelistRequest] | None,
        accepted: frozenset[str],
        *,
        user: WireUser,
        key: SigningKey,
        verifier: Verifier | None,
    ) -> None:
        self._expected = expected
        self._accepted = accepted
        self._user = user
        self._key = key
        self._verifier = verifier

    def check(self, envelope: WhitelistEnvelope) -> str:
        """
        Return a request's hash, once all that is behind it is accounted for.

        :param envelope: the request, as it was read.
        :raises CustodyVerificationError: if its rules are not signed as pinned, or a signature that it has is invalid.
        :raises CustodyError: if something else is not accounted for.
        """
        payload = envelope.payload()
        request = None if self._expected is None else self._expected[envelope.id]
        check_asked(request, envelope, payload, self._accepted, tenant_id=self._user.get("tenantId"))
        try:
            # A signature of another kind of text could be used for a request of that kind.
            read_signed_text(str(envelope.text), str(envelope.hash))
        except RefusalError as refusal:
            raise _differs(envelope, str(refusal)) from None
        if request is None and (unknown := unknown_keys(payload, self._accepted)):
            raise _differs(
                envelope,
                f"has keys that are not known: {name_some(unknown)}",
                "If it may be signed although nobody here knows what they mean, name them in 'accept_fields'.",
            )
        if (error := decide_trust(envelope.wire, "pending", self._verifier).error) is not None:
            raise _unverified(envelope, error)
        self._check_key(envelope)
        return str(envelope.hash)

    def _check_key(self, envelope: WhitelistEnvelope) -> None:
        """Refuse a key that is not this user's by the verified rules: the service would refuse the signature."""
        me, key = self._user.get("externalUserId"), self._key.public_key
        if self._verifier is None or key is None or not me:
            return
        keys = self._verifier.users_of(envelope.wire)
        if keys.get(me) in (None, key):
            return
        owners = [sanitize(each, 60) for each in keys if keys[each] == key]
        raise CustodyConfigurationError(
            f"the signing key {self._key.name!r} is not that of the user {sanitize(me, 60)}, "
            f"{'but that of ' + name_some(owners) if owners else 'nor of any other user'} by the rules of whitelisting "
            f"request {envelope.id}",
            setting="signer",
            advice="Sign with the connection and the key of the same user.",
            code="signing-failed",
        )

    def check_status(self, envelope: WhitelistEnvelope) -> None:
        """
        Refuse a request that the service shows as in effect, if signatures do not prove that it is.

        :raises CustodyVerificationError: if they do not.
        """
        if state_of(envelope.status, "anywhere") == "effective":
            error = decide_trust(envelope.wire, "effective", self._verifier).error
            if error is not None:
                raise _unverified(
                    envelope, error, f". The service shows it as in effect (status {sanitize(envelope.status, 30)})"
                )

    def describe(self, envelope: WhitelistEnvelope) -> str:
        """Return all of what is signed, and what is the service's, in one line for the log."""
        payload = envelope.payload()
        line = f"To be signed, whitelisting request {envelope.id}, hash {envelope.hash}: "
        line += escape(str(envelope.text))
        if self._expected is None:
            line += ". Compared with nothing: expected=None"
        else:
            comparison = compare(self._expected[envelope.id], payload, network=envelope.network)
            if filled_in := comparison.filled_in(self._accepted):
                line += f". Filled in by the service: {escape(', '.join(filled_in))}"
            if comparison.outside:
                line += f". Compared, but not covered by the signature: {', '.join(comparison.outside)}"
        unsigned = {
            "network": None if "network" in payload else envelope.network,
            "visibilityGroupID": envelope.visibility_group_id,
            "action": envelope.action,
            "tenantId": envelope.tenant_id,
        }
        shown = ", ".join(f"{name} {sanitize(value, 60)}" for name, value in unsigned.items() if value)
        line += f". Only in the envelope, which is not signed: {shown or 'nothing'}."
        signatures = decide_trust(envelope.wire, "pending", self._verifier).signatures
        return line if signatures is None else f"{line} {_verified(signatures)}"

    def unsigned(self, ids: Sequence[str], listed: Mapping[str, WhitelistEnvelope]) -> dict[str, str]:
        """
        Return the requests without this user's signature over their current hash, and why that is so.

        :param ids: the requests' ids.
        :param listed: those that are listed, by id.
        :raises CustodyResponseError: if one has more signatures than are searched.
        """
        found = {each: self._why_unsigned(listed.get(each)) for each in ids}
        return {each: why for each, why in found.items() if why}

    def _why_unsigned(self, envelope: WhitelistEnvelope | None) -> str:
        # Never by the numeric id: that is another name space, and one user's number may be another's external id.
        me, key = self._user.get("externalUserId"), self._key.public_key
        if envelope is None:
            return NOT_LISTED
        if key is None and not me:
            return UNIDENTIFIED
        signings = envelope.signings
        if len(signings) > MAX_ENTRIES or any(len(each.hashes) > MAX_HASHES for each in signings):
            # Its sender decides on its length.
            raise CustodyResponseError(
                f"whitelisting request {envelope.id} cannot be searched for this user's signature: it has more than "
                f"{MAX_ENTRIES} signatures, or one that covers more than {MAX_HASHES} hashes",
                code="response-unusable",
            )
        named = [each for each in signings if me and each.user_id == me]
        # No signature covers its user's name: one that this key has not made is another's, whatever it is called.
        own = named if key is None else [each for each in signings if _is_signed_with(key, each)]
        if any(envelope.hash in each.hashes for each in own):
            return ""
        if own:
            return "this user's signature covers another hash than its current one"
        return (
            "the signer's public key does not verify the signature that has this user's name" if named else NO_SIGNATURE
        )


def _is_signed_with(key: PublicKey, signing: Signing) -> bool:
    try:
        return key.verifies(base64.b64decode(signing.signature, validate=True), message_to_sign(signing.hashes))
    except ValueError:
        return False


def _differs(envelope: WhitelistEnvelope, why: str, advice: str | None = None) -> CustodyRequestError:
    return CustodyRequestError(
        f"the payload of whitelisting request {envelope.id} {why}", advice=advice, code="request-differs"
    )


def _unverified(
    envelope: WhitelistEnvelope, error: CustodyVerificationError, more: str = ""
) -> CustodyVerificationError:
    return CustodyVerificationError(
        error.message + more, advice=what_to_do([envelope.id], error.advice), code=error.code
    )


def _verified(signatures: RequestSignatures) -> str:
    """Return whose signatures a request has, and under which rules, in words."""
    names = ", ".join(sanitize(each, 60) for each in signatures.user_ids)
    words = f"Verified signatures that it has: {names or 'none'}"
    if (rules := signatures.rules) is None:
        return f"{words}."
    date = f"of {format_unix_time(rules.timestamp) or rules.timestamp}" if rules.timestamp else "without a date"
    return f"{words}; rules {rules.sha256[:12]}, {date}."
