"""What is said of a certificate that is not accepted, whatever is wrong with it, or with the CA's."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from raw_server import raw_server

from airflow_custody.client import CustodyClient, CustodyConnectionError

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
#: A certificate and its key.
Pair = tuple[x509.Certificate, Key]

REPLACED = "Have the certificate replaced, or that of its CA in 'verify'"
UNKNOWN_CA = "Its CA is not in 'verify', or an intermediate certificate is missing: have the server send it."


def make(
    name: str,
    issuer: Pair | None = None,
    *,
    key: Key | None = None,
    is_ca: bool = False,
    has_san: bool = True,
    purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    ends: int = 1,
) -> Pair:
    """Return a certificate for 127.0.0.1, or a CA's; it ends in so many days."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    signed_by = issuer[1] if issuer else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=ends))
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
        # Python 3.13 asks for these.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key()), critical=False)
    )
    if not is_ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        if has_san:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(signed_by, hashes.SHA256()), key


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def advice(path: Path, server: Pair, *sent: Pair, verify: bool | Pair) -> str:
    """Return what is advised if a server has this certificate, and sends these as well."""
    file, bundle = path / "server.pem", path / "bundle.pem"
    key = server[1].private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(b"".join([key, *(pem(each) for each, _ in (server, *sent))]))
    if not isinstance(verify, bool):
        bundle.write_bytes(pem(verify[0]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # This machine's own server would not have a weak key.
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(file)
    with (
        raw_server(lambda stream: None, context) as (url, _),
        CustodyClient(url, "t0ken", timeout=60, verify=verify if isinstance(verify, bool) else str(bundle)) as client,
        pytest.raises(CustodyConnectionError) as caught,
    ):
        client.list_health_checks()
    assert (caught.value.code, caught.value.retryable) == ("tls-failed", False)
    assert "'." not in caught.value.message
    return str(caught.value.advice).replace(url, "URL")


@pytest.fixture
def ca() -> Pair:
    return make("CA", is_ca=True)


def test_a_private_ca_and_the_bundle_of_another(tmp_path: Path, ca: Pair) -> None:
    server = make("server", ca)
    assert advice(tmp_path, server, verify=True) == "If its CA is private, give its bundle in 'verify'."
    assert advice(tmp_path, server, verify=make("Another", is_ca=True)) == UNKNOWN_CA
    assert advice(tmp_path, server, verify=make("CA", is_ca=True)) == UNKNOWN_CA


def test_an_intermediate_certificate_that_is_not_sent(tmp_path: Path, ca: Pair) -> None:
    assert advice(tmp_path, make("server", make("Between", ca, is_ca=True)), verify=ca) == UNKNOWN_CA


def test_a_certificate_that_expired_may_be_the_cas(tmp_path: Path) -> None:
    old = make("CA", is_ca=True, ends=-1)
    assert advice(tmp_path, make("server", old), verify=old) == f"{REPLACED}, unless this machine's clock is wrong."


def test_a_certificate_without_a_subject_alternative_name(tmp_path: Path, ca: Pair) -> None:
    assert advice(tmp_path, make("127.0.0.1", ca, has_san=False), verify=ca) == (
        "The certificate is for another host, or has no subject alternative name: check the base URL URL."
    )


def test_what_no_bundle_makes_acceptable_is_replaced(tmp_path: Path, ca: Pair) -> None:
    weak = rsa.generate_private_key(65537, 1024)
    no_ca = make("No CA", ca)
    for server, *sent in (
        [make("server", ca, key=weak)],
        [make("server", ca, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)],
        [make("server", no_ca), no_ca],
    ):
        assert advice(tmp_path, server, *sent, verify=ca) == f"{REPLACED}."
