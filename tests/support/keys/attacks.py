"""
Attacks by a malicious service, which changes the envelopes that it returns.

The service has what the real service has: signed rules, signatures that were made before, and other requests. It does
not have the keys of users and super-administrators, and signs with its own keys instead. ``attack`` makes the sandbox
carry out an attack. Their envelopes are also files in ``verification_cases``.
"""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import requests
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from support.keys.envelopes import (
    Key,
    b64,
    compact,
    container,
    field,
    group,
    hash_of,
    path,
    rule,
    rules_signatures,
    sign,
    superadmin_entry,
    twin,
    user,
    user_entry,
    with_text,
)

from airflow_custody.sandbox import SandboxControl

Envelope = dict[str, Any]
#: The step of verification that refuses an envelope: see docs/verification-cases.md.
Step = Literal["text", "rules", "chain", "rule", "signatures"]

#: Where the attacker wants the funds to go.
OTHER_ADDRESS = "0x" + "66" * 20
_YEAR = 365 * 24 * 60 * 60


class Unsuitable(Exception):
    """Raised when an attack does not fit a request."""


@dataclass(frozen=True)
class Means:
    """
    The means of a malicious service.

    :param keys: the keys of users and super-administrators, by their ids. The service does not have these keys, but can
        return whatever was once signed with them. Super-administrators' ids begin with ``superadmin``.
    :param others: the envelopes of other requests that are in effect.
    :param now: the time, in Unix seconds.
    """

    keys: Mapping[str, Key]
    others: list[Envelope]
    now: int

    @property
    def superadmins(self) -> list[str]:
        return [name for name in self.keys if name.startswith("superadmin")]

    def user_entry(self, name: str, *hashes: str) -> dict[str, Any]:
        """Return a user's valid signature over hashes."""
        return user_entry(self.keys[name], *hashes, label=name)

    def superadmin_entry(self, name: str, rules: bytes, *, of: str = "") -> bytes:
        """
        Return a super-administrator's valid signature.

        :param of: name of the super-administrator who really signs. Default: the same.
        """
        return superadmin_entry(self.keys[of or name], rules, label=name)

    def mirrored(self, rules: bytes) -> tuple[bytes, bytes]:
        """Return one super-administrator's signature, and its twin under the name of the next."""
        first, second, *_ = self.superadmins
        mirrored = twin(sign(self.keys[first], rules))
        return self.superadmin_entry(first, rules), superadmin_entry(second, rules, label=second, signature=mirrored)


Change = Callable[[Envelope, Means], Envelope]


def attack(control: SandboxControl, token: str, number: str, name: str) -> None:
    """
    Make a sandbox return a false envelope for a request.

    All responses contain the false envelope until the request's envelope is set again.
    """
    root, headers = f"{control.url}/api/rest/v1/whitelists/addresses", {"Authorization": f"Bearer {token}"}
    control.set_whitelist_envelope(number)
    lawful = requests.get(f"{root}/{number}", headers=headers, timeout=30).json()["result"]
    found = requests.get(root, headers=headers, params={"limit": 100}, timeout=30).json().get("result", [])
    others = [each for each in found if each["id"] != number and "signedAddress" in each]
    keys = {user_id: _key(pem) for user_id, pem in control.private_keys().items()}
    changed = change(name, lawful, Means(keys, others, int(time.time())))
    control.set_whitelist_envelope(number, **{**dict.fromkeys(lawful), **changed})


def _key(pem: str) -> Key:
    key = load_pem_private_key(pem.encode(), None)
    assert isinstance(key, Key)
    return key


def change(name: str, lawful: Envelope, means: Means) -> Envelope:
    """Return an envelope as an attack changes it."""
    changed = ATTACKS[name](copy.deepcopy(lawful), means)
    if changed == lawful:
        raise Unsuitable("the attack changes nothing in this envelope")
    return changed


def _need(condition: object, what: str) -> None:
    if not condition:
        raise Unsuitable(f"the attack needs {what}")


def _text(envelope: Envelope) -> str:
    return str(envelope["metadata"]["payloadAsString"])


def _hash(envelope: Envelope) -> str:
    return str(envelope["metadata"]["hash"])


def _fields(envelope: Envelope) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_text(envelope))
    return found


def _with_metadata(envelope: Envelope, **changes: Any) -> Envelope:
    return envelope | {"metadata": envelope["metadata"] | changes}


def _with_fields(envelope: Envelope, **fields: Any) -> Envelope:
    return with_text(envelope, compact({**_fields(envelope), **fields}))


def _append(envelope: Envelope, more: str) -> Envelope:
    return with_text(envelope, f"{_text(envelope)[:-1]}{more}}}")


def _entries(envelope: Envelope, minimum: int = 1) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = envelope.get("signedAddress", {}).get("signatures", [])
    _need(len(entries) >= minimum, f"a request with {minimum} signatures")
    return entries


def _signers(envelope: Envelope) -> list[str]:
    return [each["signature"]["userId"] for each in _entries(envelope)]


