"""The settings that say what is trusted: how they are read and checked. What the keys are, the verification checks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime, timezone
from difflib import get_close_matches
from typing import Any

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.text import is_decimal, sanitize
from airflow_custody.client.verification.keys import BARE_BASE64, KeyTextError, is_bare_base64, read_public_keys

#: The settings of ``ClientSettings`` that say what is trusted.
PIN_SETTINGS = ("superadmin_keys", "superadmin_minimum", "networks", "allow_legacy_signatures", "rules_not_before")

# A part of a name that is shorter can be a part of another's.
_MIN_PART = 6
_MAX_NAMED = 10
# Characters of a file with public keys.
_MAX_KEYS_FILE = 1024 * 1024
# Characters: a private key is longer, in base64 too.
_MIN_KEY = 40
# 2009 and 2100 in Unix seconds: what is outside is a date without dashes, or milliseconds.
_EARLIEST, _LATEST = 1_230_768_000, 4_102_444_800


def check_keys(name: str, value: object) -> tuple[str, ...] | None:
    """Return the texts with public keys, read from a file if a path is given."""
    if value is None:
        return None
    texts = [value] if isinstance(value, (str, os.PathLike)) else value
    if (
        not isinstance(texts, (list, tuple))
        or not texts
        or not all(isinstance(each, (str, os.PathLike)) for each in texts)
    ):
        raise CustodyConfigurationError(
            f"'{name}' must be public keys in PEM, or the path of a file with them", setting=name, code="pins-wrong"
        )
    return tuple(_read_keys(name, os.fspath(each)) for each in texts)


def _read_keys(name: str, text: str) -> str:
    if _is_pem(text):
        return text
    found, why = None, ""
    try:
        with open(text, encoding="utf-8-sig") as file:
            found = file.read(_MAX_KEYS_FILE + 1)
    except UnicodeDecodeError:
        why = "it is not PEM, but binary: 'openssl pkey -pubin -inform DER -in FILE' prints PEM"
    except (OSError, ValueError) as exception:
        why = sanitize(getattr(exception, "strerror", None) or exception or type(exception).__name__, 120)
    if found is None and is_bare_base64(text):
        raise CustodyConfigurationError(f"'{name}' cannot be used: {BARE_BASE64}", setting=name, code="pins-wrong")
    shown = f"{sanitize(text, 200)}: " if _is_path(text) else ""
    if found is None:
        raise CustodyConfigurationError(
            f"'{name}' is neither a public key in PEM nor a file that can be read: {shown}{why}",
            setting=name,
            code="pins-wrong",
        )
    if fault := _fault_of(found):
        raise CustodyConfigurationError(f"'{name}' cannot be used: {shown}{fault}", setting=name, code="pins-wrong")
    return found


def _fault_of(text: str) -> str | None:
    """Say what is wrong with a file's text; None: it has public keys."""
    if len(text) > _MAX_KEYS_FILE:
        return f"larger than {_MAX_KEYS_FILE} characters"
    number = 1
    try:
        for _ in read_public_keys(text):
            number += 1
    except KeyTextError as error:
        return f"key {number}: {error}" if number > 1 else str(error)
    return None


def _is_path(text: str) -> bool:
    """Tell whether a text can be shown: it may be a key without its first line, a private one if they were mixed up."""
    return "." in text or len(text) < _MIN_KEY or os.path.exists(text)


def refuse_relative(value: object) -> None:
    """
    Refuse the relative path of a file with public keys: which file it is depends on where the process was started.

    :param value: the setting's value, of any type.
    :raises CustodyConfigurationError: if it is, or has, such a path.
    """
    for each in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(each, str) and each and not any((_is_pem(each), is_bare_base64(each), os.path.isabs(each))):
            shown = f", not {sanitize(each, 200)}" if _is_path(each) else ""
            raise CustodyConfigurationError(
                "'superadmin_keys' must be public keys in PEM, or the absolute path of a file with them" + shown,
                setting="superadmin_keys",
                code="pins-wrong",
            )


def _is_pem(text: str) -> bool:
    return "-----" in text


