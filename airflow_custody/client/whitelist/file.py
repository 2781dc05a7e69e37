"""
Whitelist files: the destination addresses that should be at the service, in YAML, JSON or CSV.

All that is wrong with a file is found at once, with the line or the row, and then nothing of it is used.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.file_csv import SEPARATOR, read_csv
from airflow_custody.client.whitelist.file_json import read_json
from airflow_custody.client.whitelist.file_rows import FileRow, Rows, TooManyFaults, WhitelistFile, file_error
from airflow_custody.client.whitelist.file_schema import whitelist_schema
from airflow_custody.client.whitelist.file_yaml import dump_whitelist, read_yaml

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
# UTF-32 first: its mark begins like that of UTF-16.
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_UTF8_MARK = b"\xef\xbb\xbf"
_MARK_FAULT = (
    'the file begins with a byte order mark (BOM): save it as UTF-8 without one. Excel\'s "CSV UTF-8" always writes '
    "one: save the file with another program, or remove its first three bytes"
)
# What YAML does not allow or takes for a line's end, and a byte order mark in the middle.
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def read_whitelist_file(path: str | os.PathLike[str], *, check_addresses: bool = True) -> WhitelistFile:
    """
    Read a whitelist file.

    :param path: its path; it ends in ``.yaml``, ``.yml``, ``.json`` or ``.csv``.
    :param check_addresses: whether each address is checked against the rules of its chain. Default True. Without the
        extra ``addresses`` nothing is checked.
    :return: its rows, at least one.
    :raises WhitelistFileError: if it cannot be read, or anything in it is wrong; it lists all faults.
    """
    try:
        name = os.fsdecode(path)
    except TypeError:
        raise file_error("", [f"the path must be text, not {sanitize(type(path).__name__, 40)}"]) from None
    format = _SUFFIXES.get(os.path.splitext(name)[1].lower())
    if format is None:
        raise file_error(name, [f"the file's name must end in {', '.join(_SUFFIXES)}"])
    try:
        data = _read(name)
    except (OSError, ValueError) as error:
        raise file_error(name, [f"{sanitize(os.path.abspath(name), 1000)}: {_reason(error)}"]) from None
    return parse_whitelist(data, format, name=name, check_addresses=check_addresses)


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
    rows = Rows(
        check_addresses=check_addresses,
        unit="row" if format == "json" else "line",
        separate_ids=f"separate ids with {SEPARATOR!r}" if format == "csv" else "write each id as an entry of its own",
    )
    more: tuple[str, ...] = ()
    try:
        text = _decode(data, rows)
        if text is not None:
            _READERS[format](text, rows)
    except TooManyFaults:
        more = ("there are more faults; the rest of the file was not read",)
    if faults := rows.faults:
        raise file_error(name, faults + more)
    digest = hashlib.sha256(data).hexdigest()
    return WhitelistFile(tuple(rows.rows), name, digest, rows.unchecked, rows.unchecked_chains)


def _read(path: str) -> bytes:
    # Opening a pipe would wait for whoever writes to it.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError
        if not stat.S_ISREG(mode):
            raise ValueError("it is not a regular file")
        return file.read(MAX_FILE_BYTES + 1)


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a directory"
    if isinstance(error, PermissionError):
        return "it may not be read by this user"
    return sanitize(getattr(error, "strerror", None) or error)


def _decode(data: bytes, rows: Rows) -> str | None:
    """Return the text, as far as it is one; what is wrong with its characters is noted."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            rows.fault(0, f"the file is {encoding}: save it as UTF-8, without a byte order mark")
            return None
    if b"\0" in data[:4]:
        rows.fault(0, "the file is UTF-16, UTF-32 or no text: save it as UTF-8")
        return None
    if data.startswith(_UTF8_MARK):
        rows.fault(0, _MARK_FAULT)
        data = data[len(_UTF8_MARK) :]
    try:
        text = data.decode()
    except UnicodeDecodeError:
        for place, fault in _bad_bytes(data):
            rows.fault_at(place, fault)
        text = data.decode(errors="replace")
    if _NOT_TEXT.search(text):
        for place, line in enumerate(text.split("\n"), 1):
            if found := _NOT_TEXT.search(line):
                text_fault = f"U+{ord(found[0]):04X} is a control or invisible character: remove it"
                rows.fault_at(place, text_fault, found.start() + 1)
        text = _NOT_TEXT.sub("\ufffd", text)
    return text


def _bad_bytes(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield each line with bytes that are not UTF-8, and its first such byte."""
    for place, line in enumerate(data.split(b"\n"), 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            yield place, f"byte {error.start + 1} is 0x{line[error.start]:02X}, not UTF-8: save the file as UTF-8"
