"""
Read whitelist files (YAML, JSON or CSV), or rows without a file.

A whitelist file contains the destination addresses that should be whitelisted at the service. All faults of a file, up
to 500, are reported together, each with its line or row. If a file has a fault, none of its rows is used.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from airflow_custody.client.arguments import describe, is_missing
from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.files import read_start
from airflow_custody.client.text import ascii_lower, count, name_some, sanitize
from airflow_custody.client.whitelist.addresses import checks
from airflow_custody.client.whitelist.addresses.destinations import Destinations, destination_of
from airflow_custody.client.whitelist.files.formats import (
    FIELDS,
    IDS,
    MAX_FAULTS,
    MAX_VALUE,
    NOT_DEFAULTS,
    VERSION,
    Faults,
    Fields,
    Items,
    Misread,
    TooManyFaultsError,
    as_meant,
    read_csv,
    read_json,
    read_yaml,
)
from airflow_custody.client.whitelist.ids import fetch_items
from airflow_custody.client.whitelist.models import (
    LISTS,
    FieldFault,
    FileRow,
    WhitelistRequest,
    request_from_fields,
)

#: Maximum size of a file in bytes, enough for about 50,000 rows. Reading a file of very short rows takes up to 200
#: times its size in memory.
MAX_FILE_BYTES = 8 * 1024 * 1024

_READERS = {"yaml": read_yaml, "json": read_json, "csv": read_csv}
_SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".csv": "csv"}
_UTF8_MARK = b"\xef\xbb\xbf"
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What a file must not contain: characters that YAML does not allow or reads as line ends, a carriage return alone (a
# line end in CSV), a byte order mark in the middle, the replacement character, and bytes that are not UTF-8.
_NOT_TEXT = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffc\U00010000-\U0010ffff]|\r(?!\n|\\Z)"
)
#: Maximum number of faults in the text of an error.
MAX_SHOWN = 20
# The keys of a file. ``$schema`` tells editors where the schema is.
_TOP = ("$schema", "version", "defaults", "addresses")
_CHAIN = ("blockchain", "currency")
# Fields that must be ASCII, because they are compared character by character.
_ASCII = (*_CHAIN, "network", "address")


@dataclass(frozen=True)
class WhitelistFile:
    """
    A whitelist file without faults, or rows that were read without a file.

    :param rows: its rows, in the file's order; at least one.
    :param name: its name as given, for messages.
    :param sha256: SHA-256 of the file's bytes, in hexadecimal. For rows without a file, SHA-256 of the requested
        contents as JSON with sorted keys.
    :param unchecked: number of rows whose address could not be checked; 0 if checking was turned off. Default 0.
    :param unchecked_chains: the chains of the unchecked rows, each once. Default: none.
    """

    rows: tuple[FileRow, ...]
    name: str
    sha256: str
    unchecked: int = 0
    unchecked_chains: tuple[str, ...] = ()

    @property
    def unchecked_text(self) -> str:
        """A notice about unchecked addresses; empty if there are none."""
        if not self.unchecked:
            return ""
        chains = name_some(self.unchecked_chains, 40)
        return f"addresses: {self.unchecked} of {len(self.rows)} could not be checked ({chains})"


def read_whitelist_file(path: str | os.PathLike[str], *, check_addresses: bool = True) -> WhitelistFile:
    """
    Read a whitelist file.

    :param path: the file's path, which ends in ``.yaml``, ``.yml``, ``.json`` or ``.csv``.
    :param check_addresses: whether to check each address against the rules of its chain. Default True.
    :return: the file, with at least one row.
    :raises WhitelistFileError: if the file cannot be read or has faults; the error lists up to 500 faults.
    """
    name = os.fsdecode(path)
    format = format_of(name)
    try:
        data = read_start(name, MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise file_error(name, [f"{sanitize(os.path.abspath(name), 1000)}: {sanitize(reason)}"]) from None
    return parse_whitelist(data, format, name=name, check_addresses=check_addresses)


def format_of(name: str) -> str:
    """
    Return ``yaml``, ``json`` or ``csv``, according to the file's name.

    :raises WhitelistFileError: if the name has another suffix.
    """
    format = _SUFFIXES.get(os.path.splitext(name)[1].lower())
    if format is None:
        raise file_error(name, [f"the file's name must end in {', '.join(_SUFFIXES)}"])
    return format


def read_whitelist_rows(
    rows: object, *, name: str = "rows", check_addresses: bool = True, omit_if_none: Collection[str] = ()
) -> WhitelistFile:
    """
    Read the rows of a whitelist without a file.

    Rows are checked as strictly as the rows of a JSON file.

    :param rows: list of dictionaries with the same keys as a row of a file; or the same as JSON text.
    :param name: name of the rows, for messages. Default ``rows``.
    :param check_addresses: whether to check each address against the rules of its chain. Default True.
    :param omit_if_none: names of optional fields. If such a field is None in a row, or is None rendered by a template,
        it is left out. For all other fields, None is a fault. Default: no names.
    :return: the rows, at least one; their places are ``row 1``, ``row 2``, counted from 1.
    :raises WhitelistFileError: if the rows have faults; the error lists up to 500 faults.
    """
    found = Rows(check_addresses=check_addresses, unit="row")
    items = read_json(rows, found) if isinstance(rows, str) else rows
    if found.faults:
        how = "pass rows=upstream.output, or end the template with '| tojson'"
        raise file_error(name, [f"{each}: {how}" for each in found.faults])
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes, bytearray)):
        kind = "a mapping" if isinstance(items, Mapping) else describe(rows)
        raise file_error(name, [f"must be a list of rows, not {kind}"])
    items = fetch_items(items)
    if not items:
        found.fault(0, "there are no rows. An empty list is refused, because its rows may have been lost")
    with suppress(TooManyFaultsError):
        for place, item in enumerate(items, 1):
            _add_row(found, item, place, omit_if_none, is_read=isinstance(rows, str))
    asked = [each.request.model_dump(exclude_none=True) for each in found.rows]
    return found.result(name, json.dumps(asked, sort_keys=True).encode())


def _add_row(found: Rows, item: object, place: int, omit_if_none: Collection[str], *, is_read: bool) -> None:
    """Add a row or its faults. ``is_read`` tells whether the row was already read from JSON."""
    try:
        row = item if is_read else read_json(json.dumps(item), found)
    except (TypeError, ValueError, RecursionError) as error:
        found.fault(
            place,
            f"a row must contain only texts, whole numbers, and lists of texts or whole numbers: {sanitize(error)}",
        )
        return
    if isinstance(row, Fields):
        for field, value in [*row.items()]:
            if is_missing(value) and field in omit_if_none:
                del row[field]
            else:
                row[field] = _taken(field, value)
    found.add(row, place)


def _taken(field: str, value: Any) -> Any:
    """Return a row's value, in which a :class:`Misread` replaces None and garbled text."""
    if isinstance(value, list):
        return [None if is_missing(each) else _as_meant(field, each) for each in value]
    if is_missing(value):
        advice = "" if field in NOT_DEFAULTS else f": leave it out, or write omit_if_none=({field!r},)"
        return Misread(f"is None{advice}")
    return _as_meant(field, value)


