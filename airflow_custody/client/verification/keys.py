"""Public keys on P-256 and users' signatures: reading them, and verifying signatures with keys."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from airflow_custody.client.text import as_name
from airflow_custody.client.verification.results import RefusalError

#: Maximum number of keys in a text.
MAX_KEYS = 100
INTEGER_BYTES = 32
SIGNATURE_BYTES = 2 * INTEGER_BYTES
#: Maximum number of signatures of a request. A request with more signatures is refused, and they are not read.
MAX_ENTRIES = 200
#: Maximum number of hashes that one signature covers. A signature over more hashes does not count.
MAX_HASHES = 10_000
# Length of 64 bytes in base64.
_SIGNATURE_LENGTH = 88
_HASH_LENGTH = 64
_HEX = re.compile("[0-9a-f]*")
_ALGORITHM = ECDSA(Prehashed(SHA256()))

_BEGIN, _END = "-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----"
_BLOCK = re.compile(f"{_BEGIN}([^-]*){_END}")
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
# Matches a DER key in base64. Its first byte is 0x30, so the text begins with M. Hashes and names are shorter.
_BARE = re.compile(r"\s*M[A-Za-z0-9+/=\s]{59,}")


class KeyTextError(ValueError):
    """
    Raised when a public key cannot be read.

    The message gives the reason, but does not quote any part of the text or DER.
    """


@dataclass(frozen=True)
class PublicKey:
    """
    A public key on the curve P-256. It verifies signatures.

    Two keys are equal if their points are equal.

    :param point: 64 bytes: the coordinates ``x`` and ``y``, 32 bytes each, big-endian.
    """

    point: bytes

    @classmethod
    def from_der(cls, der: bytes) -> PublicKey:
        """
        Read a key from its SubjectPublicKeyInfo.

        :param der: the encoding with the named curve and an uncompressed point. No other encoding is accepted.
        :raises KeyTextError: if the encoding is different, or the point is not on the curve.
        """
        try:
            key = load_der_public_key(der)
        except (ValueError, UnsupportedAlgorithm):
            raise KeyTextError("it is not a public key, or it is truncated, or its point is not on the curve") from None
        if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
            raise KeyTextError("it is not on the named curve P-256 (secp256r1)")
        found = cls(key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:])
        if found.der != der:
            raise KeyTextError("it is not written with the named curve P-256 and an uncompressed point")
        return found

    @property
    def der(self) -> bytes:
        """The key's SubjectPublicKeyInfo in DER."""
        return _library_key(self.point).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def pem(self) -> str:
        """
        The key's SubjectPublicKeyInfo in PEM, in lines of 64 characters, with a final line end.
        """
        return _library_key(self.point).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the key's SubjectPublicKeyInfo, in hex."""
        return hashlib.sha256(self.der).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """
        Tell whether this key made a signature over a message.

        :param signature: 64 bytes ``r || s``.
        :param message: the bytes that were hashed with SHA-256 and signed.
        """
        return self.verifies_digest(signature, hashlib.sha256(message).digest())

    def verifies_digest(self, signature: bytes, digest: bytes) -> bool:
        """
        Tell whether this key signed a message with this digest.

        :param signature: 64 bytes ``r || s``.
        :param digest: the SHA-256 of the message.
        """
        if len(signature) != SIGNATURE_BYTES:
            return False
        r, s = int.from_bytes(signature[:INTEGER_BYTES], "big"), int.from_bytes(signature[INTEGER_BYTES:], "big")
        try:
            _library_key(self.point).verify(encode_dss_signature(r, s), digest, _ALGORITHM)
        except InvalidSignature:
            return False
        return True

    def __repr__(self) -> str:
        return f"PublicKey({self.fingerprint[:16]}...)"


#: Returns whether a key made a signature over a message with this digest.
Verifies = Callable[[PublicKey, bytes, bytes], bool]


@lru_cache(maxsize=4096)
def _library_key(point: bytes) -> EllipticCurvePublicKey:
    return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b"\x04" + point)


def read_public_keys(text: str) -> Iterator[PublicKey]:
    """
    Read the public keys in a PEM text.

    Line ends may be of any kind. They may also be missing, because the fields of web forms remove them. Lines that
    begin with ``#`` are comments.

    :param text: PEM.
    :raises KeyTextError: if there is no key, a key cannot be used, or there is other content.
    """
    bodies = _find_bodies(text)
    for number, body in enumerate(bodies, 1):
        place = f"key {number}: " if len(bodies) > 1 else ""
        try:
            der = decode_base64("".join(body.split()))
        except ValueError:
            raise KeyTextError(f"{place}the content of the PEM is not valid base64") from None
        try:
            yield PublicKey.from_der(der)
        except KeyTextError as error:
            raise KeyTextError(f"{place}{error}") from None


