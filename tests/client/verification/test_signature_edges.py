"""Signatures and public keys at their edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from whitelist_forge import (
    ORDER,
    PRIME,
    TEXT_A,
    container,
    der,
    envelope,
    fingerprint,
    hash_of,
    message_of,
    pem,
    pem_of,
    private_key,
    raw,
    sign,
    sign_der,
    signing,
    superadmin_entry,
    twin,
    user,
)
from whitelist_verdicts import accept, refuse, signers

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.verification.verifier import VerificationPins

DEMO = container()
MESSAGE = message_of([hash_of(TEXT_A)])


def numbers(name: str, message: bytes) -> tuple[int, int]:
    """Return the numbers r and s of a name's signature."""
    return decode_dss_signature(sign_der(name, message))


BAD: dict[str, Callable[[str, bytes], bytes]] = {
    "r is zero": lambda name, message: raw(0, numbers(name, message)[1]),
    "s is zero": lambda name, message: raw(numbers(name, message)[0], 0),
    "both are zero": lambda name, message: raw(0, 0),
    "both are one": lambda name, message: raw(1, 1),
    "r is the order": lambda name, message: raw(ORDER, numbers(name, message)[1]),
    "s is the order": lambda name, message: raw(numbers(name, message)[0], ORDER),
    "both are the order": lambda name, message: raw(ORDER, ORDER),
    "r is one more than the order": lambda name, message: raw(ORDER + 1, numbers(name, message)[1]),
    "all bits set": lambda name, message: b"\xff" * 64,
    "the negative of r": lambda name, message: raw(ORDER - numbers(name, message)[0], numbers(name, message)[1]),
    "r and s swapped": lambda name, message: raw(*numbers(name, message)[::-1]),
    "little-endian": lambda name, message: sign(name, message)[:32][::-1] + sign(name, message)[32:][::-1],
    "63 bytes": lambda name, message: sign(name, message)[:-1],
    "65 bytes": lambda name, message: sign(name, message) + b"\0",
    "65 bytes, zero first": lambda name, message: b"\0" + sign(name, message),
    "66 bytes": lambda name, message: b"\0" + sign(name, message)[:32] + b"\0" + sign(name, message)[32:],
    "none": lambda name, message: b"",
    "DER": sign_der,
    "over the digest": lambda name, message: sign(name, bytes.fromhex(hash_of(message.decode("latin-1")))),
    "another message's": lambda name, message: sign(name, message + b" "),
}


@pytest.mark.parametrize("bend", BAD.values(), ids=BAD)
def test_signatures_that_are_none(bend: Callable[[str, bytes], bytes]) -> None:
    bent = signing("alice", hash_of(TEXT_A), signature=bend("alice", MESSAGE))
    refuse(envelope(TEXT_A, bent, "bob"))
    accept(envelope(TEXT_A, bent, "bob", "alice"))
    admin = superadmin_entry("admin1", DEMO, signature=bend("admin1", DEMO))
    refuse(envelope(TEXT_A, "alice", "bob", superadmins=("admin2", admin)))
    accept(envelope(TEXT_A, "alice", "bob", superadmins=("admin2", admin, "admin1")))


def test_low_and_high_s() -> None:
    for bend in (bytes, twin):
        bent = [signing(name, hash_of(TEXT_A), signature=bend(sign(name, MESSAGE))) for name in ("alice", "bob")]
        admins = [superadmin_entry(name, DEMO, signature=bend(sign(name, DEMO))) for name in ("admin1", "admin2")]
        assert signers(accept(envelope(TEXT_A, *bent, superadmins=admins))) == {"alice", "bob"}


@pytest.mark.parametrize("bend", [lambda text: text[:-2], lambda text: text + "\n", lambda text: text[:-2] + "B="])
def test_signatures_in_bent_base64(bend: Callable[[str], str]) -> None:
    given = envelope(TEXT_A, "alice", "bob")
    accept(given)
    shown = given["signedAddress"]["signatures"][0]["signature"]
    assert shown["signature"].endswith("==")
    shown["signature"] = bend(shown["signature"])
    refuse(given)


# Public keys


def tlv(tag: int, *parts: bytes) -> bytes:
    """Return a value in DER."""
    body = b"".join(parts)
    size = bytes([len(body)]) if len(body) < 0x80 else b"\x82" + len(body).to_bytes(2, "big")
    return bytes([tag]) + size + body


