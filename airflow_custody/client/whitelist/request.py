"""
A whitelisting request: its state, its content, and its verification.

The service reports the state of a request by two facts: its ``status``, and the listings that contain it, because the
service lists pending requests only on demand. The service's vendor publishes no list of status words, so an unknown
word proves nothing. With pinned keys, signatures count, too: only they prove that a request is in effect.
:func:`make_request` evaluates all of this once. All other code uses its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.text import name_some, read_number, sanitize
from airflow_custody.client.timestamps import format_unix_time
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.trust import ReportedState, Trust, decide_trust
from airflow_custody.client.whitelist.addresses.destinations import Destination, read_destination
from airflow_custody.client.whitelist.comparison import PAYLOAD_KEYS, check_asked, is_deletion
from airflow_custody.client.whitelist.models import WhitelistRequest, request_from_fields

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.verification.results import VerifiedAddress
    from airflow_custody.client.verification.verifier import Verifier
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

#: State of a request. ``unknown``: the request is not pending, and its status is not a known word, or it has vanished.
#: ``unverified``: its signatures do not prove what its state requires. ``unreadable``: its content cannot be read.
#: ``missing``: it is not listed.
RequestState = Literal["effective", "pending", "rejected", "unknown", "unverified", "unreadable", "missing"]
#: Why the state of a request that has vanished is unknown, whatever its status word.
VANISHED = "it was listed as settled, but is missing from the later listing of all requests"

_MAX_STATUS = 100
_NOT_CHECKED = Trust("not checked")


# --- how the service reports it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ListedRequest:
    """
    A request, as found in the service's listings.

    :param id: its id.
    :param envelope: the request, as last listed; None: it is not listed. Default None.
    :param is_settled: whether it is among the settled requests: those that are not pending. Default False.
    :param has_vanished: whether it was among the settled requests but is missing from the later listing of all
        requests, because it was deleted in between, or one of the listings is out of date. Default False.
    :param for_approval: the request, as listed among the requests that the client's user may still sign. Default None:
        it is not among them.
    """

    id: str
    envelope: WhitelistEnvelope | None = None
    is_settled: bool = False
    for_approval: WhitelistEnvelope | None = None
    has_vanished: bool = False


# --- the request -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Request:
    """
    A whitelisting request, with everything that is known about it.

    :param id: its id.
    :param state: its state.
    :param reported: the state that the service reports, regardless of signatures; ``unknown`` if the request is
        missing.
    :param envelope: the request, as the service lists it; None if it is missing.
    :param for_approval: the request, as listed among the requests that the client's user may sign; None if it is not
        among them.
    :param destination: its destination; None if it cannot be read.
    :param fields: the signed fields, if signatures prove them; otherwise the fields of its payload, which are only the
        service's claim. Empty if the payload cannot be read.
    :param trust: the result of verifying its signatures.
    :param deletion_pending: whether the request is settled, and its deletion is pending approval by the client's user.
    :param is_contradictory: whether the request is listed as pending although it has the status of a settled request.
    :param is_settled: whether it is among the settled requests: those that are not pending. Default False.
    :param has_vanished: whether it was among the settled requests but is missing from the later listing of all
        requests. Default False.
    :param reason: why the request is unverified, unreadable or unknown, without the request's name; empty in other
        states.
    """

    id: str
    state: RequestState
    reported: ReportedState = "unknown"
    envelope: WhitelistEnvelope | None = None
    for_approval: WhitelistEnvelope | None = None
    destination: Destination | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = _NOT_CHECKED
    deletion_pending: bool = False
    is_contradictory: bool = False
    is_settled: bool = False
    has_vanished: bool = False
    reason: str = ""
    #: The state by which a wait decides. It is :attr:`state`, except that only a request in effect must be readable and
    #: verified: any other request with such a fault has its reported state, because it may still receive its
    #: signatures. A request whose row of the listing cannot be read is ``unreadable`` in any case.
    phase: RequestState = field(init=False)
    #: The address that the request's signatures prove; None if there is no proof, or no keys are pinned.
    proved: VerifiedAddress | None = field(init=False)
    #: A note on the fields that the signatures do not cover; empty if they cover all fields.
    legacy_notes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        has_content = self.envelope is not None and self.envelope.is_readable
        is_faulty = self.state == "unverified" or (self.state == "unreadable" and has_content)
        may_be_mended = is_faulty and self.reported != "effective"
        object.__setattr__(self, "phase", self.reported if may_be_mended else self.state)
        object.__setattr__(self, "proved", self.trust.address)
        omitted = self.trust.address.omitted if self.trust.address is not None else ()
        notes = (f"signed in a legacy form that does not cover {', '.join(omitted)}",) if omitted else ()
        object.__setattr__(self, "legacy_notes", notes)

    @cached_property
    def name(self) -> str:
        """The request's name in messages."""
        return f"whitelisting request {sanitize(self.id, 40)}"

    @cached_property
    def shown(self) -> WhitelistEnvelope:
        """The envelope; only for a request that is listed."""
        if self.envelope is None:
            raise ValueError(f"{self.name} is not listed")
        return self.envelope

    @property
    def signed_by(self) -> frozenset[str]:
        """The external ids of the users with signatures (not verified here); empty if the request is missing."""
        return frozenset() if self.envelope is None else self.envelope.signed_by

    @cached_property
    def facts(self) -> dict[str, Any] | None:
        """The facts that its signatures prove, in the form of :func:`verified_facts`; None if there is no proof."""
        return None if self.proved is None else verified_facts(self.proved)

    @cached_property
    def status(self) -> str:
        """The status as sent by the service, shortened for reports; empty if there is none."""
        return "" if self.envelope is None else status_word(self.envelope.status)


