"""Attacks on what of an envelope nobody signs, and on which envelopes are shown."""

from __future__ import annotations

import json

from airflow_custody.sandbox.whitelist.attacks.base import (
    Envelope,
    Means,
    Unsuitable,
    attack,
    entries_of,
    hash_of,
    text_of,
)
from airflow_custody.sandbox.whitelist.store import EFFECTIVE, REMOVED


@attack(9, "another chain")
def _another_chain(envelope: Envelope, _: Means) -> None:
    """Say that the request is for another chain, with other rules."""
    envelope["blockchain"] = "XLM" if envelope["blockchain"] != "XLM" else "ETH"


@attack(9, "another network")
def _another_network(envelope: Envelope, _: Means) -> None:
    """Say that the request is for another network than its text says, with other rules."""
    if not json.loads(text_of(envelope)).get("network"):
        raise Unsuitable("it takes a request whose text has a network")
    envelope["network"] = _other_network(envelope)


@attack(15, "swapped network", "not visible")
def _swapped_network(envelope: Envelope, _: Means) -> None:
    """Say that the request is for another network, where its text does not have it."""
    if json.loads(text_of(envelope)).get("network"):
        raise Unsuitable("it takes a request whose text has no network")
    envelope["network"] = _other_network(envelope)


def _other_network(envelope: Envelope) -> str:
    return "testnet" if envelope.get("network") != "testnet" else "mainnet"


@attack(10, "no approvers", "not read")
def _no_approvers(envelope: Envelope, _: Means) -> None:
    """Say that nobody must sign."""
    envelope["approvers"] = {"parallel": []}


@attack(10, "weaker approvers", "not read")
def _weaker_approvers(envelope: Envelope, _: Means) -> None:
    """Say that one person of any group must sign."""
    group = {"externalGroupID": "everybody", "minimumSignatures": 1}
    envelope["approvers"] = {"parallel": [{"sequential": [group]}]}


@attack(13, "another envelope", "compared")
def _another_envelope(envelope: Envelope, means: Means) -> None:
    """Show another request, validly signed, under the id of this one."""
    for other in means.others():
        if other.get("signedAddress") and hash_of(other) != hash_of(envelope):
            envelope.update({**other, "id": envelope["id"]})
            return
    raise Unsuitable("it takes another request that is signed")


@attack(14, "replayed approval", "not visible", status=EFFECTIVE)
def _replayed_approval(envelope: Envelope, means: Means) -> None:
    """Show signatures of an earlier request for the same, which may be deleted, as those of this one."""
    for other in means.others():
        if other.get("signedAddress") and hash_of(other) == hash_of(envelope):
            for name in ("signedAddress", "rulesContainer", "rulesSignatures"):
                envelope[name] = other[name]
            return
    raise Unsuitable("it takes another request with the same text that is signed")


@attack(14, "unsigned", status=EFFECTIVE)
def _unsigned(envelope: Envelope, _: Means) -> None:
    """Show a request as approved that nobody signed."""
    envelope.pop("signedAddress", None)


@attack(14, "still approved", "not visible", status=EFFECTIVE)
def _still_approved(envelope: Envelope, _: Means) -> None:
    """Go on showing a request as approved that was rejected or deleted after it was signed."""
    entries_of(envelope)


@attack(14, "hidden", "not visible", status=REMOVED)
def _hidden(envelope: Envelope, _: Means) -> None:
    """Show nothing of the request."""