def _find_bodies(text: str) -> list[str]:
    """
    Return the base64 of each key in a text.

    :raises KeyTextError: if the text has no key, or any other content.
    """
    if "PRIVATE KEY" in text:
        raise KeyTextError("it contains a private key, which is no longer secret now; set public keys only")
    without_comments = "\n".join(line for line in re.split("[\r\n]", text) if not line.lstrip().startswith("#"))
    bodies = _BLOCK.findall(without_comments)
    if rest := _BLOCK.sub("", without_comments).strip():
        raise KeyTextError(_fault_of(rest))
    if not bodies and _BEGIN in text:
        raise KeyTextError("it contains only a comment; its line ends may have been lost")
    if not bodies:
        empty = "" if text.strip() else "it is empty: "
        raise KeyTextError(f"{empty}there is no public key in PEM ({_BEGIN})")
    if len(bodies) > MAX_KEYS:
        raise KeyTextError(f"it has {len(bodies)} keys, but the maximum is {MAX_KEYS}")
    return bodies


def _fault_of(text: str) -> str:
    """Explain why a text is not PEM with public keys."""
    if is_bare_base64(text):
        return f"it is base64 without PEM header and footer; put {_BEGIN} before it and {_END} after it"
    if _CERTIFICATE in text:
        return "it is a certificate; 'openssl x509 -pubkey -noout -in FILE' extracts its key"
    if text.startswith(_BEGIN):
        return f"it is truncated ({_END} is missing), or the content of the PEM is not base64"
    if text.startswith("-----"):
        return f"it is not a public key in PEM ({_BEGIN})"
    return "there is text outside of the keys, and it is not a comment (a line that begins with '#')"


def is_bare_base64(text: str) -> bool:
    """
    Tell whether a text seems to be a public or private key without PEM header and footer.
    """
    return _BARE.fullmatch(text) is not None


def read_keys(pems: Mapping[str, str], limit: int) -> dict[str, PublicKey | None]:
    """
    Read the keys of users.

    :param pems: each user's key in PEM.
    :param limit: maximum length of a PEM text. A longer text counts as unreadable.
    :return: the keys, by user; None for a text that has no readable key, or several keys.
    """
    keys: dict[str, PublicKey | None] = dict.fromkeys(pems)
    for user, pem in pems.items():
        if len(pem) <= limit:
            with suppress(ValueError):
                (keys[user],) = read_public_keys(pem)
    return keys


def decode_base64(text: str) -> bytes:
    """
    Decode base64 strictly: accept only the canonical text, in the standard alphabet and with padding.

    :param text: the text.
    :raises ValueError: if the text is not canonical base64.
    """
    try:
        data = binascii.a2b_base64(text)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    # Encode the result again and compare it, because the decoder skips foreign characters and ignores trailing bits.
    if binascii.b2a_base64(data, newline=False) != text.encode("ascii"):
        raise ValueError("not canonical base64")
    return data


# --- users' signatures -----------------------------------------------------------------------------------


@dataclass
class UserSignature:
    """
    One signature of a request.

    :param user_id: id of the user, as the service reports it. No signature covers the id, so it may be wrong.
    :param signature: the signature's bytes.
    :param hashes: the signed hashes, as sent.
    :param fault: the reason why the signature cannot be used; the other fields are then meaningless. Default empty: it
        can be used.
    """

    user_id: str = ""
    signature: bytes = b""
    hashes: Sequence[Any] = ()
    fault: str = ""

    @cached_property
    def digest(self) -> bytes | None:
        """
        The SHA-256 of the signed message, which is the whole list of hashes; None if the message is ambiguous.

        The message is ambiguous if a member of the list is not a hash, because JSON writers differ in how they escape
        other texts. Such a member cannot be left out, because this would change the message.
        """
        try:
            are_hashes = {*map(len, self.hashes)} == {_HASH_LENGTH} and _HEX.fullmatch("".join(self.hashes))
        except TypeError:  # a member is not text
            return None
        return hashlib.sha256(('["' + '","'.join(self.hashes) + '"]').encode()).digest() if are_hashes else None


def read_user_signatures(envelope: Mapping[str, Any]) -> list[UserSignature]:
    """
    Return the signatures of a request. An unusable signature has a ``fault``.

    :param envelope: the envelope as received.
    :raises RefusalError: if the signatures cannot be read at all.
    """
    address = envelope.get("signedAddress")
    found = address.get("signatures") if isinstance(address, dict) else None
    if address is None or (isinstance(address, dict) and found is None):
        return []
    if not isinstance(found, list):
        raise RefusalError("its signatures are not a list")
    if len(found) > MAX_ENTRIES:
        raise RefusalError(f"it has more than {MAX_ENTRIES} signatures")
    return [_read_user_signature(each) for each in found]


def _read_user_signature(found: object) -> UserSignature:
    signature = found.get("signature") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(signature, dict):
        return UserSignature(fault="it is missing")
    text, hashes = signature.get("signature"), found.get("hashes")
    user_id = signature.get("userId")
    user_id = user_id if isinstance(user_id, str) else as_name(user_id)
    if not user_id:
        return UserSignature(fault="it names no user")
    if not isinstance(hashes, list) or len(hashes) > MAX_HASHES:
        return UserSignature(fault=f"its hashes are not a list, or there are more than {MAX_HASHES}")
    try:
        data = decode_base64(text) if isinstance(text, str) and len(text) == _SIGNATURE_LENGTH else b""
    except ValueError:
        data = b""
    if len(data) != SIGNATURE_BYTES:
        return UserSignature(fault="it is not 64 bytes in base64")
    return UserSignature(user_id, data, hashes)