def make_request(listed: ListedRequest, settings: ClientSettings, verifier: Verifier | None = None) -> Request:
    """
    Return a request with everything that is known about it.

    :param listed: the request, as found in the service's listings.
    :param settings: the client's settings, with the status words.
    :param verifier: verifier of its signatures; None (default): no keys are pinned, and nothing is verified.
    """
    envelope, for_approval = listed.envelope, listed.for_approval
    if envelope is None:
        return Request(listed.id, "missing")
    meaning = settings.status_words.meaning(envelope.status)
    # Until the deletion of a settled request is approved, the request stays in effect.
    deletion_pending = listed.is_settled and for_approval is not None and is_deletion(for_approval.action or "")
    reported: ReportedState
    if for_approval is not None and not deletion_pending:
        # A request that can still be signed is pending.
        reported = "pending"
    elif meaning == "rejected":
        reported = "rejected"
    elif not listed.is_settled:
        reported = "pending"
    else:
        reported = "unknown" if listed.has_vanished else meaning
    request = judge_request(envelope, reported, verifier)
    reason = request.reason
    if request.state == "unknown" and listed.has_vanished:
        reason = VANISHED
    elif request.state == "unknown" and not request.status:
        reason = "it has no status, so it does not count as in effect"
    elif request.state == "unknown":
        reason = (
            f"its status {request.status!r} is unknown, so it does not count as in effect; add the word to "
            f"{settings.name('effective_statuses', 'rejected_statuses')}"
        )
    return replace(
        request,
        for_approval=for_approval,
        deletion_pending=deletion_pending,
        is_contradictory=reported == "pending" and meaning != "unknown",
        is_settled=listed.is_settled,
        has_vanished=listed.has_vanished,
        reason=reason,
    )


def judge_request(envelope: WhitelistEnvelope, reported: ReportedState, verifier: Verifier | None) -> Request:
    """
    Return a request with its content and signatures evaluated.

    :param envelope: the request as the service lists it.
    :param reported: the state that the service reports for it.
    :param verifier: verifier of its signatures; None: no keys are pinned, and nothing is verified.
    """
    if not envelope.is_readable:
        reason = "it cannot be read: one of its fields has an unexpected type"
        return Request(envelope.id, "unreadable", reported, envelope, reason=reason)
    trust = decide_trust(envelope.wire, reported, verifier)
    destination: Destination | None = None
    fields: Mapping[str, Any] = {}
    state: RequestState = reported
    reason = ""
    try:
        destination, fields = _read_content(envelope, trust)
    except RefusalError as refusal:
        state, reason = "unreadable", str(refusal)
    if trust.error is not None:
        state, reason = "unverified", trust.error.why
    return Request(envelope.id, state, reported, envelope, None, destination, fields, trust, reason=reason)


