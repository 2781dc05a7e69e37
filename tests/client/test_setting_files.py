"""Files that settings and arguments name: only regular files of a limited size are read, without waiting."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from support.keys.pinned_keys import private_key, public_pem
from support.service.authorities import Authority
from support.service.people import pem_of

from airflow_custody.client import ClientSettings, CustodyConfigurationError, CustodyError
from airflow_custody.client.files import MAX_SETTING_BYTES, read_file
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.verification.evidence import read_evidence
from airflow_custody.client.whitelist.files.reading import read_whitelist_file

URL = "https://custody.example.com"
NOT_REGULAR = "it is not a regular file"


def settings_with(**values: object) -> None:
    ClientSettings.parse({"base_url": URL, **values})


#: What reads a file, and what makes the content that it accepts.
READERS: dict[str, Callable[[str], object]] = {
    "verify": lambda path: settings_with(verify=path),
    "client_cert": lambda path: settings_with(client_cert=path),
    "superadmin_keys": lambda path: settings_with(superadmin_keys=path, superadmin_minimum=1),
    "signer": lambda path: PemSigner.from_file(path).public_key(),
}


@pytest.fixture
def contents(authority: Authority) -> dict[str, bytes]:
    return {
        "verify": Path(authority[1]).read_bytes(),
        "client_cert": Path(authority[2]).read_bytes(),
        "superadmin_keys": public_pem(1).encode(),
        "signer": pem_of(private_key(1)).encode(),
    }


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Use a short path, because the path of a socket has a maximum length.
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_a_device_a_socket_and_a_directory_are_refused_and_not_waited_for(in_folder: Path, reader: str) -> None:
    # No process writes to this pipe, so opening it would wait.
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in ("/dev/null", "/dev/zero", str(in_folder / "socket"), str(in_folder / "pipe")):
            with pytest.raises(CustodyConfigurationError, match=NOT_REGULAR):
                READERS[reader](path)
    with pytest.raises(CustodyConfigurationError, match="Is a directory"):
        READERS[reader](str(in_folder))


@pytest.mark.parametrize("reader", READERS)
def test_a_file_of_more_than_a_mebibyte_is_refused(in_folder: Path, contents: dict[str, bytes], reader: str) -> None:
    # A PEM file may have a comment before its first PEM line.
    comment = b"# " + b"x" * (MAX_SETTING_BYTES - len(contents[reader]) - 3) + b"\n"
    (in_folder / "file").write_bytes(comment + contents[reader])
    # Kubernetes mounts a secret as a symbolic link.
    (in_folder / "link").symlink_to("file")
    READERS[reader](str(in_folder / "link"))
    (in_folder / "file").write_bytes(b"#" + comment + contents[reader])
    with pytest.raises(CustodyConfigurationError, match="it is larger than 1 MiB"):
        READERS[reader](str(in_folder / "file"))


def test_the_key_of_a_client_certificate_is_checked_too(authority: Authority) -> None:
    with pytest.raises(CustodyConfigurationError, match=NOT_REGULAR):
        settings_with(client_cert=f"{authority[2]},/dev/zero")


def test_many_files_are_not_read(in_folder: Path) -> None:
    (in_folder / "keys.pem").write_text(public_pem(1) * 101)
    with pytest.raises(CustodyConfigurationError, match="it has 101 keys, but the maximum is 100"):
        settings_with(superadmin_keys=str(in_folder / "keys.pem"), superadmin_minimum=1)
    with pytest.raises(CustodyConfigurationError, match="has 101 entries, but the maximum is 100"):
        settings_with(superadmin_keys=[str(in_folder / "keys.pem")] * 101, superadmin_minimum=1)


@pytest.mark.parametrize("read", [read_evidence, read_whitelist_file], ids=lambda read: read.__name__)
def test_files_of_arguments_are_regular_too(in_folder: Path, read: Callable[[str], object]) -> None:
    (in_folder / "file.json").symlink_to("/dev/zero")
    with pytest.raises(CustodyError, match=NOT_REGULAR) as caught:
        read(str(in_folder / "file.json"))
    assert caught.value.code == "file-wrong"


@pytest.mark.skipif(not os.path.exists("/proc/self/pagemap"), reason="a file of Linux")
def test_a_file_without_end_is_read_up_to_the_limit() -> None:
    with pytest.raises(OSError, match="it is larger than 2 MiB"):
        read_file("/proc/self/pagemap", 2 * 2**20)


# --- the certificate and the key of a client -----------------------------------------------------------------


def pem_parts(tmp_path: Path) -> dict[str, str]:
    """Write the parts of a client certificate, and return their paths by name."""
    made, other = (trustme.CA().issue_cert("me.example.com") for _ in range(2))
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    contents = {
        "certificate": made.cert_chain_pems[0].bytes(),
        "key": made.private_key_pem.bytes(),
        "other key": other.private_key_pem.bytes(),
        "encrypted": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")),
        "old and encrypted": key.private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"x")
        ),
        "junk": b"junk",
        "damaged": b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in (*contents, "missing")}


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["certificate"], "{0} has no private key in PEM"),
        (["junk", "key"], "{0} has no certificate in PEM"),
        (["key", "certificate"], "the two paths are swapped"),
        (["certificate", "other key"], "the private key in {1} does not belong to the certificate in {0}"),
        (["certificate", "encrypted"], "the private key in {1} is encrypted"),
        (["certificate", "old and encrypted"], "the private key in {1} is encrypted"),
        (["certificate", "missing"], "cannot be used: {1}: No such file"),
        (["damaged", "key"], "cannot be used: {0}, {1}: "),
    ],
    ids=lambda value: " and ".join(value) if isinstance(value, list) else "",
)
def test_each_fault_of_a_client_certificate_has_its_own_words(tmp_path: Path, names: list[str], why: str) -> None:
    found = pem_parts(tmp_path)
    settings_with(client_cert=[found["certificate"], found["key"]])
    paths = [found[name] for name in names]
    with pytest.raises(CustodyConfigurationError) as caught:
        settings_with(client_cert=paths)
    assert why.format(*paths) in str(caught.value)
