"""Public keys: one way to write each, on one curve; and signatures at their edges."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import pickle
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from worked_example import ADMIN1, ADMIN2, PINS, pem, private_key, sign

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.verification.keys import KeyTextError, PublicKey, decode_base64, read_public_keys
from airflow_custody.client.verification.verifier import VerificationPins

DER1 = base64.b64decode(ADMIN1)
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
BOTH = pem(ADMIN1) + pem(ADMIN2)
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQ\n-----END CERTIFICATE-----\n"


def encoded(key: ec.EllipticCurvePrivateKey, form: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, form)


def in_pem(der: bytes) -> str:
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(der).decode()}\n-----END PUBLIC KEY-----\n"


def test_der_and_pem() -> None:
    key = PublicKey.from_der(DER1)
    assert key.der == DER1
    assert key.pem == pem(ADMIN1)
    assert key.fingerprint == hashlib.sha256(DER1).hexdigest()
    assert pickle.loads(pickle.dumps(key)) == key


@pytest.mark.parametrize("name", [f"key {number}" for number in range(20)])
def test_keys_of_the_library(name: str) -> None:
    key = PublicKey.from_der(encoded(private_key(name)))
    assert key.verifies(sign(name, b"message"), b"message")
    assert not key.verifies(sign(name, b"message"), b"another")
    assert not key.verifies(sign("alice", b"message"), b"message")


@pytest.mark.parametrize(
    ("der", "why"),
    [
        (b"", "not a public key"),
        (DER1[:-1], "or it is truncated"),
        (DER1[:9], "or it is truncated"),
        (DER1 + b"\0", "not a public key"),
        (DER1[:-1] + bytes([DER1[-1] ^ 1]), "point is not on the curve"),
        (DER1[:27] + bytes(64), "point is not on the curve"),
        (DER1[:27] + b"\xff" * 64, "point is not on the curve"),
        (DER1[:26] + b"\x06" + DER1[27:], "named curve P-256"),  # the hybrid form
        (
            bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + b"\x02" + DER1[27:59],
            "an uncompressed point",
        ),
        (encoded(ec.generate_private_key(ec.SECP256K1())), "named curve P-256"),
        (encoded(ec.generate_private_key(ec.SECP384R1())), "named curve P-256"),
    ],
    ids=[
        "none",
        "short",
        "very short",
        "long",
        "bent",
        "zero",
        "infinite",
        "hybrid",
        "compressed",
        "secp256k1",
        "P-384",
    ],
)
def test_other_keys_are_refused(der: bytes, why: str) -> None:
    with pytest.raises(KeyTextError, match=why):
        PublicKey.from_der(der)
    with pytest.raises(KeyTextError, match=why):
        list(read_public_keys(in_pem(der)))


def test_a_coordinate_has_one_form() -> None:
    # The point with x = 0 is on the curve, so x = p is the same one to whoever reduces it.
    y = pow(0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B, (PRIME + 1) // 4, PRIME)
    assert PublicKey.from_der(DER1[:27] + bytes(32) + y.to_bytes(32, "big"))
    with pytest.raises(KeyTextError, match="not on the curve"):
        PublicKey.from_der(DER1[:27] + PRIME.to_bytes(32, "big") + y.to_bytes(32, "big"))


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        BOTH.replace("\n", "\r\n"),
        BOTH.replace("\n", " "),
        BOTH.replace("\n", ""),
        BOTH.strip(),
        f"# the first\n{pem(ADMIN1)}\n\n  # the second\n{pem(ADMIN2)}# end",
        in_pem(DER1) + pem(ADMIN2),
    ],
)
def test_pem(text: str) -> None:
    assert [key.pem for key in read_public_keys(text)] == [pem(ADMIN1), pem(ADMIN2)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty: there is no public key in PEM"),
        ("\n \n", "it is empty: there is no public key in PEM"),
        (ADMIN1, "it is base64 without the lines of PEM: put -----BEGIN PUBLIC KEY----- before it"),
        (pem(ADMIN1).split("-----")[2], "it is base64 without the lines of PEM"),
        (CERTIFICATE, "it is a certificate: 'openssl x509 -pubkey -noout -in FILE' prints its key"),
        (f"Bag Attributes\n{CERTIFICATE}", "it is a certificate"),
        (pem(ADMIN1) + CERTIFICATE, "it is a certificate"),
        (pem(ADMIN1)[:60], "it is truncated .-----END PUBLIC KEY----- is missing.*, or .* is not base64"),
        (pem(ADMIN1)[:60] + pem(ADMIN2), "it is truncated"),
        (pem(ADMIN1).replace(ADMIN1[60:64], ""), "it is truncated"),
        ("# none", "there is no public key in PEM"),
        ("# ----- none -----", "there is no public key in PEM"),
        (f"# ----- admins -----\n{pem(ADMIN1)[:-10]}", "it is truncated "),
        (f"----- admins -----\n{pem(ADMIN1)}", "it is not a public key in PEM"),
        (f"# ----- admins ----- {pem(ADMIN1)}".replace("\n", " "), "the line ends may have been lost"),
        ("nonsense", "text outside of the keys"),
        (pem(ADMIN1) + "nonsense", "text outside of the keys"),
        ("nonsense\n" + pem(ADMIN1), "text outside of the keys"),
        (pem(ADMIN1)[:-10], "it is truncated .-----END PUBLIC KEY----- is missing.*, or .* is not base64"),
        (pem(ADMIN1).replace("PUBLIC", "RSA PUBLIC"), "not a public key in PEM"),
        (pem(ADMIN1).replace("MFk", "MF-"), "not base64"),
        (pem(ADMIN1).replace("==", ""), "not base64"),
        (pem(ADMIN1).replace("g==", "h=="), "not base64"),
        (pem(ADMIN1).replace("MFk", "MF\u00e9"), "not base64"),
    ],
)
def test_other_texts_are_refused(text: str, why: str) -> None:
    with pytest.raises(KeyTextError, match=why):
        list(read_public_keys(text))


def test_signatures_at_their_edges() -> None:
    key, message = PublicKey.from_der(encoded(private_key("alice"))), b"message"
    good = sign("alice", message)
    r, s = int.from_bytes(good[:32], "big"), int.from_bytes(good[32:], "big")

    def of(r: int, s: int) -> bytes:
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    assert key.verifies(of(r, ORDER - s), message)  # malleable: its bytes identify nothing
    for bad in (of(0, s), of(r, 0), of(0, 0), of(ORDER, s), of(r, ORDER), of(2**256 - 1, 2**256 - 1), of(s, r)):
        assert not key.verifies(bad, message)
    for size in (0, 63, 65, 72):
        assert not key.verifies((good + good)[:size], message)


@pytest.mark.parametrize("text", ["", "AA==", "AAA=", "AAAA", "AAAAAA=="])
def test_base64(text: str) -> None:
    assert base64.b64encode(decode_base64(text)).decode() == text


@pytest.mark.parametrize(
    "text",
    ["A", "AA", "AA=", "AB==", "AAB=", "AA==AA==", "AA==\n", " AA==", "A-_=", "A\n==", "AA===", "\u00c4A==", "AAAA="],
)
def test_other_base64_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_base64(text)


@given(st.text(alphabet="ABCDab/+=-_ \n", max_size=12))
def test_base64_has_one_text_for_the_same_bytes(text: str) -> None:
    try:
        data = decode_base64(text)
    except ValueError:
        return
    assert base64.b64encode(data).decode() == text


# --- pins --------------------------------------------------------------------------------------------------


def test_pins_are_the_same_however_they_are_written() -> None:
    pins = VerificationPins(BOTH.replace("\n", " "), 2, networks={"testnet", "mainnet"})
    assert pins == VerificationPins([pem(ADMIN1), pem(ADMIN2)], 2, networks=["mainnet", "testnet", "mainnet"])
    assert hash(pins) == hash(dataclasses.replace(pins))
    assert pins.superadmin_keys == (pem(ADMIN1), pem(ADMIN2))
    assert pins.networks == ("mainnet", "testnet")
    assert pins.fingerprints == PINS.fingerprints
    assert pins.fingerprints[0] == hashlib.sha256(DER1).hexdigest()


def test_pins_of_one_network() -> None:
    assert VerificationPins(BOTH, 1, networks="mainnet").networks == ("mainnet",)


PRIVATE = private_key("admin1").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("changes", "setting", "why"),
    [
        ({"superadmin_keys": []}, "superadmin_keys", "must be public keys in PEM"),
        ({"superadmin_keys": None}, "superadmin_keys", "must be public keys in PEM"),
        ({"superadmin_keys": [DER1]}, "superadmin_keys", "must be public keys in PEM"),
        ({"superadmin_keys": ["nonsense"]}, "superadmin_keys", "cannot be used: there is text outside"),
        ({"superadmin_keys": [pem(ADMIN1), "x"]}, "superadmin_keys", "cannot be used: there is text outside"),
        ({"superadmin_keys": [BOTH, in_pem(DER1)]}, "superadmin_keys", "the same key twice: key 1 and key 3"),
        ({"superadmin_keys": [pem(ADMIN1), PRIVATE]}, "superadmin_keys", "there is a private key"),
        ({"superadmin_minimum": 0}, "superadmin_minimum", "from 1 to 2"),
        ({"superadmin_minimum": 3}, "superadmin_minimum", "from 1 to 2, the number of 'superadmin_keys', not 3"),
        (
            {"superadmin_keys": pem(ADMIN1)},
            "superadmin_minimum",
            "from 1 to 1, the number of 'superadmin_keys', not 2",
        ),
        ({"superadmin_minimum": True}, "superadmin_minimum", "from 1 to 2"),
        ({"superadmin_minimum": "2"}, "superadmin_minimum", "from 1 to 2"),
        ({"superadmin_minimum": None}, "superadmin_minimum", "from 1 to 2"),
        ({"networks": []}, "networks", "one or more names"),
        ({"networks": ""}, "networks", "one or more names"),
        ({"networks": [" mainnet"]}, "networks", "one or more names"),
        ({"networks": [1]}, "networks", "one or more names"),
        ({"networks": 5}, "networks", "one or more names"),
        ({"allow_legacy_signatures": "yes"}, "allow_legacy_signatures", "true or false"),
        ({"rules_not_before": 0}, "rules_not_before", "from 2009 on"),
        ({"rules_not_before": 20260131}, "rules_not_before", "from 2009 on, like 2026-01-31, .*, not 20260131"),
        ({"rules_not_before": 1767225600000}, "rules_not_before", "from 2009 on"),
        ({"rules_not_before": "2026-01-31"}, "rules_not_before", "whole seconds"),
        ({"rules_not_before": 1.5}, "rules_not_before", "whole seconds"),
        ({"rules_not_before": True}, "rules_not_before", "whole seconds"),
    ],
)
def test_wrong_pins(changes: dict[str, Any], setting: str, why: str) -> None:
    with pytest.raises(CustodyConfigurationError, match=why) as error:
        VerificationPins(**{"superadmin_keys": BOTH, "superadmin_minimum": 2, **changes})
    assert error.value.setting == setting
    assert PRIVATE.splitlines()[1][:12] not in str(error.value)
