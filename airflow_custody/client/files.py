"""
Read and write files whose path is a setting or an argument.

Only regular files of a limited size are read. Existing files are never overwritten.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress

#: Maximum size in bytes of a file that a setting names: a key, a certificate, or a bundle of them.
MAX_SETTING_BYTES = 1024 * 1024
# Errors of creating a hard link on a file system without hard links, such as a mounted bucket.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class UnsuitableFileError(OSError):
    """
    Raised for a file that is too large or not regular. ``why`` and ``strerror`` give the reason.
    """

    def __init__(self, why: str) -> None:
        super().__init__(errno.EINVAL, why)
        self.why = why


def read_file(path: str | os.PathLike[str], limit: int = MAX_SETTING_BYTES) -> bytes:
    """
    Return the content of a regular file.

    :param path: the file's path.
    :param limit: maximum size in bytes; a multiple of 1 MiB. Default 1 MiB.
    :raises OSError: if the file cannot be read, is not a regular file, or is larger than the limit.
    """
    data = read_start(path, limit + 1)
    if len(data) > limit:
        raise UnsuitableFileError(f"it is larger than {limit // 2**20} MiB")
    return data


def read_start(path: str | os.PathLike[str], size: int) -> bytes:
    """
    Return the first bytes of a regular file.

    :param path: the file's path.
    :param size: maximum number of bytes.
    :raises OSError: if the file cannot be read, or is not a regular file.
    """
    # Check the kind of file before opening it, because opening a device may have an effect. The opener checks it again,
    # because the path may lead to another file by then.
    _check_kind(os.stat(path).st_mode)
    with open(path, "rb", opener=_open_without_waiting) as file:
        data: bytes | None = file.read(size)
    if data is None:
        # Reading without waiting returns None for a special file that has no data yet.
        raise UnsuitableFileError("it is not a regular file")
    return data


def write_new_file(path: str | os.PathLike[str], data: bytes) -> None:
    """
    Write a new file, either completely or not at all.

    The file only gets its name when its content is complete. If the process is killed before that, a temporary file
    named ``.custody-....part`` may remain in the same folder. On a file system without hard links, a partial file may
    remain under the final name.

    :param path: the file's path. Its folder must exist.
    :param data: the file's content.
    :raises FileExistsError: if the path exists, even as a link. The existing file is not replaced.
    :raises OSError: if the file cannot be written.
    """
    temporary = os.path.join(os.path.dirname(path), f".custody-{secrets.token_hex(8)}.part")
    _write(temporary, data)
    try:
        # Link the file to its name instead of renaming it, because renaming would replace an existing file.
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _write(path, data)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a new file; a failure leaves no file."""
    with open(path, "xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(path)
            raise


def _open_without_waiting(path: str, flags: int) -> int:
    # Open without waiting, because opening a pipe would otherwise wait for its other end.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_kind(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_kind(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise UnsuitableFileError("it is not a regular file")
