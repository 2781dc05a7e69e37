"""Files that the package writes: whole, and in the place of nothing."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_new(path: Path, text: str, mode: int = 0o666) -> None:
    """
    Write a file that is not there yet.

    It has all of the text, or is not there: what is cut off in the middle, as by a full disk, leaves nothing.

    :param path: the file.
    :param text: its text.
    :param mode: who may read and write it, less the process's umask. Default 0o666.
    :raises FileExistsError: if there is something, be it a link that leads nowhere.
    :raises OSError: if it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, flags, mode), "wb") as file:
            file.write(text.encode())
        # The name first, so that nobody else's file is replaced. Not every file system has hard links.
        os.close(os.open(path, flags, mode))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
