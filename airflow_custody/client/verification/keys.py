"""Public keys on P-256: how they are read, and how signatures are verified with them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

INTEGER_BYTES = 32
SIGNATURE_BYTES = 2 * INTEGER_BYTES

# The curve: y^2 = x^3 - 3x + b modulo p.
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
# SubjectPublicKeyInfo of an uncompressed point on the named curve P-256, up to the point. There is one such encoding of
# each key, so comparing bytes is enough: no ASN.1 is read, and nothing of it can be read in two ways.
_PREFIX = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
_COMPRESSED_PREFIX = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
_EC_KEY = bytes.fromhex("06072a8648ce3d0201")
_COMMENTS = re.compile(r"(?:\s|#[^\r\n]*)*")
_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
# Of DER, which begins with 0x30; a hash or a name is shorter.
_BARE = re.compile(r"\s*M[A-Za-z0-9+/=\s]{59,}")

#: Why base64 by itself is refused.
BARE_BASE64 = f"it is base64 without the lines of PEM: put {_BEGIN} before it and {_END} after it"


class KeyTextError(ValueError):
    """Raised when a text or DER is not what a public key is read from; says why, and quotes nothing of it."""


@dataclass(frozen=True)
class PublicKey:
    """
    A P-256 public key, with which signatures are verified. Two are equal if their points are.

    :param point: 64 bytes: the coordinates ``x`` and ``y``, 32 each, big-endian.
    """

    point: bytes

    @classmethod
    def from_der(cls, der: bytes) -> PublicKey:
        """
        Read a key from its SubjectPublicKeyInfo. Needs no library.

        :param der: the encoding with the named curve and an uncompressed point.
        :raises KeyTextError: if it is anything else, or the point is not on the curve.
        """
        size = len(_PREFIX) + SIGNATURE_BYTES
        if not der.startswith(_PREFIX) or len(der) != size:
            if der and len(der) < size and der[: len(_PREFIX)] == _PREFIX[: len(der)]:
                raise KeyTextError("it is truncated")
            if der.startswith(_COMPRESSED_PREFIX):
                raise KeyTextError("its point is compressed, and must not be")
            if _EC_KEY in der[:40]:
                raise KeyTextError("it is not on the named curve P-256 (secp256r1) with an uncompressed point")
            raise KeyTextError("it is not an elliptic-curve public key")
        point = der[len(_PREFIX) :]
        x, y = (int.from_bytes(half, "big") for half in (point[:INTEGER_BYTES], point[INTEGER_BYTES:]))
        if x >= _P or y >= _P or (y * y - (x * x - 3) * x - _B) % _P:
            raise KeyTextError("its point is not on the curve")
        return cls(point)

    @property
    def der(self) -> bytes:
        """Its SubjectPublicKeyInfo."""
        return _PREFIX + self.point

    @property
    def pem(self) -> str:
        """Its SubjectPublicKeyInfo in PEM, with 64 characters a line and a final line end."""
        text = base64.b64encode(self.der).decode()
        return "\n".join([_BEGIN, *(text[at : at + 64] for at in range(0, len(text), 64)), _END, ""])

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of its SubjectPublicKeyInfo, in hex."""
        return hashlib.sha256(self.der).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """
        Tell whether a signature is one of this key over a message.

        :param signature: 64 bytes ``r || s``.
        :param message: the bytes that were hashed with SHA-256 and signed.
        :raises CustodyConfigurationError: if the extra ``signing`` is not installed.
        """
        return self.verifies_digest(signature, hashlib.sha256(message).digest())

    def verifies_digest(self, signature: bytes, digest: bytes) -> bool:
        """
        Tell whether a signature is one of this key over a message with this digest.

        :param signature: 64 bytes ``r || s``.
        :param digest: the SHA-256 of the message.
        :raises CustodyConfigurationError: if the extra ``signing`` is not installed.
        """
        if len(signature) != SIGNATURE_BYTES:
            return False
        key, algorithm, encode, invalid = self._library
        r, s = int.from_bytes(signature[:INTEGER_BYTES], "big"), int.from_bytes(signature[INTEGER_BYTES:], "big")
        try:
            key.verify(encode(r, s), digest, algorithm)
        except invalid:
            return False
        return True

    @cached_property
    def _library(self) -> tuple[EllipticCurvePublicKey, Any, Any, type[Exception]]:
        """The key, the algorithm, the encoder of signatures and the error, as the library has them."""
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
            from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature
            from cryptography.hazmat.primitives.hashes import SHA256
        except ImportError:
            raise CustodyConfigurationError(
                "signatures cannot be verified: the extra 'signing' is not installed",
                advice="Run: pip install 'airflow-provider-custody[signing]'",
                code="package-missing",
            ) from None
        key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b"\x04" + self.point)
        return key, ECDSA(Prehashed(SHA256())), encode_dss_signature, InvalidSignature

    def __getstate__(self) -> dict[str, Any]:
        # Copied and pickled without what the library made: it cannot be.
        return {"point": self.point}

    def __repr__(self) -> str:
        return f"PublicKey({self.fingerprint[:16]}...)"


