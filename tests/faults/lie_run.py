"""A service that lies: people sign two addresses there, it lies about them, and tasks with pinned keys meet both."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from airflow_custody.client import CustodyClient
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.signing import RequestSigner
from airflow_custody.sandbox import SandboxControl

# This is run by a script, which sees the modules of its own folder only.
sys.path.append(str(Path(__file__).parent.parent))

from attacks import attack

#: The tasks that meet the addresses.
TASKS = ("sign", "wait", "reconcile")
_ROLES = ["TPUser", "WhitelistedAddressApprover"]
# Who signs, in which group: the last one's signature is left to the task that signs.
_PEOPLE = {"alice": "operations", "bob": "operations", "carol": "risk"}
_RULES = [
    {"externalGroupID": "operations", "minimumSignatures": 2},
    {"externalGroupID": "risk", "minimumSignatures": 1},
]
_FIELDS = {"blockchain": "ETH", "network": "mainnet", "memo": "4242", "linkedWalletIds": ["7"]}
_LABELS = {"pending": "Supplier Bremen", "effective": "Supplier Cadiz", "other": "Supplier Turku"}


class Lied(NamedTuple):
    """
    The requests that the service lies about.

    :param pending: id of the one that waits for its last signature.
    :param effective: id of the one that is in effect.
    """

    pending: str
    effective: str


def prepare(url: str, token: str, lie: str, folder: Path, name: str) -> tuple[Lied, dict[str, dict[str, Any]]]:
    """
    Have people sign at a service, and let it lie.

    :param lie: name of the attack; empty: it does not lie.
    :return: the requests, and the Airflow connections that the DAG needs, by id.
    """
    control = SandboxControl(url)
    control.set_approvers([{"sequential": _RULES}])
    people = {each: _add_person(control, each, group) for each, group in _PEOPLE.items()}
    rows = [{**_FIELDS, "label": label, "address": _address(number)} for number, label in enumerate(_LABELS.values())]
    pending, effective, other = control.add_whitelist_requests(rows, status="pending")
    for person, (own_token, pem) in people.items():
        ids = [effective, other] if person == "carol" else [pending, effective, other]
        key_file = folder / f"{name}-{person}.key"
        key_file.write_text(pem)
        with CustodyClient(url, own_token) as client:
            approver = RequestSigner(client, PemSigner.from_file(key_file), log=logging.getLogger(__name__))
            approver.sign(ids, None, "signed")
    own_token, _ = people["carol"]
    lines = ["label,address,blockchain,network,memo,linked_wallet_ids"]
    lines += [f"{row['label']},{row['address']},ETH,mainnet,4242,7" for row in rows]
    (folder / f"{name}.csv").write_text("\n".join(lines))
    for request_id in (pending, effective) if lie else ():
        attack(control, token, request_id, lie)
    extra = json.dumps({**control.pins(), "networks": ["mainnet"], "max_retries": 0})
    connection = {"conn_type": "custody", "host": url, "extra": extra}
    connections = {
        f"{name}_pinned": {**connection, "password": token},
        f"{name}_signer": {**connection, "password": own_token},
    }
    return Lied(pending, effective), connections


def judge(attack: str, lied: Lied, states: Mapping[str, str], logs: Mapping[str, str]) -> tuple[bool, str]:
    """
    Tell whether the tasks did what they must, and what they did.

    :param attack: how the service lied; empty: it did not.
    :param lied: the requests.
    :param states: the tasks' states.
    :param logs: the tasks' logs.
    """
    if not attack and states == dict.fromkeys(TASKS, "success"):
        return True, "signed, in effect, reconciled"
    named = {"sign": lied.pending, "wait": lied.effective, "reconcile": lied.effective}
    # What contradicts itself is refused before any signature is looked at.
    why = "(is not verified|cannot be verified|contradicts itself)"
    silent = [task for task, number in named.items() if not re.search(f"request {number} {why}", logs.get(task, ""))]
    if attack and not silent and states == dict.fromkeys(TASKS, "failed"):
        return True, "refused by signing, sensor and plan"
    return False, f"WRONG: {dict(states)}, named by all but {silent}"


def _add_person(control: SandboxControl, name: str, group: str) -> tuple[str, str]:
    """Add a user who signs, and return the user's token and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    user_id = control.add_user(name, _ROLES, groups=[group], public_key=public)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return control.add_token(roles=_ROLES, user_id=user_id), pem


def _address(number: int) -> str:
    return f"0x{number + 1:040x}"
