"""
Compare verifying whitelisted addresses with the bare cost of the signatures that must be verified.

Run it by itself: ``python benchmarks/verification.py``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from side_by_side import report

from airflow_custody.client.signers import raw_signature
from airflow_custody.client.verification.verifier import VerificationPins, Verifier

ROWS, CONTAINERS, USERS, PARTS = 10_000, 20, 40, 50
_ALGORITHM = ec.ECDSA(SHA256())
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Whitelist:
    """
    Rows to verify, and the signatures that count.

    :param envelopes: the rows.
    :param signed: key, signature in DER and message of each signature that must be verified.
    :param pins: the pinned keys.
    """

    envelopes: Sequence[dict[str, Any]]
    signed: Sequence[tuple[ec.EllipticCurvePublicKey, bytes, bytes]]
    pins: VerificationPins


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def whitelist(*, rows: int, rows_of_signature: int) -> Whitelist:
    """
    Make a whitelist in which two users have signed each row.

    :param rows: number of rows.
    :param rows_of_signature: number of rows that one signature covers.
    """
    admins = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    users = [ec.generate_private_key(ec.SECP256R1()) for _ in range(USERS)]
    # Create each public key once, as a verifier does, because the first use of a key object costs more.
    public = {key: key.public_key() for key in (*admins, *users)}
    signed = []

    def sign(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
        der = key.sign(message, _ALGORITHM)
        signed.append((public[key], der, message))
        return raw_signature(der)

    ids = [f"user{number}@example.test".encode() for number in range(USERS)]
    rule = _field(1, b"ETH") + _field(2, _field(1, _field(1, b"ops") + b"\x10\x02"))
    rules = []
    for number in range(CONTAINERS):
        container = b"".join(
            [
                *(_field(1, _field(1, id_) + _field(2, _pem(key))) for id_, key in zip(ids, users, strict=True)),
                _field(2, _field(1, b"ops") + b"".join(_field(2, id_) for id_ in ids)),
                _field(6, rule),
                b"\x50" + _varint(1767225600 + number),
            ]
        )
        signatures = b"".join(_field(1, _field(2, sign(admin, container))) for admin in admins[:2])
        rules.append([base64.b64encode(each).decode() for each in (container, signatures)])
    texts = [
        json.dumps(
            {
                "currency": "ETH",
                "addressType": "individual",
                "address": f"0x{number:040x}",
                "memo": "",
                "label": f"address {number}",
                "customerId": "",
                "exchangeAccountId": "",
                "linkedInternalAddresses": [],
                "linkedWallets": [{"id": 7, "name": "hot", "path": "demo/7"}],
                "contractType": "",
            },
            separators=(",", ":"),
        )
        for number in range(rows)
    ]
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    envelopes = []
    for first in range(0, rows, rows_of_signature):
        together = hashes[first : first + rows_of_signature]
        message = json.dumps(together, separators=(",", ":")).encode()
        entries = [
            {
                "signature": {
                    "userId": ids[user].decode(),
                    "signature": base64.b64encode(sign(users[user], message)).decode(),
                    "comment": "",
                },
                "hashes": together,
            }
            for user in (first % USERS, (first + 1) % USERS)
        ]
        for number in range(first, first + len(together)):
            container_text, signatures_text = rules[number % CONTAINERS]
            envelopes.append(
                {
                    "id": str(number),
                    "blockchain": "ETH",
                    "network": "mainnet",
                    "metadata": {"hash": hashes[number], "payloadAsString": texts[number]},
                    "signedAddress": {"signatures": entries},
                    "rulesContainer": container_text,
                    "rulesSignatures": signatures_text,
                }
            )
    # Copy the rows, so that they share no texts, as if they had been received.
    received = json.loads(json.dumps(envelopes))
    return Whitelist(received, signed, VerificationPins([_pem(key).decode() for key in admins], 2))


def _part(found: Sequence[_Item], part: int) -> Sequence[_Item]:
    return found[len(found) * part // PARTS : len(found) * (part + 1) // PARTS]


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of a function, in seconds."""
    started = time.process_time()
    work()
    return time.process_time() - started


def verification(rounds: int, *, rows: int = ROWS, rows_of_signature: int = 1) -> None:
    """
    Compare the verifier with bare verifications of the same signatures.

    Both process each part of the rows in turn, so that changes in machine load affect both.
    """
    given = whitelist(rows=rows, rows_of_signature=rows_of_signature)

    def bare_verifications(part: int) -> None:
        for key, signature, message in _part(given.signed, part):
            key.verify(signature, message, _ALGORITHM)

    def with_verifier(verifier: Verifier, part: int) -> None:
        for envelope in _part(given.envelopes, part):
            verifier.verify(envelope)

    times = []
    for _ in range(rounds):
        verifier = Verifier(given.pins)
        parts = [
            (seconds(partial(bare_verifications, part)), seconds(partial(with_verifier, verifier, part)))
            for part in range(PARTS)
        ]
        times.append([sum(each) for each in zip(*parts, strict=True)])
    bare, ours = (statistics.median(each) for each in zip(*times, strict=True))
    print(
        f"\nverify {rows} addresses by {CONTAINERS} rules containers, one signature for {rows_of_signature}: "
        f"{len(given.signed)} signatures"
    )
    print(f"  {'bare verifications':<42} {bare * 1000:9.1f} ms")
    print(f"  {'Verifier.verify':<42} {ours * 1000:9.1f} ms ({ours / rows * 1e6:.0f} us a row)")
    if rows_of_signature == 1:
        report("Verifier.verify, in bare verifications", statistics.median(b / a for a, b in times), 1.5)
    else:
        print(f"  Verifier.verify takes {ours / bare:.1f} times as long, mostly for reading the rows")


if __name__ == "__main__":
    verification(5)
    verification(3, rows_of_signature=100)