def _as_meant(field: str, value: Any) -> Any:
    return as_meant(field, value, "correct it in its source") if isinstance(value, str) else value


def parse_whitelist(data: bytes, format: str, *, name: str = "", check_addresses: bool = True) -> WhitelistFile:
    """
    Read the bytes of a whitelist file.

    :param data: the bytes.
    :param format: ``yaml``, ``json`` or ``csv``.
    :param name: the file's name, for messages. Default empty.
    :param check_addresses: whether to check each address against the rules of its chain. Default True.
    :return: the file, with at least one row.
    :raises WhitelistFileError: if the file has faults; the error lists up to 500 faults.
    """
    if len(data) > MAX_FILE_BYTES:
        raise file_error(name, [f"the file is larger than {MAX_FILE_BYTES} bytes: split it"])
    rows = Rows(check_addresses=check_addresses, unit="row" if format == "json" else "line")
    with suppress(TooManyFaultsError):
        _read(data, format, rows)
    return rows.result(name, data)


def _read(data: bytes, format: str, rows: Rows) -> None:
    text = _decode(data, rows)
    root = None if rows.faults else _READERS[format](text, rows)
    if root is not None:
        rows.read(root)
    elif not rows.faults:
        rows.no_rows()


def _decode(data: bytes, rows: Rows) -> str:
    """
    Decode a file, and add a fault for each line with bytes or characters that are not text.

    A byte order mark at the beginning is removed.
    """
    if data.startswith(_OTHER_MARKS) or b"\0" in data[:2]:
        rows.fault(0, "the file is in UTF-16 (Excel's 'Unicode Text') or UTF-32: save it as UTF-8")
        return ""
    text = data.removeprefix(_UTF8_MARK).decode(errors="surrogateescape")
    # Count lines as YAML and CSV do.
    for place, line in enumerate(io.StringIO(text, newline="\n") if _NOT_TEXT.search(text) else (), 1):
        if found := _NOT_TEXT.search(line):
            code = ord(found[0])
            what = f"the byte 0x{code - 0xDC00:02X}" if 0xDC80 <= code <= 0xDCFF else f"U+{code:04X}"
            rows.fault_at(place, f"{what} is not text: save the file as UTF-8, or correct it", found.start() + 1)
    return text