def read_public_keys(text: str) -> Iterator[PublicKey]:
    """
    Read the keys of a text in PEM.

    Its line ends may be of any kind, or lost, as in a form's field. Lines between the keys may be comments: they begin
    with ``#``.

    :param text: PEM.
    :raises KeyTextError: if there is none, one of them cannot be used, or there is something else.
    """
    if "PRIVATE KEY" in text:
        raise KeyTextError("there is a private key: only public keys belong there, and that one is no secret any more")
    if is_bare_base64(text):
        raise KeyTextError(BARE_BASE64)
    position, keys = _skip_comments(text, 0), 0
    while position < len(text):
        end = text.find(_END, position)
        if not text.startswith(_BEGIN, position) and text.find(_CERTIFICATE, position) >= 0:
            raise KeyTextError("it is a certificate: 'openssl x509 -pubkey -noout -in FILE' prints its key")
        if not text.startswith("-----", position):
            raise KeyTextError("there is text outside of the keys that is no comment (a line that begins with '#')")
        if text.startswith(_BEGIN, position) and (end < 0 or text.find(_BEGIN, position + 1, end) >= 0):
            raise KeyTextError(f"it is truncated: {_END} is missing")
        if not text.startswith(_BEGIN, position):
            raise KeyTextError("it is not a public key in PEM (-----BEGIN PUBLIC KEY-----)")
        try:
            der = decode_base64("".join(text[position + len(_BEGIN) : end].split()))
        except ValueError:
            raise KeyTextError("what stands in the PEM is not base64, or not all of it") from None
        yield PublicKey.from_der(der)
        position, keys = _skip_comments(text, end + len(_END)), keys + 1
    if not keys and _BEGIN in text:
        raise KeyTextError("there is only a comment, to the end of its line: the line ends may have been lost")
    if not keys:
        empty = "" if text.strip() else "it is empty: "
        raise KeyTextError(f"{empty}there is no public key in PEM ({_BEGIN})")


def is_bare_base64(text: str) -> bool:
    """Tell whether a text seems to be a key, public or private, without the lines of PEM."""
    return _BARE.fullmatch(text) is not None


def _skip_comments(text: str, position: int) -> int:
    """Return where white space and comments end. What is in a comment is none of the keys, even if it is one."""
    found = _COMMENTS.match(text, position)
    return found.end() if found else position


def decode_base64(text: str) -> bytes:
    """
    Decode base64: the standard alphabet with padding, nothing else, and only the one text that encodes these bytes.

    :param text: the text.
    :raises ValueError: if it is anything else.
    """
    try:
        data = binascii.a2b_base64(text)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    # The decoder skips foreign characters and ignores trailing bits. What encodes to the same text had neither.
    if binascii.b2a_base64(data, newline=False) != text.encode("ascii"):
        raise ValueError("not canonical base64")
    return data