def _with_entries(envelope: Envelope, entries: Iterable[Any]) -> Envelope:
    return envelope | {"signedAddress": {**envelope.get("signedAddress", {}), "signatures": [*entries]}}


def _with_hashes(envelope: Envelope, hashes: Callable[[list[str]], Any], entries: Iterable[Any] = ()) -> Envelope:
    changed = ({**each, "hashes": hashes(each["hashes"])} for each in (entries or _entries(envelope)))
    return _with_entries(envelope, changed)


def _with_signatures(envelope: Envelope, bend: Callable[[bytes], bytes]) -> Envelope:
    entries = _entries(envelope)
    for each in entries:
        each["signature"]["signature"] = b64(bend(base64.b64decode(each["signature"]["signature"])))
    return _with_entries(envelope, entries)


def _in_der(signature: bytes) -> bytes:
    return encode_dss_signature(*(int.from_bytes(half, "big") for half in (signature[:32], signature[32:])))


def _renamed(envelope: Envelope) -> Envelope:
    first = _entries(envelope, 2)[0]
    names = _signers(envelope)
    return _with_entries(envelope, ({**first, "signature": {**first["signature"], "userId": name}} for name in names))


def _resigned(envelope: Envelope, means: Means, text: str) -> Envelope:
    """
    Return the envelope with another text, validly signed by the same users.

    The attack assumes that these users once signed that text.
    """
    signers = _signers(envelope)
    _need({*signers} <= means.keys.keys(), "a request that only the sandbox's own signers have signed")
    return with_text(_with_entries(envelope, (means.user_entry(name, hash_of(text)) for name in signers)), text)


def _invented_contract_type(envelope: Envelope, means: Means) -> Envelope:
    """
    Add a contract type to a text that was signed without one.

    The first legacy form leaves the contract type out, so the signatures would match the changed text, too.
    """
    old = _fields(envelope)
    old.pop("contractType", None)
    for each in old["linkedInternalAddresses"]:
        each.pop("label", None)
    return _append(_resigned(envelope, means, compact(old)), ',"contractType":"ERC20"')


def _container(envelope: Envelope) -> bytes:
    _need("rulesContainer" in envelope, "a request that contains its rules")
    return base64.b64decode(envelope["rulesContainer"])


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def _under_own_rules(
    envelope: Envelope, means: Means, entries: Callable[[bytes], Iterable[str | bytes]], age: int = 0
) -> Envelope:
    """
    Replace the rules with the service's own, and sign under them.

    For all chains, these rules require one signature, by a key of the malicious service.
    """
    groups, rules = (group("approvers", "mallory"),), (rule("", path(("approvers", 1))),)
    own = container(users=(user("mallory"),), groups=groups, rules=rules, timestamp=means.now - age)
    shown = {"rulesContainer": b64(own), "rulesSignatures": rules_signatures(own, *entries(own))}
    return _with_entries(envelope, [user_entry("mallory", _hash(envelope))]) | shown


def _with_rules(envelope: Envelope, means: Means, rules: bytes) -> Envelope:
    """Replace the rules with rules that the super-administrators have really signed."""
    entries = (means.superadmin_entry(name, rules) for name in means.superadmins)
    return envelope | {"rulesContainer": b64(rules), "rulesSignatures": rules_signatures(rules, *entries)}


def _hash_in_an_old_signature(envelope: Envelope, means: Means) -> Envelope:
    old = [each for other in means.others for each in _entries(other)]
    _need(old, "another request that is signed")
    return _with_hashes(envelope, lambda hashes: [*hashes, _hash(envelope)], old)


def _another_envelope(envelope: Envelope, means: Means) -> Envelope:
    others = [each for each in means.others if _hash(each) != _hash(envelope)]
    _need(others, "another request that is signed")
    return others[0] | {"id": envelope["id"]}


def _on_testnet(envelope: Envelope, is_signed: bool) -> Envelope:
    a = "a" if is_signed else "no"
    _need(bool(_fields(envelope).get("network")) == is_signed, f"a request whose text has {a} network")
    return envelope | {"network": "testnet"}


def _with_wallet(envelope: Envelope) -> Envelope:
    wallet = {"id": 66, "name": "Wallet 66", "path": "m/44'/60'/66'"}
    return _with_fields(envelope, linkedWallets=[*_fields(envelope).get("linkedWallets", []), wallet])


_OTHER_KIND = compact({"name": "Treasury", "symbol": "TRS", "decimals": 18})
_JUNK = user_entry("eve", "66" * 32, signature=bytes(range(64)))
_EVERYBODY = {"parallel": [{"sequential": [{"externalGroupID": "everybody", "minimumSignatures": 1}]}]}
_IN_JSON = b'{"users":[],"groups":[],"addressWhitelistingRules":[]}'
_A_LIST = [{"userId": "superadmin-1@example.test", "signature": b64(b"x" * 64)}]