def count_faults(faults: Sequence[str]) -> str:
    """
    Return the number of a file's faults as text, such as "5 faults".

    If reading stopped early, the text says that there may be more.
    """
    more = " (reading stopped: there may be more)" if len(faults) >= MAX_FAULTS else ""
    return count(len(faults), "fault") + more


def file_error(name: str, faults: Iterable[str], *, retryable: bool = False) -> WhitelistFileError:
    """
    Return the error that lists the faults of a file.

    :param name: the file's name.
    :param faults: all faults, in the file's order.
    :param retryable: whether reading it again may help. Default False.
    """
    faults = tuple(faults)
    start = f"{sanitize(name, 200) or 'the whitelist file'}: {count_faults(faults)}; nothing is sent"
    # Put the first fault into the first line, because some programs display only the first line of an error.
    lines = [f"{start}: {faults[0]}", *faults[1:MAX_SHOWN]]
    if len(faults) > MAX_SHOWN:
        lines.append(f"... and {len(faults) - MAX_SHOWN} more")
    return WhitelistFileError("\n".join(lines), faults=faults, retryable=retryable)


# --- rows ---------------------------------------------------------------------------------------------------


class Rows(Faults):
    """
    A collector of the rows and the faults of a file.

    :param check_addresses: whether to check each address against the rules of its chain.
    :param unit: the unit in which places are counted: ``line`` or ``row``.
    """

    def __init__(self, *, check_addresses: bool, unit: str) -> None:
        super().__init__(unit)
        self.rows: list[FileRow] = []
        #: Number of addresses that could not be checked.
        self.unchecked = 0
        #: The chains of the unchecked addresses, keyed by their names in lower case.
        self.unchecked_chains: dict[str, str] = {}
        self._check_addresses = check_addresses
        self._destinations: Destinations[int] = Destinations()
        self._defaults: dict[str, Any] = {}
        # Whether all keys of the defaults are known. If not, a field that seems to be missing may have a misspelled
        # key.
        self._are_defaults_known = True

    # --- the file ---

    def read(self, root: Any) -> None:
        """
        Add the contents of a file.

        :param root: the result of the file's reader.
        """
        if not isinstance(root, Fields):
            text = f"the file must be a mapping with the keys version and addresses, not {_kind(root)}"
            self.fault(0, text)
            return
        # Report a missing key only if all other keys are known, because an unknown key may be the missing one,
        # misspelled.
        all_known = self.check_keys(root, _TOP, 0)
        if "version" in root or all_known:
            self._check_version(root)
        schema = root.get("$schema", "")
        if not isinstance(schema, str):
            self.fault(root.lines["$schema"], f"must be text, not {_kind(schema)}", "$schema")
        if "defaults" in root:
            self._set_defaults(root["defaults"], root.lines["defaults"])
        if "addresses" in root or all_known:
            self._add_rows(root.get("addresses"), root.lines.get("addresses", 0))

    def _check_version(self, root: Fields) -> None:
        version = root.get("version")
        if type(version) is not int or version != VERSION:
            what = f"is {_kind(version)}" if "version" in root else "is missing"
            self.fault(root.lines.get("version", 0), f"{what}: it must be the number {VERSION}", "version")

    def _add_rows(self, addresses: Any, line: int) -> None:
        if addresses is None or addresses == []:
            self.no_rows(line)
        elif not isinstance(addresses, list):
            self.fault(line, f"must be a list of rows, not {_kind(addresses)}", "addresses")
        else:
            places = addresses.lines if isinstance(addresses, Items) else range(1, len(addresses) + 1)
            for place, item in zip(places, addresses, strict=True):
                self.add(item, place)

    def result(self, name: str, data: bytes) -> WhitelistFile:
        """
        Return the file.

        :param name: its name.
        :param data: the bytes for its SHA-256.
        :raises WhitelistFileError: if it has faults.
        """
        if faults := self.faults:
            raise file_error(name, faults)
        digest = hashlib.sha256(data).hexdigest()
        return WhitelistFile(tuple(self.rows), name, digest, self.unchecked, tuple(self.unchecked_chains.values()))

    def no_rows(self, place: int = 0) -> None:
        """Add the fault of a file without rows."""
        self.fault(place, "there are no addresses. An empty file is refused, because it may have been cut off")

    def _set_defaults(self, fields: Any, place: int) -> None:
        """Set the default fields of all rows, and check them once."""
        if not isinstance(fields, Fields):
            self.fault(place, f"must be a mapping of fields, not {_kind(fields)}", "defaults")
            return
        prefix = "" if place else "defaults: "
        self._are_defaults_known = self.check_keys(fields, FIELDS, place, prefix)
        for name in NOT_DEFAULTS:
            if name in fields:
                self.fault(fields.lines[name], f"{prefix}{name}: cannot have a default: give it in each row")
        self._defaults = {name: fields[name] for name in fields if name in FIELDS and name not in NOT_DEFAULTS}
        _, faults = _check_fields({**self._defaults, **dict.fromkeys(NOT_DEFAULTS, "x")})
        for name, text, _ in faults:
            base = name.partition("[")[0]
            if base or any(each in self._defaults for each in _CHAIN):
                self.fault(fields.lines.get(base) or place, text, f"{prefix}{name}")

    def add(self, fields: Any, place: int) -> None:
        """
        Add a row, or all of its faults.

        :param fields: the row's fields.
        :param place: the row's line, or its number in a file whose lines are not known.
        """
        if isinstance(fields, Misread):
            self.fault(place, fields.fault)
            return
        if not isinstance(fields, Fields):
            self.fault(place, f"a row must be a mapping of fields, not {_kind(fields)}")
            return
        all_known = self.check_keys(fields, FIELDS, place) and self._are_defaults_known
        values = {**self._defaults, **{name: value for name, value in fields.items() if name in FIELDS}}
        request, faults = _check_fields(values)
        self._note_row_faults(faults, fields, place, all_known=all_known)
        if not all_known:
            return
        line = fields.lines.get("address") or place
        if {each.name for each in faults}.isdisjoint(("", *_ASCII)):
            self._check_address(line, values)
        if request is not None:
            first = self._destinations.add(destination_of(request), line)
            if first is not None:
                self.fault(line, f"the same destination as in {self._unit} {first}: remove one of the two", "address")
            self.rows.append(FileRow(request, f"{self._unit} {place}"))

    def _note_row_faults(self, faults: Iterable[FieldFault], fields: Fields, place: int, *, all_known: bool) -> None:
        """
        Add the faults of a row, except those of the defaults, which were already added once for the whole file.
        """
        for name, text, _ in faults:
            base = name.partition("[")[0]
            if base in fields or (all_known and base not in self._defaults):
                self.fault(fields.lines.get(base) or place, text, name)

    def _check_address(self, place: int, values: Mapping[str, Any]) -> None:
        """Check the address of a row. Its chain, network and address must have no other fault."""
        if not self._check_addresses:
            return
        address, chain = values["address"], values.get("blockchain") or values["currency"]
        check = checks.check_address(address, chain, values.get("network"))
        if check.verdict == "invalid":
            kind = f"{sanitize(chain, 40)} address: {sanitize(check.reason)}"
            self.fault(place, f"{sanitize(address, MAX_VALUE)!r} is not a valid {kind}", "address")
        elif check.verdict == "unchecked":
            self.unchecked += 1
            self.unchecked_chains.setdefault(ascii_lower(chain), chain)


