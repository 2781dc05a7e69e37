"""
Files on this machine or in an object storage.

An object storage is reached through its Airflow connection.
"""

from __future__ import annotations

import re
from typing import Any

from airflow_custody.client.files import write_new_file
from airflow_custody.client.text import sanitize

#: Schemes, in lower case, of URLs that Airflow itself treats as files of this machine.
_LOCAL_SCHEMES = ("file", "local")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
#: Permanent failures.
_FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


class StorageError(Exception):
    """
    Raised for a file that cannot be read or written.

    :param name: the file's name, without secrets.
    :param why: the reason.
    :param retryable: whether the same call may succeed later. Default False.
    :param exists: whether the reason is an existing file. Default False.
    """

    def __init__(self, name: str, why: str, *, retryable: bool = False, exists: bool = False) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why
        self.retryable = retryable
        self.exists = exists


def split_location(location: str) -> tuple[str, str]:
    """
    Split a location into a local path and an object's URL.

    Either the path or the URL is empty.

    :param location: a path or a URL.
    :raises StorageError: if it is a URL that must not be used. The error does not quote a password or a signature.
    """
    scheme, is_url, rest = location.partition("://")
    scheme = scheme.lower()
    if not is_url:
        return location, ""
    if scheme in _LOCAL_SCHEMES:
        return rest, ""
    if not _SCHEME.fullmatch(scheme):
        # Airflow would remove white space from the scheme. It could then take the URL for a file:// URL, and follow
        # links out of the bundle.
        raise StorageError(f"{scheme}://", "the part before :// is not an object storage scheme, such as s3")
    _check_url(scheme, rest)
    return "", f"{scheme}://{rest}"


def _check_url(scheme: str, rest: str) -> None:
    """Refuse an object's URL with a password or a signature."""
    host, slash, key = rest.partition("?")[0].partition("/")
    user, _, host = host.rpartition("@")
    # Without a slash before it, a ? may be part of a password.
    shown = f"{scheme}://{host}/{key}" if slash else f"{scheme}://"
    if ":" in user:
        raise StorageError(shown, "the part before the @ must be an Airflow connection id, never a password")
    if "?" in rest:
        # The rest may be a signature, which gives access to the file.
        raise StorageError(shown, "give the plain URL without a ?, because its Airflow connection signs the request")


def read_object(url: str, size: int) -> bytes:
    """Return the first bytes of a file in an object storage."""
    try:
        with _object_path(url).open("rb") as file:
            data: bytes = file.read(size)
    except Exception as error:
        raise _storage_error(url, error) from None
    return data


def write_location(path: str, url: str, data: bytes) -> None:
    """
    Write a new file, complete or not at all.

    An existing file is never replaced.

    In an object storage, another writer may create the same file between the check and the write. The write then fails
    only if the storage supports conditional writes.

    :param path: the file's path on this machine; empty: it is an object.
    :param url: the object's URL, if the path is empty.
    :param data: the file's content.
    :raises StorageError: if the file already exists, or cannot be written.
    """
    try:
        if path:
            write_new_file(path, data)
        else:
            _write_object(url, data)
    except Exception as error:
        raise _storage_error(path or url, error) from None


def _write_object(url: str, data: bytes) -> None:
    path = _object_path(url)
    if path.exists():
        raise FileExistsError
    # Use one call, because an opened file would be stored in part if writing failed.
    path.fs.pipe_file(path.path, data, mode="create")


def _object_path(url: str) -> Any:
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    return ObjectStoragePath(url)


def _storage_error(name: str, error: Exception) -> StorageError:
    """
    Return the error for a failure.

    Each storage raises errors of its own.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    exists = isinstance(error, FileExistsError)
    if isinstance(error, FileNotFoundError):
        why = "there is no such file or folder"
    elif exists:
        why = "it already exists, and is never replaced"
    elif "://" not in name and isinstance(error, OSError):
        # Name the requested file, because the error itself names a temporary file.
        why = error.strerror or type(error).__name__
    else:
        why = f"{type(error).__name__}: {sanitize(error, 500)}"
    final = (*_FINAL, ValueError, ImportError, AirflowNotFoundException)
    return StorageError(name, why, retryable=not isinstance(error, final), exists=exists)
