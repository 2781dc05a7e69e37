"""Attacks on the text that is hashed."""

from __future__ import annotations

import json

from airflow_custody.sandbox.whitelist.attacks.base import (
    Envelope,
    Means,
    Unsuitable,
    append_to_text,
    attack,
    change_text,
    entries_of,
    set_text,
    sign_again,
    text_of,
)
from airflow_custody.sandbox.wire import dumps

#: Where the attacker wants the funds to go.
OTHER_ADDRESS = "0x" + "66" * 20
_BACKSLASH = ',"contractType":"\\"'


@attack(1, "text")
def _change_text(envelope: Envelope, _: Means) -> None:
    """Show another address in the text, and keep its hash."""
    text = text_of(envelope)
    address = json.loads(text)["address"]
    envelope["metadata"] = {**envelope["metadata"], "payloadAsString": text.replace(address, OTHER_ADDRESS)}


@attack(1, "text and hash")
def _change_text_and_hash(envelope: Envelope, _: Means) -> None:
    """Show another address in the text, with the hash of that text."""
    change_text(envelope, address=OTHER_ADDRESS)


@attack(1, "payload", "not read")
def _change_payload(envelope: Envelope, _: Means) -> None:
    """Show another address in the payload that is an object, which nobody signs."""
    metadata = envelope["metadata"]
    envelope["metadata"] = {**metadata, "payload": {**metadata["payload"], "address": OTHER_ADDRESS}}


@attack(11, "address twice")
def _append_address(envelope: Envelope, _: Means) -> None:
    """Give the text a second address, which many JSON readers take."""
    append_to_text(envelope, f',"address":"{OTHER_ADDRESS}"')


@attack(11, "address in another case")
def _append_address_in_another_case(envelope: Envelope, _: Means) -> None:
    """Give the text a second address under the key Address, which JSON readers that ignore case take."""
    append_to_text(envelope, f',"Address":"{OTHER_ADDRESS}"')


@attack(11, "appended label")
def _append_label(envelope: Envelope, _: Means) -> None:
    """Give the text a second label, which the second legacy form of the text cuts off again."""
    append_to_text(envelope, ',"label":"Treasury, really"')


@attack(11, "invented contract type")
def _invent_contract_type(envelope: Envelope, means: Means) -> None:
    """Give an old text, which was signed without one, a contract type that the first legacy form cuts off again."""
    old = _sign_old_text(envelope, means)
    set_text(envelope, old[:-1] + ',"contractType":"ERC20"}')


@attack(11, "backslash values")
def _hide_memo(envelope: Envelope, means: Means) -> None:
    """Make the memo of an old text a part of other values, by contract types that the first legacy form cuts off."""
    old = _sign_old_text(envelope, means)
    # Each begins a string that the quotation mark behind it ends.
    cut = _BACKSLASH
    set_text(envelope, old.replace(',"memo":"', f'{cut},"{cut}memo"{cut}:"{cut}', 1))


def _sign_old_text(envelope: Envelope, means: Means) -> str:
    """Have the text signed as it was before it had two of its keys, and return that."""
    payload = json.loads(text_of(envelope))
    payload.pop("contractType", None)
    for each in payload["linkedInternalAddresses"]:
        each.pop("label", None)
    old = dumps(payload)
    sign_again(envelope, means, old)
    return old


@attack(12, "wallets dropped")
def _drop_wallets(envelope: Envelope, _: Means) -> None:
    """Leave the linked wallets out of the text, to have other thresholds."""
    if "linkedWallets" not in json.loads(text_of(envelope)):
        raise Unsuitable("it takes a request with linked wallets")
    change_text(envelope, linkedWallets=None)


@attack(12, "wallet added")
def _add_wallet(envelope: Envelope, _: Means) -> None:
    """Put one more linked wallet into the text, to have other thresholds."""
    wallets = json.loads(text_of(envelope)).get("linkedWallets", [])
    change_text(envelope, linkedWallets=[*wallets, {"id": 66, "name": "Wallet 66", "path": "m/44'/60'/66'"}])


@attack(17, "lone surrogate")
def _add_lone_surrogate(envelope: Envelope, _: Means) -> None:
    """Put half of a surrogate pair into the text, which then cannot be hashed, nor the response be read."""
    change_text(envelope, label="Treasury \ud800")


@attack(17, "escaped lone surrogate")
def _add_escaped_lone_surrogate(envelope: Envelope, _: Means) -> None:
    """Put half of a surrogate pair, escaped, into the label, which then is no text."""
    change_text(envelope, label="Treasury \ud800")
    set_text(envelope, text_of(envelope).replace("\ud800", "\\ud800"))


@attack(17, "number for the text")
def _send_number(envelope: Envelope, _: Means) -> None:
    """Send a number in place of the text."""
    envelope["metadata"] = {**envelope["metadata"], "payloadAsString": 3711}


@attack(17, "no metadata")
def _send_no_metadata(envelope: Envelope, _: Means) -> None:
    """Send null in place of the metadata."""
    envelope["metadata"] = None


@attack(18, "another kind of text")
def _sign_another_kind(envelope: Envelope, means: Means) -> None:
    """Show a text without chain and address, of another kind of thing, that the users really signed."""
    entries_of(envelope)
    text = dumps({"name": "Treasury", "symbol": "TRS", "decimals": 18})
    sign_again(envelope, means, text)
    set_text(envelope, text)
