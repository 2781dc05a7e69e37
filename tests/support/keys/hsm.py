"""Two HSMs for tests: SoftHSM2, where it is installed, and one in memory that can fail on purpose."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pkcs11.util.ec import encode_named_curve_parameters
from support.service.people import ROLES

from airflow_custody.sandbox import Sandbox

TOKEN = "treasury"
PIN = "246810"
_SO_PIN = "135791113"
_LIBRARIES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
)
_CURVES = {"secp256r1": ec.SECP256R1(), "secp384r1": ec.SECP384R1()}


class SoftHsm:
    """A token of SoftHSM2 in a folder of its own. There is one for all tests: the library reads its settings once."""

    def __init__(self) -> None:
        self.module = next((path for path in _LIBRARIES if Path(path).is_file()), "")
        if not self.module:
            missing("SoftHSM2 is not installed: apt-get install softhsm2")
        self._folder = tempfile.TemporaryDirectory(prefix="softhsm-")
        folder = Path(self._folder.name)
        (folder / "tokens").mkdir()
        (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\n")
        os.environ["SOFTHSM2_CONF"] = str(folder / "softhsm2.conf")
        command = ["softhsm2-util", "--init-token", "--free", "--label", TOKEN, "--pin", PIN, "--so-pin", _SO_PIN]
        subprocess.run(command, check=True, capture_output=True)

    def generate(self, label: str, curve: str = "secp256r1", *, keep_public: bool = True) -> str:
        """Make a key pair in the token, and return its public key in PEM."""
        with pkcs11.lib(self.module).get_token(token_label=TOKEN).open(rw=True, user_pin=PIN) as session:
            parameters = session.create_domain_parameters(
                pkcs11.KeyType.EC, {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters(curve)}, local=True
            )
            public, _ = parameters.generate_keypair(store=True, label=label)
            pem = _pem(bytes(public[pkcs11.Attribute.EC_POINT])[-65:]) if curve == "secp256r1" else ""
            if not keep_public:
                public.destroy()
        return pem


@cache
def soft_hsm() -> SoftHsm:
    """Return the token of SoftHSM2."""
    return SoftHsm()


class FakeHsm:
    """
    A token in memory, in place of a PKCS#11 library.

    If ``failure`` is set, opening a session raises it, after ``good`` sessions without it.
    """

    module = "/usr/lib/fake.so"

    def __init__(self) -> None:
        self.keys: dict[str, tuple[ec.EllipticCurvePrivateKey, str, bool]] = {}
        self.failure: Exception | None = None
        self.good = 0
        self.hides_parameters = False
        self.is_point_raw = False

    def generate(self, label: str, curve: str = "secp256r1", *, keep_public: bool = True) -> str:
        key = ec.generate_private_key(_CURVES[curve])
        self.keys[label] = (key, curve, keep_public)
        return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def get_token(self, *, token_label: str) -> FakeHsm:
        if token_label != TOKEN:
            raise pkcs11.NoSuchToken(f"No token matching {token_label}")
        return self

    @contextmanager
    def open(self, *, user_pin: str) -> Iterator[FakeHsm]:
        if self.failure is not None:
            if not self.good:
                raise self.failure
            self.good -= 1
        if user_pin != PIN:
            raise pkcs11.PinIncorrect
        yield self

    def get_objects(self, wanted: dict[Any, Any]) -> Iterator[FakeKey]:
        key, curve, has_public = self.keys.get(wanted[pkcs11.Attribute.LABEL], (None, "", False))
        is_public = wanted[pkcs11.Attribute.CLASS] == pkcs11.ObjectClass.PUBLIC_KEY
        if key is not None and (has_public or not is_public):
            yield FakeKey(self, key, curve)


class FakeKey:
    """A key of :class:`FakeHsm`."""

    def __init__(self, hsm: FakeHsm, key: ec.EllipticCurvePrivateKey, curve: str) -> None:
        self._hsm = hsm
        self._key = key
        self._curve = curve

    def __getitem__(self, attribute: Any) -> bytes:
        if attribute == pkcs11.Attribute.EC_PARAMS:
            if self._hsm.hides_parameters:
                raise pkcs11.AttributeTypeInvalid
            return bytes(encode_named_curve_parameters(self._curve))
        point = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return point if self._hsm.is_point_raw else bytes([4, len(point)]) + point

    def sign(self, data: bytes, *, mechanism: Any) -> bytes:
        assert mechanism == pkcs11.Mechanism.ECDSA
        r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(Prehashed(SHA256()))))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


class HsmPerson:
    """A user of the sandbox whose key is in an HSM."""

    def __init__(
        self, sandbox: Sandbox, hsm: SoftHsm | FakeHsm, name: str, *, key: str | None = None, keep_public: bool = True
    ) -> None:
        self.key = key or f"{name}-key"
        user_id = sandbox.control.add_user(
            name, ROLES, groups=("approvers",), public_key=hsm.generate(self.key, keep_public=keep_public)
        )
        self.token = sandbox.control.add_token(roles=ROLES, user_id=user_id)


def missing(why: str) -> None:
    """
    Skip a test, because a program is missing.

    In ``make test-guides``, which requires all programs, the test fails instead.
    """
    if os.environ.get("CUSTODY_TEST_GUIDES"):
        pytest.fail(why)
    pytest.skip(f"{why}; or run make test-guides")


def _pem(point: bytes) -> str:
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
