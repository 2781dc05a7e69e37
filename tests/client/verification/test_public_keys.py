"""Public keys: each has only one accepted form, on one curve; signatures and base64 at their limits; pins."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import pickle
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from support.keys.envelopes import ORDER, PINNED, PRIME, b64, der, private_key, raw, sign, twin

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.verification.keys import KeyTextError, PublicKey, decode_base64, read_public_keys
from airflow_custody.client.verification.verifier import VerificationPins

DER1 = der("admin1")
IN_BASE64 = b64(DER1)
ONE, TWO = PINNED
BOTH = ONE + TWO
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQ\n-----END CERTIFICATE-----\n"
IN_ONE_LINE = ONE.replace("\n", "")


def in_one_line(key: bytes) -> str:
    return f"-----BEGIN PUBLIC KEY-----\n{b64(key)}\n-----END PUBLIC KEY-----\n"


def test_der_and_pem() -> None:
    key = PublicKey.from_der(DER1)
    assert key.der == DER1
    assert key.pem == ONE
    assert key.fingerprint == hashlib.sha256(DER1).hexdigest()
    assert pickle.loads(pickle.dumps(key)) == key


# --- keys --------------------------------------------------------------------------------------------------


def point(x: int, y: int) -> bytes:
    """Return a point as SubjectPublicKeyInfo."""
    return DER1[:27] + x.to_bytes(32, "big") + y.to_bytes(32, "big")


#: The point with x = 0 is on the curve, so x = p, reduced, is the same point.
HEIGHT = pow(0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B, (PRIME + 1) // 4, PRIME)
COMPRESSED = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200") + b"\x02" + DER1[27:59]


ED25519 = (
    ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
    .public_key()
    .public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)
BAD_KEYS = {
    "none": (b"", "not a public key"),
    "short": (DER1[:-1], "or it is truncated"),
    "long": (DER1 + b"\0", "not a public key"),
    "off the curve": (DER1[:-1] + bytes([DER1[-1] ^ 1]), "point is not on the curve"),
    "zero": (point(0, 0), "point is not on the curve"),
    "x is the prime": (point(PRIME, HEIGHT), "not on the curve"),
    "hybrid": (DER1[:26] + bytes([6 + DER1[-1] % 2]) + DER1[27:], "."),
    "compressed": (COMPRESSED, "an uncompressed point"),
    "secp256k1": (der(ec.derive_private_key(7, ec.SECP256K1())), "named curve P-256"),
    "P-384": (der(ec.derive_private_key(7, ec.SECP384R1())), "named curve P-256"),
    "the length in a longer form": (b"\x30\x81\x59" + DER1[2:], "."),
    "Ed25519": (ED25519, "named curve P-256"),
    "the point alone": (DER1[26:], "."),
}


@pytest.mark.parametrize("name", BAD_KEYS)
def test_other_keys_are_refused(name: str) -> None:
    der, why = BAD_KEYS[name]
    with pytest.raises(KeyTextError, match=why):
        PublicKey.from_der(der)
    for text in (in_one_line(der), ONE + in_one_line(der)):
        with pytest.raises(KeyTextError, match=why):
            list(read_public_keys(text))


def test_the_edges_themselves_are_keys() -> None:
    for each in (point(0, HEIGHT), point(0, PRIME - HEIGHT)):
        assert PublicKey.from_der(each).der == each


GOOD_TEXTS: dict[str, Any] = {
    "an iterator": iter([ONE, TWO]),
    "one text": BOTH,
    "list of one text": [BOTH],
    "nothing between": ONE.rstrip() + TWO.rstrip(),
    "CRLF": BOTH.replace("\n", "\r\n"),
    "spaces for line ends": BOTH.replace("\n", " "),
    "no line ends": [IN_ONE_LINE, TWO.replace("\n", "")],
    "white space around": f"\n\t {ONE}\n \n{TWO}  ",
    "comments with dashes": f"# ----- admins -----\n{ONE}\n  # the second\n{TWO}# -----END-----",
    "one line of base64": in_one_line(DER1) + TWO,
}


@pytest.mark.parametrize("name", GOOD_TEXTS)
def test_ways_to_write_pins(name: str) -> None:
    pins = VerificationPins(GOOD_TEXTS[name], 2, networks={"testnet", "mainnet"})
    assert pins == VerificationPins([ONE, TWO], 2, networks=["mainnet", "testnet", "mainnet"])
    assert hash(pins) == hash(dataclasses.replace(pins))
    assert pins.superadmin_keys == (ONE, TWO)
    assert pins.networks == ("mainnet", "testnet")
    assert pins.fingerprints == tuple(hashlib.sha256(der(name)).hexdigest() for name in ("admin1", "admin2"))


@pytest.mark.parametrize(
    "text",
    [
        f"# {IN_ONE_LINE}\n{TWO}",
        f"{TWO}# {IN_ONE_LINE}",
        f"{TWO.rstrip()} # {IN_ONE_LINE}",
        f"  # {IN_ONE_LINE}\r{TWO}",
        "# " + ONE.replace("\n", "\n# ") + f"\n{TWO}",
    ],
    ids=range(5),
)
def test_a_key_that_is_commented_out_is_not_trusted(text: str) -> None:
    try:
        pins = VerificationPins(text, 1)
    except CustodyConfigurationError:
        return
    assert pins.superadmin_keys == (TWO,)


SECRET = private_key("admin1").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
KEYS = "superadmin_keys"
WRONG_PINS: list[tuple[str, Any, str]] = [
    (KEYS, [], "must be public keys in PEM"),
    (KEYS, [ONE, ""], "must be public keys in PEM"),
    (KEYS, IN_BASE64, "it is base64 without PEM header and footer; put -----BEGIN PUBLIC KEY----- before it"),
    (KEYS, CERTIFICATE, "it is a certificate; 'openssl x509 -pubkey -noout -in FILE' extracts its key"),
    (KEYS, ONE[:60], "it is truncated .-----END PUBLIC KEY----- is missing.*, or .* is not base64"),
    (KEYS, ONE.replace(IN_BASE64[60:64], ""), "it is truncated"),
    (KEYS, "# none", "there is no public key in PEM"),
    (KEYS, ONE.replace("PUBLIC", "RSA PUBLIC"), "not a public key in PEM"),
    (KEYS, f"# ----- admins ----- {ONE}".replace("\n", " "), "its line ends may have been lost"),
    (KEYS, "/etc/superadmins.pem", "text outside of the keys"),
    (KEYS, f"{ONE}and {TWO}", "text outside of the keys"),
    (KEYS, ONE.replace("MFk", "MF-"), "not base64"),
    (KEYS, ONE.replace("g==", "h=="), "not valid base64"),
    (KEYS, TWO + ONE.replace("MFk", "MF\u00e9"), "key 2: .* not valid base64"),
    (KEYS, ONE + in_one_line(DER1[:-1]), "key 2: .* truncated"),
    (KEYS, [BOTH, in_one_line(DER1)], "the same key twice: key 1 and key 3"),
    (KEYS, [ONE, SECRET], "it contains a private key"),
    (KEYS, SECRET.replace("PRIVATE", "PUBLIC"), "."),
    ("superadmin_minimum", 0, "from 1 to 2"),
    ("superadmin_minimum", 3, "from 1 to 2, the number of 'superadmin_keys', not 3"),
    ("superadmin_minimum", True, "from 1 to 2"),
    ("superadmin_minimum", "2", "from 1 to 2"),
    ("networks", [], "one or more names"),
    ("networks", [" mainnet"], "one or more names"),
    ("networks", [1], "one or more names"),
    ("allow_legacy_signatures", "yes", "true or false"),
    ("rules_not_before", 1_230_767_999, "from 2009 on"),
    ("rules_not_before", 4_102_444_801, "from 2009 on"),
    ("rules_not_before", "2026-01-31", "whole seconds"),
    ("rules_not_before", 1.5, "whole seconds"),
    ("rules_not_before", True, "whole seconds"),
]


@pytest.mark.parametrize(("setting", "value", "why"), WRONG_PINS, ids=range(len(WRONG_PINS)))
def test_wrong_pins(setting: str, value: Any, why: str) -> None:
    with pytest.raises(CustodyConfigurationError, match=why) as error:
        VerificationPins(**{"superadmin_keys": BOTH, "superadmin_minimum": 2, setting: value})
    assert error.value.setting == setting
    said = str(error.value) + repr(error.value.__cause__) + repr(error.value.__context__)
    body = "".join(SECRET.split("\n")[1:-2])
    assert not any(body[start : start + 24] in said for start in range(0, len(body) - 24, 8))


def test_pins_at_their_edges() -> None:
    assert VerificationPins(BOTH, 1, networks="mainnet").networks == ("mainnet",)
    for since in (1_230_768_000, 4_102_444_800):
        assert VerificationPins(ONE, 1, rules_not_before=since).rules_not_before == since
    with pytest.raises(KeyTextError, match="it is empty: there is no public key in PEM"):
        list(read_public_keys("\n \n"))


# --- signatures and base64 ---------------------------------------------------------------------------------


def test_signatures_at_their_edges() -> None:
    key, message = PublicKey.from_der(der("alice")), b"message"
    good = sign("alice", message)
    r, s = int.from_bytes(good[:32], "big"), int.from_bytes(good[32:], "big")
    assert key.verifies(good, message)
    assert not key.verifies(good, b"another")
    assert not key.verifies(sign("bob", message), message)
    assert key.verifies(twin(good), message)  # malleable: its bytes identify nothing
    for bad in (raw(0, s), raw(r, 0), raw(0, 0), raw(ORDER, s), raw(r, ORDER), raw(2**256 - 1, 2**256 - 1), raw(s, r)):
        assert not key.verifies(bad, message)
    for size in (0, 63, 65, 72):
        assert not key.verifies((good + good)[:size], message)


@pytest.mark.parametrize("text", ["", "AA==", "AAA=", "AAAA", "AAAAAA=="])
def test_base64(text: str) -> None:
    assert base64.b64encode(decode_base64(text)).decode() == text


@pytest.mark.parametrize(
    "text", ["A", "AA", "AA=", "AB==", "AAB=", "AA==AA==", "AA==\n", " AA==", "A-_=", "AA===", "\u00c4A==", "AAAA="]
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