def _read_content(envelope: WhitelistEnvelope, trust: Trust) -> tuple[Destination, Mapping[str, Any]]:
    """
    Return the destination and the fields of a request.

    :raises RefusalError: if one of them cannot be read.
    """
    fields: Mapping[str, Any] | None = None
    if trust.address is not None:
        fields = trust.address.fields
    elif trust.signatures is not None:
        fields = trust.signatures.fields
    if fields is None:
        if read_number(envelope.id, MAX_ID) is None:
            raise RefusalError("its id is not a number")
        fields = envelope.read_payload()
    return read_destination(envelope, fields), fields


def to_whitelist_request(request: Request) -> WhitelistRequest:
    """
    Return the parameters that would create this request.

    Values that the service fills in, and empty fields, are left out.

    :param request: a listed request.
    :raises RefusalError: if no parameters would create this request, because a field is malformed or has surrounding
        white space.
    """
    envelope = request.envelope
    fields: dict[str, Any] = {}
    for name, key in PAYLOAD_KEYS.items():
        value = request.fields.get(name)
        if isinstance(value, list):
            value = [each.get("id") if isinstance(each, dict) else each for each in value]
        if key.field is not None and value not in (None, "", [], key.harmless):
            fields[key.field] = value
    if envelope is not None and envelope.network:
        fields.setdefault("network", envelope.network)
    if envelope is not None and envelope.visibility_group_id:
        fields["visibility_group_id"] = envelope.visibility_group_id
    found, faults = request_from_fields(fields)
    if found is None:
        raise RefusalError(f"it cannot be written in a file: {'; '.join(map(str, faults))}")
    return found


def compare_effective(expected: WhitelistRequest, request: Request, settings: ClientSettings) -> None:
    """
    Compare a request in effect with its whole expected content.

    For a verified request, only the signed text is compared, so an expected field that no signature covers does not
    match. For any other request, the payload is compared; it must match the hash that the service returns.

    :param expected: the expected content.
    :param request: the request.
    :param settings: the client's settings, with the accepted fields.
    :raises CustodyRequestError: if the request does not match; the error names the fields.
    :raises CustodyResponseError: if the request is not in effect or cannot be read.
    """
    if request.envelope is None or request.state != "effective":
        raise CustodyResponseError(
            f"{request.name} is {request.state}, and cannot be compared: {request.reason}", code="request-differs"
        )
    check_asked(expected, request.envelope, request.fields, settings)


# --- in words ----------------------------------------------------------------------------------------------


def status_word(status: str | None) -> str:
    """Return a status as sent by the service, shortened for reports; empty if there is none."""
    return sanitize(status or "", _MAX_STATUS)


def verified_facts(verified: VerifiedAddress) -> dict[str, Any]:
    """
    Return the facts that signatures prove, as plain JSON data.

    :param verified: the verified address.
    :return: ``fields``: the signed fields, by parameter name; ``signed_by``: the external ids of the users whose
        signatures counted; ``rules_date``: the date of the rules, empty if they have none.
    """
    fields: dict[str, Any] = {}
    for name, key in PAYLOAD_KEYS.items():
        value = verified.fields.get(name)
        if value not in (None, "", []):
            fields[key.field or name] = [str(link["id"]) for link in value] if isinstance(value, list) else value
    timestamp = verified.rules.timestamp
    date = (format_unix_time(timestamp) or str(timestamp)) if timestamp else ""
    return {"fields": fields, "signed_by": list(verified.user_ids), "rules_date": date}


def describe_verified(facts: Mapping[str, Any]) -> str:
    """Describe the signers and the rules in a result of :func:`verified_facts`."""
    signed_by = name_some(facts["signed_by"], 60)
    date = facts["rules_date"].replace("T", " ").replace("Z", " UTC")
    rules = f"rules of {date}" if date else "rules without a date"
    return f"signed by {signed_by} under {rules}"
