"""
Whitelist files: the destination addresses that should be at the service, in YAML, JSON or CSV.

All faults of a file are found at once, with the line or the row. A file with a fault is not used at all.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from airflow_custody.client.garbage import no_collection
from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.file_formats import read_csv, read_json, read_yaml
from airflow_custody.client.whitelist.file_rows import FileRow, Rows, WhitelistFile, file_error
from airflow_custody.client.whitelist.file_schema import whitelist_schema
from airflow_custody.client.whitelist.file_writing import dump_whitelist

__all__ = [
    "FORMATS",
    "MAX_FILE_BYTES",
    "FileRow",
    "WhitelistFile",
    "dump_whitelist",
    "parse_whitelist",
    "read_whitelist_file",
    "whitelist_schema",
]

#: Maximum size of a file in bytes.
MAX_FILE_BYTES = 64 * 1024 * 1024
#: The formats of a file.
FORMATS = ("yaml", "json", "csv")

_READERS = {"yaml": read_yaml, "json": read_json, "csv": read_csv}
_SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".csv": "csv"}
_UTF8_MARK = b"\xef\xbb\xbf"
_MARK_FAULT = (
    'the file begins with a byte order mark (BOM): save it as UTF-8 without one. Excel\'s "CSV UTF-8" always writes '
    "one: save the file with another program, or remove its first three bytes"
)
# What YAML does not allow or takes for a line's end (as CSV does a carriage return alone), a byte order mark in the
# middle, and bytes that are not UTF-8.
_NOT_TEXT = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|\r(?!\n|\\Z)"
)


def read_whitelist_file(path: str | os.PathLike[str], *, check_addresses: bool = True) -> WhitelistFile:
    """
    Read a whitelist file.

    :param path: its path; it ends in ``.yaml``, ``.yml``, ``.json`` or ``.csv``.
    :param check_addresses: whether each address is checked against the rules of its chain. Default True. Without the
        extra ``addresses`` nothing is checked.
    :return: its rows, at least one.
    :raises WhitelistFileError: if it cannot be read, or anything in it is wrong; it lists all faults.
    """
    name = os.fsdecode(path)
    format = _SUFFIXES.get(os.path.splitext(name)[1].lower())
    if format is None:
        raise file_error(name, [f"the file's name must end in {', '.join(_SUFFIXES)}"])
    try:
        data = _read(Path(name))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else reason
        raise file_error(name, [f"{sanitize(os.path.abspath(name), 1000)}: {sanitize(reason)}"]) from None
    return parse_whitelist(data, format, name=name, check_addresses=check_addresses)


@no_collection()
def parse_whitelist(data: bytes, format: str, *, name: str = "", check_addresses: bool = True) -> WhitelistFile:
    """
    Read the bytes of a whitelist file.

    :param data: the bytes.
    :param format: one of :data:`FORMATS`.
    :param name: the file's name, for messages.
    :param check_addresses: as for :func:`read_whitelist_file`.
    :return: its rows, at least one.
    :raises WhitelistFileError: if anything is wrong; it lists all faults.
    """
    if format not in _READERS:
        raise file_error(name, [f"the format must be one of {', '.join(FORMATS)}, not {sanitize(format, 40)!r}"])
    if len(data) > MAX_FILE_BYTES:
        raise file_error(name, [f"the file is larger than {MAX_FILE_BYTES} bytes: split it"])
    rows = Rows(check_addresses=check_addresses, unit="row" if format == "json" else "line")
    text = _decode(data, rows)
    root = None if rows.faults else _READERS[format](text, rows)
    if root is not None:
        rows.read(root)
    elif not rows.faults:
        rows.no_rows()
    if faults := rows.faults:
        raise file_error(name, faults)
    digest = hashlib.sha256(data).hexdigest()
    return WhitelistFile(tuple(rows.rows), name, digest, rows.unchecked, tuple(rows.unchecked_chains.values()))


def _read(path: Path) -> bytes:
    # Opening a pipe would wait for its writer.
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def _decode(data: bytes, rows: Rows) -> str:
    """Return the text; note each line that is not text."""
    if data.startswith(_UTF8_MARK):
        rows.fault(0, _MARK_FAULT)
    text = data.removeprefix(_UTF8_MARK).decode(errors="surrogateescape")
    for place, line in enumerate(text.split("\n") if _NOT_TEXT.search(text) else (), 1):
        if found := _NOT_TEXT.search(line):
            code = ord(found[0])
            what = f"the byte 0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}"
            rows.fault_at(place, f"{what} is not text: remove it, or save the file as UTF-8", found.start() + 1)
    return text