# --- fields ------------------------------------------------------------------------------------------------


def _check_fields(values: Mapping[str, Any]) -> tuple[WhitelistRequest | None, list[FieldFault]]:
    """
    Return the request with these fields, and its faults.

    The request is None if there are faults. At most :data:`MAX_FAULTS` faults of values are returned.
    """
    every = (fault for name, value in values.items() for fault in _field_faults(name, value))
    faults = list(islice(every, MAX_FAULTS))
    reported = {each.name for each in faults}
    request, others = request_from_fields(values)
    for name, text, _ in others:
        if name not in reported and (name or reported.isdisjoint(_CHAIN)):
            faults.append(FieldFault(name, text))
    return None if faults else request, faults


def _field_faults(name: str, value: Any) -> Iterator[FieldFault]:
    """
    Yield the faults by which files are stricter than a request: for example, numbers must be quoted.
    """
    if name not in LISTS or not isinstance(value, list):
        if fault := _value_fault(name, value):
            yield FieldFault(name, fault)
        return
    for index, each in enumerate(value):
        if fault := _value_fault(name, each):
            yield FieldFault(f"{name}[{index}]", fault)


def _value_fault(name: str, value: Any) -> str:
    """Return the fault of a value; empty if it has none."""
    if isinstance(value, str):
        return _text_fault(name, value)
    if value is None:
        return "has no value: leave the field out"
    if isinstance(value, Misread):
        return value.fault
    if isinstance(value, (Fields, list)):
        return f"must not be {_kind(value)}"
    if isinstance(value, bool) or (isinstance(value, int) and name not in IDS):
        source = json.dumps(value)
        return f'{source} is {"a boolean" if isinstance(value, bool) else "a number"}: quote it, as in "{source}"'
    return ""


def _text_fault(name: str, value: str) -> str:
    if value != value.strip() and value.strip():
        return "begins or ends with white space: remove it"
    if name in LISTS and re.search(r"[\s,;.]", value):
        return f"{_kind(value)} is not a single id: ids have no comma, semicolon, point or white space"
    if name in _ASCII and not value.isascii():
        letter = next(each for each in value if not each.isascii())
        what = f"U+{ord(letter):04X} {unicodedata.name(letter, '')}"
        return f"contains {what}, which may look like another character: only ASCII characters are allowed"
    return ""


def _kind(value: Any) -> str:
    if isinstance(value, (Fields, list)):
        return "a mapping" if isinstance(value, Fields) else "a list"
    if isinstance(value, Misread):
        return "another value"
    return "an empty value" if value is None else sanitize(repr(value), MAX_VALUE)
