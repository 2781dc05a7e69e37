"""The pins: the keys and settings that verification trusts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.text import pem_text, sanitize
from airflow_custody.client.verification.keys import KeyTextError, PublicKey, read_public_keys

# The years 2009 and 2100 in Unix seconds. Numbers outside this range are mistakes, such as dates without dashes, or
# milliseconds.
_EARLIEST, _LATEST = 1_230_768_000, 4_102_444_800


@dataclass(frozen=True)
class VerificationPins:
    """
    The keys and settings that verification trusts. They always come from local configuration, never from the service.

    :param superadmin_keys: the super-administrators' public keys: PEM texts, each with one or more P-256 keys. No key
        may be repeated.
    :param superadmin_minimum: number of these keys that must have signed the rules: at least one, and at most all.
    :param networks: names of the accepted networks, for all chains. Default None: any network. In this case, if the
        signed text of an address does not name its network, the address must satisfy every rule for its chain.
    :param allow_legacy_signatures: whether to accept an address that was signed before texts had the keys
        ``contractType`` or a linked address's ``label``. The verified fields of such an address lack these keys.
        Default False.
    :param rules_not_before: Unix time in seconds, from 2009 to 2100. Older rules, and rules without a date, are
        refused. Otherwise, replaced rules could be used again, because their signatures stay valid forever. Default
        None: rules of any age are accepted.
    :raises CustodyConfigurationError: if a parameter is missing or wrong; ``setting`` names it.
    """

    superadmin_keys: str | Iterable[str]
    superadmin_minimum: int
    networks: Collection[str] | None = None
    allow_legacy_signatures: bool = False
    rules_not_before: int | None = None
    #: The keys, in the order given.
    public_keys: tuple[PublicKey, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = _read_keys(self.superadmin_keys)
        object.__setattr__(self, "public_keys", keys)
        object.__setattr__(self, "superadmin_keys", tuple(key.pem for key in keys))
        if type(self.superadmin_minimum) is not int or not 1 <= self.superadmin_minimum <= len(keys):
            raise wrong_setting(
                "superadmin_minimum",
                f"must be a whole number from 1 to {len(keys)}, the number of 'superadmin_keys', not "
                f"{sanitize(repr(self.superadmin_minimum), 40)}",
            )
        if self.networks is not None:
            object.__setattr__(self, "networks", _read_names(self.networks))
        if not isinstance(self.allow_legacy_signatures, bool):
            raise wrong_setting("allow_legacy_signatures", "must be true or false")
        since = self.rules_not_before
        if since is not None and not (type(since) is int and _EARLIEST <= since <= _LATEST):
            raise wrong_setting(
                "rules_not_before",
                "must be a date from 2009 on, like 2026-01-31, or a Unix time in whole seconds, not "
                f"{sanitize(repr(since), 40)}",
            )

    @cached_property
    def fingerprints(self) -> tuple[str, ...]:
        """The SHA-256 of each key's SubjectPublicKeyInfo, in hex, in the order given."""
        return tuple(key.fingerprint for key in self.public_keys)

    def to_json(self) -> dict[str, object]:
        """
        Return the pins as plain JSON data, by setting.

        The keys are sorted by fingerprint.
        """
        keys = sorted(zip(self.fingerprints, self.superadmin_keys, strict=True))
        return {
            "superadmin_keys": [key for _, key in keys],
            "fingerprints": [fingerprint for fingerprint, _ in keys],
            "superadmin_minimum": self.superadmin_minimum,
            "networks": None if self.networks is None else sorted(self.networks),
            "allow_legacy_signatures": self.allow_legacy_signatures,
            "rules_not_before": self.rules_not_before,
        }


#: The settings of a client that determine trust.
PIN_SETTINGS = tuple(each.name for each in fields(VerificationPins) if each.init)


def _read_keys(given: Any) -> tuple[PublicKey, ...]:
    if isinstance(given, str):
        given = [given]
    texts = list(given) if isinstance(given, Iterable) else []
    are_texts = all(isinstance(text, str) and text.strip() for text in texts)
    if not texts or not are_texts:
        raise wrong_setting("superadmin_keys", "must be public keys in PEM")
    try:
        keys = tuple(read_public_keys(pem_text("\n".join(texts))))
    except KeyTextError as error:
        raise wrong_setting("superadmin_keys", f"cannot be used: {error}") from None
    for number, key in enumerate(keys, 1):
        if (first := keys.index(key) + 1) != number:
            raise wrong_setting("superadmin_keys", f"has the same key twice: key {first} and key {number}")
    return keys


def _read_names(given: Any) -> tuple[str, ...]:
    names: Any = ()
    if isinstance(given, str):
        names = [given]
    elif isinstance(given, (list, tuple, set, frozenset)):
        names = given
    if not names or not all(map(_is_name, names)):
        raise wrong_setting(
            "networks",
            f"must be one or more names, comma-separated, like 'mainnet, testnet', not {sanitize(repr(given), 80)}",
        )
    # Sort the names, because their order does not matter.
    return tuple(sorted(set(names)))


def _is_name(text: object) -> bool:
    return isinstance(text, str) and text != "" and text == text.strip()


def wrong_setting(setting: str, why: str) -> CustodyConfigurationError:
    """Return the error for a setting; the message begins with its name."""
    return CustodyConfigurationError(f"'{setting}' {why}", setting=setting, why=why)