def check_minimum(name: str, value: object) -> int | None:
    """Return how many keys must have signed, or refuse what is no whole number of at least 1."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise CustodyConfigurationError(
        f"'{name}' must be a whole number of at least 1, not {sanitize(repr(value), 40)}",
        setting=name,
        code="pins-wrong",
    )


def check_networks(name: str, value: object) -> tuple[str, ...] | None:
    """Return the names of networks."""
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if (
        not isinstance(names, (list, tuple, set, frozenset))
        or not names
        or not all(isinstance(each, str) and each and each == each.strip() for each in names)
    ):
        raise CustodyConfigurationError(
            f"'{name}' must be one or more names, comma-separated, like 'mainnet, testnet', not {_shown(value)}",
            setting=name,
            code="pins-wrong",
        )
    return tuple(names)


def _shown(names: object) -> str:
    """Return the names as one would write them, or whatever else was given."""
    is_text = isinstance(names, (list, tuple)) and names and all(isinstance(each, str) for each in names)
    return sanitize(repr(", ".join(names) if is_text else names), 80)  # type: ignore[arg-type]


def check_time(name: str, value: object) -> int | None:
    """Return a Unix time in seconds, also of a date, or refuse what is none or is far from our days."""
    value = parse_time(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and _EARLIEST <= value <= _LATEST):
        return value
    raise CustodyConfigurationError(
        f"'{name}' must be a date from 2009 on, like 2026-01-31, or a Unix time in seconds, "
        f"not {sanitize(repr(value), 40)}",
        setting=name,
        code="pins-wrong",
    )


# --- names -----------------------------------------------------------------------------------------------------


def refuse_misspelt(names: Iterable[str]) -> None:
    """
    Refuse names that were meant for a setting that says what is trusted: ignored, nothing would be verified.

    :param names: names of settings that are not known.
    :raises CustodyConfigurationError: if one of them is close to one of ours.
    """
    unknown = list(names)
    for name in unknown:
        if (meant := _meant(name)) is not None:
            shown = sanitize(name, 60)
            others = [repr(sanitize(each, 60)) for each in unknown if each != name]
            more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
            rest = f"; not known either: {', '.join(others[:_MAX_NAMED])}{more}" if others else ""
            raise CustodyConfigurationError(
                f"'{shown}' is not a setting, and looks like '{meant}': ignored, less would be verified than is meant"
                f"{rest}",
                setting=shown,
                code="pins-wrong",
                advice=f"Rename it to '{meant}', or remove it.{' Correct or remove the others.' if others else ''}",
            )


def _meant(name: str) -> str | None:
    """Return the setting that a name was probably meant for."""
    letters = _letters(name)
    known = {_letters(each): each for each in PIN_SETTINGS}
    if len(letters) >= _MIN_PART:
        for each, setting in known.items():
            if letters in each or each in letters:
                return setting
    if found := get_close_matches(letters, known, 1, 0.75):
        return known[found[0]]
    return "superadmin_keys" if "superadmin" in letters or letters.endswith("publickeys") else None


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name[:100])).casefold()


# --- settings as text, as a connection's URI and its form have them ------------------------------------------


def parse_keys(value: Any) -> Any:
    """Give keys the line ends back that are written as a backslash and an n, as in a file of environment variables."""
    if isinstance(value, list):
        return [parse_keys(each) for each in value]
    return value.replace("\\n", "\n") if isinstance(value, str) and _is_pem(value) else value


def parse_names(value: Any) -> Any:
    """Turn "mainnet, testnet" into the names."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def parse_time(value: Any) -> Any:
    """Turn an ISO 8601 date, in UTC unless it says otherwise, into Unix time in seconds."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if is_decimal(text):
        # Python versions differ on a date without dashes.
        return int(text) if len(text) <= 20 else value
    return _date(text, value)


def _date(text: str, otherwise: Any) -> Any:
    try:
        # Python 3.10 does not know the Z.
        date = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
        return int((date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp())
    except (ValueError, OverflowError):
        return otherwise
