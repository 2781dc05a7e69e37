"""
A malicious service: the sandbox shows a whitelisting request as somebody would who wants it to be believed.

It has what the real service has: rules and signatures that were made once, and other requests. What it takes keys for
that it has not, it makes with keys of its own. :mod:`whitelist_forge` makes whole envelopes without a sandbox.
"""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import requests
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from whitelist_forge import (
    b64,
    compact,
    container,
    field,
    group,
    hash_of,
    message_of,
    path,
    raw,
    retext,
    rule,
    rules_signatures,
    signing,
    superadmin_entry,
    twin,
    user,
    user_id,
)

from airflow_custody.sandbox import SandboxControl

Envelope = dict[str, Any]
#: What somebody who verifies by signatures alone makes of an attack: refuses the envelope; does not read what was
#: changed; can only compare what was signed with what was asked for; or cannot know.
Outcome = Literal["refused", "not read", "compared", "not visible"]

#: Where the attacker wants the funds to go.
OTHER_ADDRESS = "0x" + "66" * 20
_YEAR = 365 * 24 * 60 * 60


class Unsuitable(Exception):
    """Raised when an attack does not fit a request."""


@dataclass(frozen=True)
class Means:
    """
    What a malicious service has at hand, or what has once been signed for it.

    :param keys: private keys by the ids of those who have them.
    :param others: the envelopes of other requests that are in effect.
    """

    keys: dict[str, str]
    others: list[Envelope]

    @property
    def superadmins(self) -> list[str]:
        return [name for name in self.keys if name.startswith("superadmin")]

    def sign(self, name: str, message: bytes) -> bytes:
        key = load_pem_private_key(self.keys[name].encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return raw(*decode_dss_signature(key.sign(message, ec.ECDSA(SHA256()))))

    def signing(self, name: str, *hashes: str) -> dict[str, Any]:
        """Return the entry of a user's true signature over hashes."""
        return signing(name, *hashes, label=name, signature=self.sign(name, message_of(hashes)))

    def superadmin_entry(self, name: str, rules: bytes) -> bytes:
        return superadmin_entry(name, rules, label=name, signature=self.sign(name, rules))


Change = Callable[[Envelope, Means], Envelope]
#: What changes an envelope, and what comes of it, by name.
ATTACKS: dict[str, tuple[Outcome, Change]] = {}


def names(*outcomes: Outcome) -> list[str]:
    """Return the names of the attacks with these outcomes; by default, of all."""
    return [name for name, (outcome, _) in ATTACKS.items() if not outcomes or outcome in outcomes]


def attack(control: SandboxControl, token: str, number: str, name: str) -> None:
    """Have a sandbox lie about a request, wherever it shows it, until its envelope is set again."""
    root, headers = f"{control.url}/api/rest/v1/whitelists/addresses", {"Authorization": f"Bearer {token}"}
    control.set_whitelist_envelope(number)
    lawful = requests.get(f"{root}/{number}", headers=headers, timeout=30).json()["result"]
    found = requests.get(root, headers=headers, params={"limit": 100}, timeout=30).json().get("result", [])
    means = Means(control.private_keys(), [each for each in found if each["id"] != number and "signedAddress" in each])
    _, change = ATTACKS[name]
    changed = change(copy.deepcopy(lawful), means)
    if changed == lawful:
        raise Unsuitable(f"request {number} is already shown this way")
    control.set_whitelist_envelope(number, **{**dict.fromkeys(lawful), **changed})


def _attack(name: str, outcome: Outcome = "refused") -> Callable[[Change], Change]:
    def register(change: Change) -> Change:
        ATTACKS[name] = (outcome, change)
        return change

    return register


def _text(envelope: Envelope) -> str:
    return str(envelope["metadata"]["payloadAsString"])


def _with_text(envelope: Envelope, **keys: Any) -> Envelope:
    return retext(envelope, compact({**json.loads(_text(envelope)), **keys}))


def _append(envelope: Envelope, more: str) -> Envelope:
    return retext(envelope, f"{_text(envelope)[:-1]}{more}}}")


def _entries(envelope: Envelope, minimum: int = 1) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = envelope.get("signedAddress", {}).get("signatures", [])
    if len(entries) < minimum:
        raise Unsuitable(f"it takes a request with {minimum} signatures")
    return entries


def _with_entries(envelope: Envelope, entries: Iterable[Any]) -> Envelope:
    return envelope | {"signedAddress": {**envelope.get("signedAddress", {}), "signatures": [*entries]}}


def _relabelled(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {**entry, "signature": {**entry["signature"], "userId": name}}


def _resigned(envelope: Envelope, means: Means, text: str) -> Envelope:
    """Have those who signed sign another text instead, as they once did; the text that is shown stays."""
    signers = [each["signature"]["userId"] for each in _entries(envelope)]
    if not {*signers} <= means.keys.keys():
        raise Unsuitable("it takes a request that only the sandbox's own signers have signed")
    return _with_entries(envelope, (means.signing(name, hash_of(text)) for name in signers))


def _container(envelope: Envelope) -> bytes:
    if "rulesContainer" not in envelope:
        raise Unsuitable("it takes a request that shows its rules")
    return base64.b64decode(envelope["rulesContainer"])


def _own_rules(age: int = 0) -> bytes:
    """Return rules in which one key of the service's own alone signs for all chains."""
    groups, rules = (group("approvers", "mallory"),), (rule("", path(("approvers", 1))),)
    return container(users=(user("mallory"),), groups=groups, rules=rules, timestamp=int(time.time()) - age)


def _under_own_rules(envelope: Envelope, rules: bytes, *entries: str | bytes) -> Envelope:
    shown = {"rulesContainer": b64(rules), "rulesSignatures": rules_signatures(rules, *entries)}
    return _with_entries(envelope, [signing("mallory", envelope["metadata"]["hash"])]) | shown


def _with_rules(envelope: Envelope, means: Means, rules: bytes) -> Envelope:
    """Show rules that the super-administrators have really signed."""
    entries = (means.superadmin_entry(name, rules) for name in means.superadmins)
    return envelope | {"rulesContainer": b64(rules), "rulesSignatures": rules_signatures(rules, *entries)}


# The text


@_attack("text")
def _change_text(envelope: Envelope, _: Means) -> Envelope:
    text = _text(envelope).replace(json.loads(_text(envelope))["address"], OTHER_ADDRESS)
    return envelope | {"metadata": envelope["metadata"] | {"payloadAsString": text}}


@_attack("text and hash")
def _change_text_and_hash(envelope: Envelope, _: Means) -> Envelope:
    return _with_text(envelope, address=OTHER_ADDRESS)


@_attack("payload", "not read")
def _change_payload(envelope: Envelope, _: Means) -> Envelope:
    metadata = envelope["metadata"]
    return envelope | {"metadata": metadata | {"payload": metadata["payload"] | {"address": OTHER_ADDRESS}}}


@_attack("address twice")
def _address_twice(envelope: Envelope, _: Means) -> Envelope:
    return _append(envelope, f',"address":"{OTHER_ADDRESS}"')


@_attack("address in another case")
def _address_in_another_case(envelope: Envelope, _: Means) -> Envelope:
    return _append(envelope, f',"Address":"{OTHER_ADDRESS}"')


@_attack("invented contract type")
def _invented_contract_type(envelope: Envelope, means: Means) -> Envelope:
    """Give an old text, which was signed without one, a contract type, which the first legacy form leaves out."""
    old = json.loads(_text(envelope))
    old.pop("contractType", None)
    for each in old["linkedInternalAddresses"]:
        each.pop("label", None)
    return _append(retext(_resigned(envelope, means, compact(old)), compact(old)), ',"contractType":"ERC20"')


@_attack("wallet added")
def _wallet_added(envelope: Envelope, _: Means) -> Envelope:
    wallets = json.loads(_text(envelope)).get("linkedWallets", [])
    return _with_text(envelope, linkedWallets=[*wallets, {"id": 66, "name": "Wallet 66", "path": "m/44'/60'/66'"}])


@_attack("lone surrogate")
def _lone_surrogate(envelope: Envelope, _: Means) -> Envelope:
    return _with_text(envelope, label="Treasury \ud800")


@_attack("number for the text")
def _number_for_the_text(envelope: Envelope, _: Means) -> Envelope:
    return envelope | {"metadata": envelope["metadata"] | {"payloadAsString": 3711}}


@_attack("another kind of text")
def _another_kind_of_text(envelope: Envelope, means: Means) -> Envelope:
    text = compact({"name": "Treasury", "symbol": "TRS", "decimals": 18})
    return retext(_resigned(envelope, means, text), text)


# The rules


@_attack("own rules")
def _own_rules_and_keys(envelope: Envelope, _: Means) -> Envelope:
    return _under_own_rules(envelope, _own_rules(), "mallory", "eve")


@_attack("own rules under the super-administrators' names")
def _own_rules_under_their_names(envelope: Envelope, means: Means) -> Envelope:
    rules = _own_rules()
    return _under_own_rules(envelope, rules, *(superadmin_entry("mallory", rules, label=n) for n in means.superadmins))


@_attack("one super-administrator under several names")
def _one_superadmin(envelope: Envelope, means: Means) -> Envelope:
    rules = _own_rules()
    signature = means.sign(means.superadmins[0], rules)
    entries = (superadmin_entry(name, rules, label=name, signature=signature) for name in means.superadmins)
    return _under_own_rules(envelope, rules, *entries)


@_attack("one super-administrator mirrored")
def _mirrored_superadmin(envelope: Envelope, means: Means) -> Envelope:
    rules, (first, second, *_) = _own_rules(), means.superadmins
    mirrored = superadmin_entry(second, rules, label=second, signature=twin(means.sign(first, rules)))
    return _under_own_rules(envelope, rules, means.superadmin_entry(first, rules), mirrored)


@_attack("older rules", "not visible")
def _older_rules(envelope: Envelope, means: Means) -> Envelope:
    """Show rules that the super-administrators really signed last year, under which one key, since lost, suffices."""
    return _with_rules(_under_own_rules(envelope, _own_rules(_YEAR)), means, _own_rules(_YEAR))


@_attack("changed rules")
def _changed_rules(envelope: Envelope, _: Means) -> Envelope:
    data = bytearray(_container(envelope))
    data[len(data) // 2] ^= 1
    return envelope | {"rulesContainer": b64(bytes(data))}


@_attack("extended rules")
def _extended_rules(envelope: Envelope, _: Means) -> Envelope:
    return envelope | {"rulesContainer": b64(_container(envelope) + field(1, user("mallory")))}


@_attack("bad key of somebody else", "not read")
def _bad_key(envelope: Envelope, means: Means) -> Envelope:
    return _with_rules(envelope, means, _container(envelope) + field(1, user("eve", key="no key")))


@_attack("endless number in the rules")
def _endless_number(envelope: Envelope, means: Means) -> Envelope:
    return _with_rules(envelope, means, _container(envelope) + b"\xff" * 1000)


@_attack("rules in JSON")
def _rules_in_json(envelope: Envelope, means: Means) -> Envelope:
    return _with_rules(envelope, means, b'{"users":[],"groups":[],"addressWhitelistingRules":[]}')


@_attack("no rules")
def _no_rules(envelope: Envelope, _: Means) -> Envelope:
    return envelope | {"rulesContainer": None, "rulesSignatures": None}


@_attack("list for the rules' signatures")
def _list_of_signatures(envelope: Envelope, _: Means) -> Envelope:
    return envelope | {"rulesSignatures": [{"userId": "superadmin-1@example.test", "signature": b64(b"x" * 64)}]}


# The users' signatures


@_attack("signatures in DER")
def _signatures_in_der(envelope: Envelope, _: Means) -> Envelope:
    entries = _entries(envelope)
    for each in entries:
        data = base64.b64decode(each["signature"]["signature"])
        numbers = (int.from_bytes(half, "big") for half in (data[:32], data[32:]))
        each["signature"]["signature"] = b64(encode_dss_signature(*numbers))
    return _with_entries(envelope, entries)


@_attack("one user repeated")
def _one_user_repeated(envelope: Envelope, _: Means) -> Envelope:
    entries = _entries(envelope, 2)
    return _with_entries(envelope, [entries[0]] * len(entries))


@_attack("one user under several names")
def _one_user_renamed(envelope: Envelope, _: Means) -> Envelope:
    entries = _entries(envelope, 2)
    return _with_entries(envelope, (_relabelled(entries[0], each["signature"]["userId"]) for each in entries))


@_attack("hash added")
def _hash_added(envelope: Envelope, _: Means) -> Envelope:
    return _with_entries(envelope, ({**each, "hashes": [*each["hashes"], "66" * 32]} for each in _entries(envelope)))


@_attack("hash in an old signature")
def _hash_in_an_old_signature(envelope: Envelope, means: Means) -> Envelope:
    old = [each for other in means.others for each in _entries(other)]
    if not old:
        raise Unsuitable("it takes another request that is signed")
    hash_ = envelope["metadata"]["hash"]
    return _with_entries(envelope, ({**each, "hashes": [*each["hashes"], hash_]} for each in old))


@_attack("signer outside of the group")
def _signer_outside_of_the_group(envelope: Envelope, means: Means) -> Envelope:
    hash_ = envelope["metadata"]["hash"]
    return _with_entries(envelope, (means.signing(name, hash_) for name in means.superadmins))


@_attack("unknown signers")
def _unknown_signers(envelope: Envelope, _: Means) -> Envelope:
    return _with_entries(envelope, (signing(name, envelope["metadata"]["hash"]) for name in ("mallory", "eve")))


@_attack("signatures under the users' names")
def _signatures_under_their_names(envelope: Envelope, _: Means) -> Envelope:
    signers, hash_ = [each["signature"]["userId"] for each in _entries(envelope)], envelope["metadata"]["hash"]
    return _with_entries(envelope, (signing("mallory", hash_, label=name) for name in signers))


@_attack("junk entry first", "not read")
def _junk_entry_first(envelope: Envelope, _: Means) -> Envelope:
    junk = signing("eve", envelope["metadata"]["hash"], label=user_id("eve"), signature=bytes(range(64)))
    return _with_entries(envelope, [junk, *_entries(envelope)])


@_attack("null lists")
def _null_lists(envelope: Envelope, _: Means) -> Envelope:
    return _with_entries(envelope, ({**each, "hashes": None} for each in _entries(envelope)))


@_attack("numbers for signatures")
def _numbers_for_signatures(envelope: Envelope, _: Means) -> Envelope:
    return _with_entries(envelope, (3711 for _each in _entries(envelope)))


# What nobody signs, and other envelopes


@_attack("another chain")
def _another_chain(envelope: Envelope, _: Means) -> Envelope:
    return envelope | {"blockchain": "XLM"}


@_attack("another network")
def _another_network(envelope: Envelope, _: Means) -> Envelope:
    if not json.loads(_text(envelope)).get("network"):
        raise Unsuitable("it takes a request whose text has a network")
    return envelope | {"network": "testnet"}


@_attack("swapped network", "not visible")
def _swapped_network(envelope: Envelope, _: Means) -> Envelope:
    if json.loads(_text(envelope)).get("network"):
        raise Unsuitable("it takes a request whose text has no network")
    return envelope | {"network": "testnet"}


@_attack("weaker approvers", "not read")
def _weaker_approvers(envelope: Envelope, _: Means) -> Envelope:
    everybody = {"externalGroupID": "everybody", "minimumSignatures": 1}
    return envelope | {"approvers": {"parallel": [{"sequential": [everybody]}]}}


@_attack("another envelope", "compared")
def _another_envelope(envelope: Envelope, means: Means) -> Envelope:
    others = [each for each in means.others if each["metadata"]["hash"] != envelope["metadata"]["hash"]]
    if not others:
        raise Unsuitable("it takes another request that is signed")
    return others[0] | {"id": envelope["id"]}
