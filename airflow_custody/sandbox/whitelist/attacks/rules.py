"""Attacks on the rules and their signatures."""

from __future__ import annotations

import base64
import time
from typing import Any

from airflow_custody.sandbox.rules.encoder import encode_rules_container, encode_user, encode_user_signatures
from airflow_custody.sandbox.rules.keys import public_key_of, sign
from airflow_custody.sandbox.whitelist.attacks.base import (
    Envelope,
    Means,
    Unsuitable,
    attack,
    container_of,
    encode,
    entry,
    hash_of,
    mirrored,
    own_key,
    set_entries,
    set_rules,
    signed_by,
    to_der,
)

_MALLORY = "mallory@example.test"
_YEAR = 365 * 24 * 60 * 60
#: Larger than any rules there are.
_HUGE = 10_000_000


def _rules_of_one(key: str, *others: dict[str, Any], seconds: int) -> bytes:
    """Return rules under which one key alone signs for all chains."""
    user = {"id": _MALLORY, "publicKey": public_key_of(key), "roles": ["WhitelistedAddressApprover"]}
    branch = {"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 1}]}
    rule = {"currency": "", "network": "", "parallel": [branch], "lines": []}
    return encode_rules_container([user, *others], {"approvers": [_MALLORY]}, [rule], seconds)


def _sign_with_own_key(envelope: Envelope) -> None:
    set_entries(envelope, [entry(_MALLORY, own_key(), [hash_of(envelope)])])


@attack(2, "own rules")
def _own_rules(envelope: Envelope, _: Means) -> None:
    """Make rules of its own, sign them and the address with keys of its own."""
    container = _rules_of_one(own_key(), seconds=int(time.time()))
    set_rules(envelope, container, signed_by({"admin": own_key("admin"), "board": own_key("board")}, container))
    _sign_with_own_key(envelope)


@attack(2, "own rules under the super-administrators' names")
def _own_rules_under_their_names(envelope: Envelope, means: Means) -> None:
    """Make rules of its own, and say that those who signed them are the super-administrators."""
    container = _rules_of_one(own_key(), seconds=int(time.time()))
    set_rules(envelope, container, signed_by({name: own_key(name) for name in means.superadmins}, container))
    _sign_with_own_key(envelope)


@attack(2, "own super-administrators in the rules")
def _own_superadmins(envelope: Envelope, means: Means) -> None:
    """Make rules of its own that name the keys that signed them as super-administrators' keys."""
    keys = {name: own_key(name) for name in means.superadmins}
    named = [{"id": name, "publicKey": public_key_of(key), "roles": ["SuperAdmin"]} for name, key in keys.items()]
    container = _rules_of_one(own_key(), *named, seconds=int(time.time()))
    set_rules(envelope, container, signed_by(keys, container))
    _sign_with_own_key(envelope)


@attack(3, "one super-administrator repeated")
def _repeat_superadmin(envelope: Envelope, means: Means) -> None:
    """Show rules that one super-administrator has signed, with that signature three times."""
    name, signature, container = _one_signature(means)
    set_rules(envelope, container, [(name, signature)] * 3)
    _sign_with_own_key(envelope)


@attack(3, "one super-administrator under several names")
def _rename_superadmin(envelope: Envelope, means: Means) -> None:
    """Show rules that one super-administrator has signed, with that signature under the names of all."""
    _, signature, container = _one_signature(means)
    set_rules(envelope, container, [(name, signature) for name in means.superadmins])
    _sign_with_own_key(envelope)


@attack(3, "one super-administrator mirrored")
def _mirror_superadmin(envelope: Envelope, means: Means) -> None:
    """Show rules that one super-administrator has signed, with a second signature made of the first: n - s for s."""
    name, signature, container = _one_signature(means)
    _, other, *_more = means.superadmins
    set_rules(envelope, container, [(name, signature), (other, mirrored(signature))])
    _sign_with_own_key(envelope)


def _one_signature(means: Means) -> tuple[str, bytes, bytes]:
    """Return who has signed rules that not enough have, the signature, and the rules."""
    if means.superadmin_minimum < 2:
        raise Unsuitable("it takes two super-administrators who must sign")
    container = _rules_of_one(own_key(), seconds=int(time.time()))
    name, key = next(iter(means.superadmins.items()))
    return name, sign(key, container), container


@attack(4, "older rules", "not visible")
def _older_rules(envelope: Envelope, means: Means) -> None:
    """Show rules that the super-administrators really signed last year, under which one key, since lost, suffices."""
    container = _rules_of_one(own_key(), seconds=int(time.time()) - _YEAR)
    set_rules(envelope, container, signed_by(means.superadmins, container))
    _sign_with_own_key(envelope)


@attack(4, "rules of another tenant")
def _rules_of_another_tenant(envelope: Envelope, _: Means) -> None:
    """Show rules that super-administrators of another tenant, with keys of their own, really signed."""
    container = _rules_of_one(own_key(), seconds=int(time.time()) - _YEAR)
    keys = {name: own_key(f"other tenant {name}") for name in ("superadmin-1@other.test", "superadmin-2@other.test")}
    set_rules(envelope, container, signed_by(keys, container))
    _sign_with_own_key(envelope)


@attack(5, "changed rules")
def _flip_bit(envelope: Envelope, _: Means) -> None:
    """Change a bit in the middle of the rules."""
    data = bytearray(container_of(envelope))
    data[len(data) // 2] ^= 1
    envelope["rulesContainer"] = encode(bytes(data))


@attack(5, "shortened rules")
def _shorten(envelope: Envelope, _: Means) -> None:
    """Cut the date off the rules."""
    envelope["rulesContainer"] = encode(container_of(envelope)[:-6])


@attack(5, "extended rules")
def _extend(envelope: Envelope, _: Means) -> None:
    """Append a user with a key of its own to the rules."""
    user = {"id": _MALLORY, "publicKey": public_key_of(own_key()), "roles": ["WhitelistedAddressApprover"]}
    envelope["rulesContainer"] = encode(container_of(envelope) + encode_user(user))


@attack(5, "junk in the rules' base64")
def _junk_in_base64(envelope: Envelope, _: Means) -> None:
    """Put characters that are none of base64's into the rules, which lenient decoders skip."""
    text = encode(container_of(envelope))
    envelope["rulesContainer"] = f"{text[:40]}!\n {text[40:]}"


@attack(5, "URL-safe base64")
def _url_safe(envelope: Envelope, means: Means) -> None:
    """Write the signatures of the rules in the other alphabet of base64."""
    container, text = container_of(envelope), ""
    while not set("+/") & set(text):
        text = encode(encode_user_signatures(signed_by(means.superadmins, container)))
    envelope["rulesSignatures"] = text.replace("+", "-").replace("/", "_")


@attack(5, "super-administrators' signatures in DER")
def _superadmins_in_der(envelope: Envelope, means: Means) -> None:
    """Write the signatures of the rules in DER."""
    container = container_of(envelope)
    signatures = [(name, to_der(signature)) for name, signature in signed_by(means.superadmins, container)]
    set_rules(envelope, container, signatures)


@attack(16, "bad key of somebody else", "not read")
def _bad_key(envelope: Envelope, means: Means) -> None:
    """Show rules, really signed, in which somebody who need not sign has a key that is none."""
    container = container_of(envelope) + encode_user({"id": "x@example.test", "publicKey": "no key", "roles": []})
    set_rules(envelope, container, signed_by(means.superadmins, container))


@attack(17, "huge rules")
def _huge(envelope: Envelope, _: Means) -> None:
    """Send rules of ten million bytes."""
    envelope["rulesContainer"] = encode(container_of(envelope) + bytes(_HUGE))


@attack(17, "endless number in the rules")
def _endless_varint(envelope: Envelope, means: Means) -> None:
    """Append a number that does not end to rules that are really signed."""
    container = container_of(envelope) + b"\xff" * 1000
    set_rules(envelope, container, signed_by(means.superadmins, container))


@attack(17, "rules in JSON")
def _rules_in_json(envelope: Envelope, means: Means) -> None:
    """Send JSON, really signed, in place of the rules."""
    container = b'{"users":[],"groups":[],"addressWhitelistingRules":[]}'
    set_rules(envelope, container, signed_by(means.superadmins, container))


@attack(17, "null for the rules")
def _null_rules(envelope: Envelope, _: Means) -> None:
    """Send null in place of the rules."""
    envelope["rulesContainer"] = envelope["rulesSignatures"] = None


@attack(17, "list for the rules' signatures")
def _list_of_signatures(envelope: Envelope, _: Means) -> None:
    """Send the signatures of the rules as a list, as another operation of the service does."""
    envelope["rulesSignatures"] = [
        {"userId": "superadmin-1@example.test", "signature": base64.b64encode(b"x" * 64).decode()}
    ]
