"""Writing of new files: completely or not at all, and never over an existing one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_new(path: Path, text: str, mode: int = 0o666) -> None:
    """
    Write a file that does not exist yet.

    The file holds all of the text or does not exist: a write that fails halfway, as on a full disk, leaves nothing.

    :param path: the file.
    :param text: its text.
    :param mode: permission bits, before the process's umask applies. Default 0o666.
    :raises FileExistsError: if the path exists, even as a dangling link.
    :raises OSError: if it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, flags, mode), "wb") as file:
            file.write(text.encode())
        # Claim the name first, so that nobody else's file is replaced. Not every file system has hard links.
        os.close(os.open(path, flags, mode))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
