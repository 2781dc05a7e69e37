"""
The only rule by which requests are trusted.

A request in effect needs enough valid signatures. A pending request needs a text that matches its hash, and must have
no invalid signature. A rejected request needs nothing.

:func:`decide_trust` applies the rule to a request, according to the state that the service reports. Nothing here reads
    from the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.text import as_name, is_decimal, read_number, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.verification.results import RequestSignatures, VerifiedAddress
    from airflow_custody.client.verification.verifier import Verifier

#: The warning that no keys are pinned; each task logs it once.
NOT_PINNED = "No super-administrators' keys are pinned, so the service is trusted without verification."
# Maximum length of an id in a command that users copy.
_MAX_ID = 40

#: State of a request, as the service reports it. ``unknown``: it is not pending, and its status word is unknown, or
#: the listings contradict each other about it.
ReportedState = Literal["effective", "pending", "rejected", "unknown"]
#: Result of verifying a request. ``verified``: everything that its state requires is proved. ``unsigned``: the request
#: is pending, its text matches its hash, and it has no signatures yet. ``unverified``: something that its state
#: requires is not proved. ``not checked``: its state requires no proof, or no keys are pinned.
TrustState = Literal["verified", "unsigned", "unverified", "not checked"]


@dataclass(frozen=True)
class Trust:
    """
    The result of verifying a request.

    :param state: the result.
    :param address: the verified address, if the request is not reported as pending. Default None.
    :param signatures: its signatures, all of which are valid, if it is pending. Default None.
    :param error: the reason why it is unverified. Default None: it is not unverified.
    """

    state: TrustState
    address: VerifiedAddress | None = None
    signatures: RequestSignatures | None = None
    error: CustodyVerificationError | None = None


def decide_trust(envelope: Mapping[str, Any], state: ReportedState, verifier: Verifier | None) -> Trust:
    """
    Decide whether a request can be trusted in its state.

    A request in effect, or settled with an unknown status, must be signed as the rules require. A pending request must
    have a text that matches its hash, and each of its signatures must be valid. A rejected request needs no proof,
    because it has no effect.

    :param envelope: the request, as received.
    :param state: its state.
    :param verifier: the verifier; None: no keys are pinned, and nothing is checked.
    :return: the result.
    """
    if verifier is None or state == "rejected":
        return Trust("not checked")
    try:
        _check_id(envelope)
        if state == "pending":
            signatures = verifier.verify_signatures(envelope)
            return Trust("verified" if signatures.user_ids else "unsigned", signatures=signatures)
        return Trust("verified", address=verifier.verify(envelope))
    except CustodyVerificationError as error:
        return Trust("unverified", error=error)


def _check_id(envelope: Mapping[str, Any]) -> None:
    identifier = envelope.get("id")
    identifier = identifier if isinstance(identifier, str) else as_name(identifier)
    if not identifier or read_number(identifier, MAX_ID) is None:
        shown = sanitize(identifier, 40) if identifier else "without an id"
        why = "its id is not a number"
        raise CustodyVerificationError(f"whitelisting request {shown} is not verified: {why}", why=why)


# --- in words ----------------------------------------------------------------------------------------------


def describe_legacy(omitted: Iterable[str]) -> str:
    """Describe a legacy form that was signed, and the fields that it lacks."""
    return f"in a legacy form, which does not cover {' and '.join(omitted) or 'nothing'}"


def what_to_do(ids: Sequence[str], advice: str | None = None) -> str:
    """
    Return advice about requests that are not verified.

    :param ids: the requests' ids; the first is named in a command.
    :param advice: the verifier's advice, which comes first. Default None.
    """
    pronoun = "it" if len(ids) == 1 else "them"
    option = next((f" --id {each}" for each in ids[:1] if is_decimal(each) and len(each) <= _MAX_ID), "")
    default = (
        f"Do not use {pronoun} before you know who requested {pronoun}; "
        f"`custody whitelist verify{option}` reports what is verified."
    )
    return f"{advice} {default}" if advice else default
