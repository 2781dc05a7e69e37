"""The rows of a whitelist file: from values as they were read to requests, or to all that is wrong with them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from airflow_custody.client.errors import WhitelistFileError
from airflow_custody.client.text import ascii_lower, count, is_decimal, sanitize
from airflow_custody.client.whitelist.file_schema import FIELDS, ID_PATTERN, NOT_DEFAULTS
from airflow_custody.client.whitelist.models import TEMPLATE_HINT, FieldFault, WhitelistRequest, read_request
from airflow_custody.client.whitelist.spelling import Destinations

#: Maximum number of faults that the text of an error shows.
MAX_SHOWN = 20
#: Maximum number of faults; the rest of a file that has more is not read.
MAX_FAULTS = 1_000_000
#: How much of a value a fault shows.
MAX_VALUE = 100
#: Maximum number of chains that a message names.
MAX_CHAINS = 5
_CHAIN = ("blockchain", "currency")
_LINKS = ("linked_internal_address_ids", "linked_wallet_ids")
_ID = re.compile(ID_PATTERN)
# Compared and shown letter by letter: none of them has others than those of ASCII.
_ASCII = (*_CHAIN, "network", "address")
# Letters of other scripts that look like those of ASCII.
_LOOK_ALIKES = str.maketrans(
    "АВСЕНІЈКМОРЅТХУасеіјорѕхуһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧανογι", "ABCEHIJKMOPSTXYaceijopsxyhdqwABEZHIKMNOPTYXavoyi"
)


@dataclass(frozen=True)
class FileRow:
    """
    One row of a whitelist file.

    :param request: what it asks for, with the file's defaults.
    :param where: its place: ``line 12``, or ``row 3`` of a JSON file, counted from 1.
    """

    request: WhitelistRequest
    where: str


@dataclass(frozen=True)
class WhitelistFile:
    """
    A whitelist file that was read: everything in it is in order.

    :param rows: its rows, in its order; at least one.
    :param name: its name as given, for messages.
    :param sha256: SHA-256 of its bytes, in hex.
    :param unchecked: number of rows whose address could not be checked: all without the extra ``addresses``, and 0
        if addresses were not to be checked.
    :param unchecked_chains: the chains of these rows, each once.
    """

    rows: tuple[FileRow, ...]
    name: str
    sha256: str
    unchecked: int = 0
    unchecked_chains: tuple[str, ...] = ()

    @property
    def unchecked_text(self) -> str:
        """What to tell people of the addresses that could not be checked; empty if there are none."""
        from airflow_custody.client.whitelist.addresses import MISSING_LIBRARY, is_installed

        if not self.unchecked:
            return ""
        if not is_installed():
            return f"addresses were not checked: {MISSING_LIBRARY}"
        chains = [sanitize(each, 40) for each in self.unchecked_chains[:MAX_CHAINS]]
        chains += ["..."] if len(self.unchecked_chains) > MAX_CHAINS else []
        return f"addresses: {self.unchecked} of {len(self.rows)} could not be checked ({', '.join(chains)})"


@dataclass
class Fields:
    """
    The fields of one row, or of the defaults.

    :param values: the values by name.
    :param spoiled: names of the fields that have been reported already.
    :param lines: the line of each field; 0 where lines are not known.
    """

    values: dict[str, Any] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)
    lines: dict[str, int] = field(default_factory=dict)


class TooManyFaults(Exception):
    """Raised when a file has more than :data:`MAX_FAULTS`."""


class Rows:
    """
    Collects the rows of a file, and everything that is wrong with it.

    :param check_addresses: whether each address is checked against the rules of its chain.
    :param unit: what places are counted in: ``line`` or ``row``.
    :param separate_ids: how several ids are written, for messages.
    """

    def __init__(self, *, check_addresses: bool, unit: str, separate_ids: str) -> None:
        self.rows: list[FileRow] = []
        #: Number of addresses that could not be checked.
        self.unchecked = 0
        self._unchecked_chains: dict[str, str] = {}
        self._separate_ids = separate_ids
        self._check_addresses = check_addresses
        self._unit = unit
        self._faults: list[tuple[int, str]] = []
        self._destinations: Destinations[int] = Destinations()
        self._defaults = Fields()

    @property
    def faults(self) -> tuple[str, ...]:
        """All faults, in the file's order."""
        return tuple(text for _, text in sorted(self._faults, key=lambda each: each[0]))

    @property
    def unchecked_chains(self) -> tuple[str, ...]:
        """The chains of the addresses that could not be checked, each once."""
        return tuple(self._unchecked_chains.values())

    def where(self, place: int) -> str:
        """Return a place in words."""
        return f"{self._unit} {place}"

    def fault(self, place: int, text: str, name: str = "") -> None:
        """
        Note what is wrong.

        :param place: where: a line or a row; 0 if it is the whole file, or the text says where.
        :param text: what is wrong.
        :param name: the field that it is about.
        """
        self._note(place, ": ".join(filter(None, (self.where(place) if place else "", name, text))))

    def fault_at(self, line: int, text: str, column: int | None = None) -> None:
        """Note what is wrong with the text of the file, by its line, whatever places are counted in."""
        place = f"line {line}" if column is None else f"line {line}, column {column}"
        self._note(line if self._unit == "line" else 0, f"{place}: {text}")

    def _note(self, place: int, text: str) -> None:
        if len(self._faults) == MAX_FAULTS:
            raise TooManyFaults
        self._faults.append((place, text))

    def no_rows(self, place: int = 0) -> None:
        """Note that the file has no rows."""
        self.fault(place, "there are no addresses; such a file is refused, as it may be one that was cut off")

    def set_defaults(self, fields: Fields, place: int) -> None:
        """
        Take the fields of every row that does not give its own, and check them once.

        :param fields: the fields.
        :param place: the line; 0 if lines are not known.
        """
        self._defaults = fields
        prefix = "" if place else "defaults: "
        for name in NOT_DEFAULTS:
            if name in fields.lines:
                text = f"{prefix}{name}: is of one address only: give it in the row"
                self.fault(fields.lines[name] or place, text)
                fields.spoiled.add(name)
        for name in fields.spoiled:
            fields.values.pop(name, None)
        _, faults = read_request({**fields.values, **dict.fromkeys(NOT_DEFAULTS, "x")})
        for name, text in (*faults, *self._joined_ids(fields.values, faults)):
            base = name.partition("[")[0]
            if base or any(each in fields.values for each in _CHAIN):
                self.fault(fields.lines.get(base) or place, prefix + ": ".join(filter(None, (name, _plain(text)))))
                fields.spoiled.update([base] if base else _CHAIN)
        fields.spoiled.difference_update(NOT_DEFAULTS)
        for name in fields.spoiled:
            fields.values.pop(name, None)

    def add(self, place: int, row: Fields) -> None:
        """
        Take a row, or note all that is wrong with it.

        :param place: the line or the number of the row.
        :param row: its own fields.
        """
        values = {**self._defaults.values, **row.values} if self._defaults.values else row.values
        spoiled = row.spoiled | self._defaults.spoiled.difference(row.values)
        for name in spoiled:
            values.pop(name, None)
        request, faults = read_request(values)
        faults += self._joined_ids(values, faults)
        for name, text in faults:
            base = name.partition("[")[0]
            if base not in spoiled and (base or spoiled.isdisjoint(_CHAIN)):
                self.fault(row.lines.get(base) or place, _plain(text), name)
        unusable = spoiled.union(name.partition("[")[0] for name, _ in faults)
        for name, text in _hidden_faults(values, unusable):
            self.fault(row.lines.get(name) or place, text, name)
            unusable.add(name)
        self._check_destination(row.lines.get("address") or place, values, unusable)
        if request is not None:
            self.rows.append(FileRow(request, self.where(place)))

    def _joined_ids(self, values: Mapping[str, Any], faults: Iterable[FieldFault]) -> list[FieldFault]:
        """Return a fault for each id in a list that is several, as far as it has no other."""
        found, reported = [], {name for name, _ in faults}
        for name in _LINKS:
            if not isinstance(ids := values.get(name), list):
                continue
            for index, each in enumerate(ids):
                place = f"{name}[{index}]"
                if isinstance(each, str) and not _ID.fullmatch(each) and place not in reported:
                    shown = sanitize(repr(each[:MAX_VALUE]), MAX_VALUE)
                    text = f"{shown} has a comma, a semicolon or white space in it: {self._separate_ids}"
                    found.append(FieldFault(place, text))
        return found

    def _check_destination(self, place: int, values: Mapping[str, Any], unusable: set[str]) -> None:
        """Check the address, and that no other row has it; as far as its fields are readable."""
        if not unusable.isdisjoint(("", "address", "network", *_CHAIN)):
            return
        address, network = values["address"], values.get("network")
        chain = values.get("blockchain") or values["currency"]
        if self._check_addresses:
            self._check_address(place, address, chain, network)
        if "memo" in unusable:
            return
        for first in self._destinations.add(chain, network, address, values.get("memo"), place):
            self.fault(place, f"the same destination as in {self.where(first)}: remove one of them", "address")

    def _check_address(self, place: int, address: str, chain: str, network: str | None) -> None:
        from airflow_custody.client.whitelist.addresses import check_address

        check = check_address(address, chain, network)
        if check.verdict == "invalid":
            kind = f"{sanitize(chain, 40)} address: {sanitize(check.reason)}"
            self.fault(place, f"{sanitize(address, MAX_VALUE)!r} is not a valid {kind}", "address")
        elif check.verdict == "unchecked":
            self.unchecked += 1
            self._unchecked_chains.setdefault(ascii_lower(chain), chain)