def integer(number: int) -> bytes:
    """Return a positive number in DER."""
    return tlv(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


EC_KEY = bytes.fromhex("06072a8648ce3d0201")
P256 = bytes.fromhex("06082a8648ce3d030107")
COEFFICIENT = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
BASE = bytes.fromhex(
    "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
)
EXPLICIT = tlv(
    0x30,
    integer(1),
    tlv(0x30, bytes.fromhex("06072a8648ce3d0101"), integer(PRIME)),
    tlv(0x30, tlv(4, (PRIME - 3).to_bytes(32, "big")), tlv(4, COEFFICIENT.to_bytes(32, "big"))),
    tlv(4, BASE),
    integer(ORDER),
    integer(1),
)


def spki(point: bytes, curve: bytes = P256, unused: int = 0) -> bytes:
    """Return a point as SubjectPublicKeyInfo."""
    return tlv(0x30, tlv(0x30, EC_KEY, curve), tlv(3, bytes([unused]), point))


def of_curve(curve: ec.EllipticCurve) -> bytes:
    """Return a public key on another curve."""
    public = ec.derive_private_key(7, curve).public_key()
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def height(x: int) -> int | None:
    """Return y of the point at x, if there is one."""
    square = (x**3 - 3 * x + COEFFICIENT) % PRIME
    root = pow(square, (PRIME + 1) // 4, PRIME)
    return root if root * root % PRIME == square else None


#: A point whose x can be written a second way in 32 bytes.
SMALL_X, SMALL_Y = next((x, y) for x in range(1, 99) if (y := height(x)) is not None)


def point(x: int, y: int) -> bytes:
    """Return a point's two numbers, uncompressed."""
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


POINT = der("alice")[-65:]
assert spki(POINT) == der("alice")
COMPRESSED = bytes([2 + POINT[-1] % 2]) + POINT[1:33]
BAD_KEYS = {
    "off the curve": spki(POINT[:-1] + bytes([POINT[-1] ^ 1])),
    "x and y swapped": spki(b"\x04" + POINT[33:] + POINT[1:33]),
    "zero": spki(point(0, 0)),
    "one": spki(point(1, 1)),
    "infinity": spki(b"\0"),
    "infinity, long": spki(b"\0" * 65),
    "no point": spki(b""),
    "x beyond the prime": spki(point(SMALL_X + PRIME, SMALL_Y)),
    "x and y are the prime": spki(point(PRIME, PRIME)),
    "compressed": spki(COMPRESSED),
    "hybrid": spki(bytes([6 + POINT[-1] % 2]) + POINT[1:]),
    "without its first byte": spki(POINT[1:]),
    "unused bits": spki(POINT, unused=1),
    "secp256k1": of_curve(ec.SECP256K1()),
    "P-384": of_curve(ec.SECP384R1()),
    "P-256's point as one of secp256k1": spki(POINT, bytes.fromhex("06052b8104000a")),
    "P-256's point as one of brainpoolP256r1": spki(POINT, bytes.fromhex("06092b2403030208010107")),
    "explicit parameters": spki(POINT, EXPLICIT),
    "no parameters": spki(POINT, b""),
    "null parameters": spki(POINT, b"\x05\0"),
    "more behind it": der("alice") + b"\0",
    "cut": der("alice")[:-1],
    "length in a longer form": b"\x30\x81\x59" + der("alice")[2:],
    "Ed25519": ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
    .public_key()
    .public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    "the point alone": POINT,
    "empty": b"",
}


@pytest.mark.parametrize("key", BAD_KEYS.values(), ids=BAD_KEYS)
def test_keys_that_are_not_on_p256(key: bytes) -> None:
    for keys in (pem_of(key), [pem_of(key), pem("admin1")], pem("admin1") + pem_of(key)):
        with pytest.raises(CustodyConfigurationError) as caught:
            VerificationPins(keys, 1)
        assert not key or pem_of(key)[27:60] not in str(caught.value)
    rules = container(users=(user("alice", key=pem_of(key)), user("bob"), user("carol")))
    refuse(envelope(TEXT_A, "alice", "bob", rules=rules))
    assert signers(accept(envelope(TEXT_A, "alice", "bob", "carol", rules=rules))) == {"carol"}


def test_the_edges_themselves_are_keys() -> None:
    VerificationPins([pem_of(spki(BASE)), pem_of(spki(point(SMALL_X, SMALL_Y)))], 2)
    VerificationPins(pem_of(spki(point(SMALL_X, PRIME - SMALL_Y))), 1)


ONE, TWO = pem("admin1"), pem("admin2")
IN_ONE_LINE = ONE.replace("\n", "")
GOOD_PINS: dict[str, Any] = {
    "a list": [ONE, TWO],
    "a tuple": (ONE, TWO),
    "an iterator": iter([ONE, TWO]),
    "one text": ONE + TWO,
    "one text, empty line between": f"{ONE}\n{TWO}",
    "one text, nothing between": ONE.rstrip() + TWO.rstrip(),
    "list of one text": [ONE + TWO],
    "no last line end": [ONE.rstrip(), TWO.rstrip()],
    "CRLF": (ONE + TWO).replace("\n", "\r\n"),
    "CR": (ONE + TWO).replace("\n", "\r"),
    "one line": (ONE + TWO).replace("\n", " "),
    "no line ends": [IN_ONE_LINE, TWO.replace("\n", "")],
    "white space around": f"\n\t {ONE}\n \n{TWO}  ",
    "comments": f"# the first, read out by phone\n{ONE}# the second\n{TWO}#",
    "comments with dashes": f"# ----- admins -----\n{ONE}#-----\n{TWO}# -----END-----",
    "other line lengths": ONE[:40] + "\n" + ONE[40:] + TWO,
}


@pytest.mark.parametrize("keys", GOOD_PINS.values(), ids=GOOD_PINS)
def test_ways_to_write_pins(keys: Any) -> None:
    pins = VerificationPins(keys, 2)
    assert pins.fingerprints == (fingerprint("admin1"), fingerprint("admin2"))
    assert pins == VerificationPins([ONE, TWO], 2)
    assert hash(pins) == hash(VerificationPins([ONE, TWO], 2))
    accept(envelope(TEXT_A, "alice", "bob"), pins)


COMMENTED_OUT = (
    f"# {IN_ONE_LINE}\n{TWO}",
    f"# revoked: {ONE}{TWO}",
    f"{TWO}# {IN_ONE_LINE}",
    f"{TWO.rstrip()} # {IN_ONE_LINE}",
    f"#{IN_ONE_LINE}\r\n{TWO}",
    f"  # {IN_ONE_LINE}\r{TWO}",
    f"# {IN_ONE_LINE} {TWO}",
    "# " + ONE.replace("\n", "\n# ") + f"\n{TWO}",
)


@pytest.mark.parametrize("keys", COMMENTED_OUT, ids=range(len(COMMENTED_OUT)))
def test_a_key_that_is_commented_out_is_not_trusted(keys: str) -> None:
    try:
        pins = VerificationPins(keys, 1)
    except CustodyConfigurationError:
        return
    assert pins.fingerprints == (fingerprint("admin2"),)


SECRET = private_key("admin1").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
OLD_SECRET = (
    private_key("admin1").private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
)
BAD_PINS: dict[str, Any] = {
    "none": None,
    "no keys": [],
    "empty text": "",
    "white space": " \n",
    "comment only": "# to do",
    "number": 5,
    "bytes": ONE.encode(),
    "list with None": [ONE, None],
    "list with bytes": [ONE.encode()],
    "list with an empty text": [ONE, ""],
    "private key": SECRET,
    "private key of the older form": OLD_SECRET,
    "private key beside a public one": ONE + SECRET,
    "private key labelled as public": SECRET.replace("PRIVATE", "PUBLIC"),
    "certificate": pem_of(der("admin1"), "CERTIFICATE"),
    "another label": pem_of(der("admin1"), "EC PUBLIC KEY"),
    "junk before": f"admin1: {ONE}",
    "junk behind": f"{ONE}admin1",
    "junk between": f"{ONE}and {TWO}",
    "no end": ONE[:-27],
    "no beginning": ONE[27:],
    "another end": ONE.replace("END PUBLIC", "END PRIVATE"),
    "headers": ONE.replace("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
    "foreign characters": ONE.replace("MFkw", "MF$w"),
    "two in one block": ONE.replace("-----END", ONE.split("\n")[1] + "\n-----END"),
    "base64 alone": IN_ONE_LINE[26:-24],
    "path of a file": "/etc/superadmins.pem",
    "surrogate": ONE + "\ud800",
}


@pytest.mark.parametrize("keys", BAD_PINS.values(), ids=BAD_PINS)
def test_pins_that_are_none(keys: Any) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        VerificationPins(keys, 1)
    said = str(caught.value) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    body = "".join(SECRET.split("\n")[1:-2])
    assert not any(body[start : start + 24] in said for start in range(0, len(body) - 24, 8))
    assert caught.value.setting == "superadmin_keys"


@pytest.mark.parametrize("networks", [[], "", "mainnet ", ["mainnet", ""], ["mainnet", " testnet"], [5], 5, [None]])
def test_networks_that_are_none(networks: Any) -> None:
    with pytest.raises(CustodyConfigurationError):
        VerificationPins(ONE, 1, networks=networks)