#: Attacks that verification refuses, by the step that refuses them.
REFUSED: dict[Step, dict[str, Change]] = {
    "text": {
        "text": lambda e, m: _with_metadata(e, payloadAsString=_text(e).replace(_fields(e)["address"], OTHER_ADDRESS)),
        "address twice": lambda e, m: _append(e, f',"address":"{OTHER_ADDRESS}"'),
        "address in another case": lambda e, m: _append(e, f',"Address":"{OTHER_ADDRESS}"'),
        "lone surrogate": lambda e, m: _with_fields(e, label="Treasury \ud800"),
        "number for the text": lambda e, m: _with_metadata(e, payloadAsString=3711),
        "another kind of text": lambda e, m: _resigned(e, m, _OTHER_KIND),
    },
    "rules": {
        "own rules": lambda e, m: _under_own_rules(e, m, lambda rules: ("mallory", "eve")),
        "own rules under the super-administrators' names": lambda e, m: _under_own_rules(
            e, m, lambda rules: (superadmin_entry("mallory", rules, label=name) for name in m.superadmins)
        ),
        "one super-administrator under several names": lambda e, m: _under_own_rules(
            e, m, lambda rules: (m.superadmin_entry(name, rules, of=m.superadmins[0]) for name in m.superadmins)
        ),
        "one super-administrator mirrored": lambda e, m: _under_own_rules(e, m, m.mirrored),
        "changed rules": lambda e, m: e | {"rulesContainer": b64(_flipped(_container(e)))},
        "extended rules": lambda e, m: e | {"rulesContainer": b64(_container(e) + field(1, user("mallory")))},
        "endless number in the rules": lambda e, m: _with_rules(e, m, _container(e) + b"\xff" * 1000),
        "rules in JSON": lambda e, m: _with_rules(e, m, _IN_JSON),
        "no rules": lambda e, m: e | {"rulesContainer": None, "rulesSignatures": None},
        "list for the rules' signatures": lambda e, m: e | {"rulesSignatures": _A_LIST},
    },
    "chain": {"another chain": lambda e, m: e | {"blockchain": "XLM"}},
    "rule": {"another network": lambda e, m: _on_testnet(e, is_signed=True)},
    "signatures": {
        "text and hash": lambda e, m: _with_fields(e, address=OTHER_ADDRESS),
        "invented contract type": _invented_contract_type,
        "wallet added": lambda e, m: _with_wallet(e),
        "signatures in DER": lambda e, m: _with_signatures(e, _in_der),
        "one user repeated": lambda e, m: _with_entries(e, [_entries(e, 2)[0]] * len(_entries(e))),
        "one user under several names": lambda e, m: _renamed(e),
        "hash added": lambda e, m: _with_hashes(e, lambda hashes: [*hashes, "66" * 32]),
        "hash in an old signature": _hash_in_an_old_signature,
        "signer outside of the group": lambda e, m: _with_entries(
            e, (m.user_entry(n, _hash(e)) for n in m.superadmins)
        ),
        "unknown signers": lambda e, m: _with_entries(e, (user_entry(name, _hash(e)) for name in ("mallory", "eve"))),
        "signatures under the users' names": lambda e, m: _with_entries(
            e, (user_entry("mallory", _hash(e), label=name) for name in _signers(e))
        ),
        "null lists": lambda e, m: _with_hashes(e, lambda hashes: None),
        "numbers for signatures": lambda e, m: _with_entries(e, [3711] * len(_entries(e))),
    },
}
#: Changes of data that verification does not read.
NOT_READ: dict[str, Change] = {
    "payload": lambda e, m: _with_metadata(e, payload=e["metadata"]["payload"] | {"address": OTHER_ADDRESS}),
    "bad key of somebody else": lambda e, m: _with_rules(e, m, _container(e) + field(1, user("eve", key="no key"))),
    "junk entry first": lambda e, m: _with_entries(e, [{**_JUNK, "hashes": [_hash(e)]}, *_entries(e)]),
    "weaker approvers": lambda e, m: e | {"approvers": _EVERYBODY},
}
#: Attacks that signatures cannot reveal.
NOT_VISIBLE: dict[str, Change] = {
    # Rules that were really signed last year, when one key was enough. This key has been lost since.
    "older rules": lambda e, m: _under_own_rules(
        e, m, lambda rules: (m.superadmin_entry(name, rules) for name in m.superadmins), age=_YEAR
    ),
    "swapped network": lambda e, m: _on_testnet(e, is_signed=False),
}
#: Attacks that only a comparison with the requested content reveals.
COMPARED: dict[str, Change] = {"another envelope": _another_envelope}
#: The step that refuses an attack, by the attack's name.
STEP_OF: dict[str, Step] = {name: step for step, changes in REFUSED.items() for name in changes}
ATTACKS: dict[str, Change] = NOT_READ | NOT_VISIBLE | COMPARED
for _changes in REFUSED.values():
    ATTACKS |= _changes