def _plain(text: str) -> str:
    return text.removesuffix(TEMPLATE_HINT)


def _hidden_faults(values: Mapping[str, Any], unusable: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a row and cannot be seen: letters that look like others, an id that comes twice."""
    for name in _ASCII:
        value = values.get(name)
        if name not in unusable and isinstance(value, str) and not value.isascii():
            index, letter = next(each for each in enumerate(value, 1) if not each[1].isascii())
            looks = unicodedata.normalize("NFKC", letter).translate(_LOOK_ALIKES)
            what = f"looks like {looks!r}, but is not" if looks.isascii() else "may look like another one, but is not"
            yield name, f"its character {index}, U+{ord(letter):04X} {unicodedata.name(letter, '')}, {what}"
    for name in _LINKS:
        if name not in unusable and isinstance(values.get(name), list):
            # 007 may be 7 to the service.
            ids = Counter(str(each).lstrip("0") if is_decimal(str(each)) else each for each in values[name])
            for each in (each for each, number in ids.items() if number > 1):
                yield name, f"{sanitize(each or 0, MAX_VALUE)} is there more than once: remove what is too much"


# --- names -------------------------------------------------------------------------------------------------

_ALIASES = {field.alias: name for name, field in WhitelistRequest.model_fields.items()}


@lru_cache(maxsize=1024)
def unknown_name(name: str, known: tuple[str, ...] = FIELDS) -> str:
    """
    Say that a name is unknown, and which one may be meant.

    :param name: the name.
    :param known: the names that are known.
    """
    folded = re.sub(r"[\s-]+", "_", ascii_lower(name[:MAX_VALUE].strip()))
    near = [alias] if (alias := _ALIASES.get(name)) in known else get_close_matches(folded, known, n=1)
    hint = f"do you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{sanitize(repr(name[:MAX_VALUE]), MAX_VALUE)} is unknown; {hint}"


# --- errors ------------------------------------------------------------------------------------------------


def file_error(name: str, faults: Iterable[str]) -> WhitelistFileError:
    """
    Return the error that shows what is wrong with a file.

    :param name: the file's name.
    :param faults: all that is wrong, in the file's order.
    """
    faults = tuple(faults)
    start = f"{sanitize(name, 200) or 'the whitelist file'}: {count(len(faults), 'fault')}; nothing was sent"
    # The first line is a whole message: some who show a text show no more of it.
    lines = [f"{start}: {faults[0]}", *faults[1:MAX_SHOWN]]
    if len(faults) > MAX_SHOWN:
        lines.append(f"... and {len(faults) - MAX_SHOWN} more")
    return WhitelistFileError("\n".join(lines), faults=faults, code="file-wrong")
