"""The requests of one approval: what of them is accounted for, and whose signatures they have. No I/O."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError, CustodyRequestError
from airflow_custody.client.text import escape, sanitize
from airflow_custody.client.whitelist.operations import APPROVE_WHITELIST_REQUESTS
from airflow_custody.client.whitelist.review import compare, envelope_faults

if TYPE_CHECKING:
    from airflow_custody.client.signers import PublicKey
    from airflow_custody.client.users.models import WireUser
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
    :param expected: what each must ask for; None: anything.
    :param accepted: the keys that are accepted by name.
    :param public_key: the signer's public key; None: not known.
    :param user: the user who signs, as far as the service says.
    """

    def __init__(
        self,
        ids: list[str],
        expected: Mapping[str, WhitelistRequest] | None,
        accepted: frozenset[str],
        *,
        public_key: PublicKey | None,
        user: WireUser,
    ) -> None:
        self.ids = ids
        #: How an error says that these requests have no signature: others may have one.
        self.nothing_signed = NOTHING_SIGNED
        self.public_key = public_key
        self._expected = expected
        self._accepted = accepted
        self._user = user

    def review(self, envelope: WhitelistEnvelope, *, consequence: str | None = None) -> str:
        """
        Return a request's hash, once all that is behind it is accounted for.

        :param envelope: the request, as it was read.
        :param consequence: what an error ends with. Default: that nothing was signed.
        :raises CustodyError: if something is not.
        """
        consequence = consequence or self.nothing_signed
        payload = envelope.payload()
        request = None if self._expected is None else self._expected[envelope.id]
        if request is not None:
            comparison = compare(request, payload, network=envelope.network)
            if faults := comparison.faults(self._accepted):
                error = failed(
                    CustodyRequestError,
                    f"whitelisting request {envelope.id} is not what was asked for: {', '.join(faults)}; {consequence}",
                )
                if unaccounted := [each for each in comparison.unaccounted if each not in self._accepted]:
                    names = ", ".join(repr(sanitize(each, 60)) for each in unaccounted)
                    error.advice = f"If it may be signed although nobody asked for it: accept_fields=[{names}]."
                raise error
        contradictions = envelope_faults(
            envelope, payload, request, tenant_id=self._user.get("tenantId"), accepted=self._accepted
        )
        if contradictions:
            raise failed(
                CustodyRequestError,
                f"whitelisting request {envelope.id} contradicts itself or what was asked for: "
                f"{'; '.join(contradictions)}; {consequence}",
            )
        return str(envelope.hash)

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
        return f"{line}. Only in the envelope, which is not signed: {shown or 'nothing'}."

    def external_user_id(self, listed: Mapping[str, WhitelistEnvelope]) -> str | None:
        """
        Return the id that this user's signatures carry; None if it is not known.

        It is never the numeric id: that is another name space, and one user's number may be another's external id.
        """
        if external := self._user.get("externalUserId"):
            return external
        number = self._user.get("id")
        found = {
            trail.get("externalUserId")
            for envelope in listed.values()
            for trail in envelope.trails
            if number and trail.get("userId") == number
        }
        return found.pop() if len(found) == 1 else None

    def unsigned(self, listed: Mapping[str, WhitelistEnvelope]) -> dict[str, str]:
        """Return the requests without this user's signature over their current hash, and why that is so."""
        me = self.external_user_id(listed)
        if me is None:
            return dict.fromkeys(self.ids, UNIDENTIFIED)
        found = {each: self._why_unsigned(listed.get(each), me) for each in self.ids}
        return {each: why for each, why in found.items() if why}

    def _why_unsigned(self, envelope: WhitelistEnvelope | None, me: str) -> str:
        if envelope is None:
            return "not listed"
        mine = [each for each in envelope.signings if each.user_id == me]
        if not mine:
            return NO_SIGNATURE
        current = [each for each in mine if envelope.hash and envelope.hash in each.hashes]
        if not current:
            return "this user's signature covers another hash than its current one"
        if not any(self._verifies(each) for each in current):
            return "the signer's public key does not verify this user's signature"
        return ""

    def _verifies(self, signing: Signing) -> bool:
        if self.public_key is None:
            return True
        try:
            signature = base64.b64decode(signing.signature, validate=True)
        except (binascii.Error, ValueError):
            return False
        return self.public_key.verifies(signature, message_to_sign(signing.hashes))


def failed(
    error_type: type[CustodyError], message: str, *, advice: str | None = None, retryable: bool | None = None
) -> CustodyError:
    """Return an error of an approval."""
    return error_type(message, operation=APPROVE_WHITELIST_REQUESTS.name, advice=advice, retryable=retryable)
