"""The results of verification, and the error when it fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.timestamps import format_unix_time


class RefusalError(Exception):
    """
    Raised when something cannot be trusted.

    :param why: the reason.
    :param advice: advice about it. Default None: none.
    :param code: the code of the error that it becomes. Default ``not-verified``.
    """

    def __init__(self, why: str, advice: str | None = None, code: ErrorCode = "not-verified") -> None:
        super().__init__(why)
        self.advice = advice
        self.code: ErrorCode = code


@dataclass(frozen=True)
class VerifiedRules:
    """
    Rules that super-administrators have signed.

    :param sha256: the hash of the container's bytes, in hex.
    :param timestamp: when they were made, in Unix seconds; 0: they do not say.
    :param signed_by: the fingerprints of the pinned keys whose signatures counted.
    """

    sha256: str
    timestamp: int
    signed_by: tuple[str, ...]

    @property
    def date(self) -> str | None:
        """When they were made, as text; None: they do not say."""
        return format_unix_time(self.timestamp) if self.timestamp else None

    def to_json(self) -> dict[str, Any]:
        """Return them as plain JSON data."""
        return {
            "sha256": self.sha256,
            "timestamp": self.timestamp,
            "date": self.date,
            "signed_by": sorted(self.signed_by),
        }


@dataclass(frozen=True)
class GroupSignatures:
    """
    The signatures of one group.

    :param group_id: the group's id.
    :param minimum: number of its users who must sign.
    :param user_ids: the users whose signatures counted.
    """

    group_id: str
    minimum: int
    user_ids: tuple[str, ...]


@dataclass(frozen=True)
class AppliedRule:
    """
    A rule whose thresholds are reached.

    :param currency: the chain that it is for; empty: all that have no rule of their own.
    :param network: the network that it is for; empty: all.
    :param wallet_path: the path of the linked wallet whose line of the rule was used; None: the rule's own thresholds.
    :param path: the groups of the path that is complete.
    """

    currency: str
    network: str
    wallet_path: str | None
    path: tuple[GroupSignatures, ...]


@dataclass(frozen=True)
class VerifiedAddress:
    """
    A text that is proved to be signed.

    Enough users have signed it, at any time, under rules that super-administrators signed.

    :param fields: keys and values of the signed text, and nothing else.
    :param legacy: whether a legacy form of the text was signed.
    :param hash: the hash that was signed, in hex.
    :param rules: the rules.
    :param applied: the rules' parts that decided: several, if the text does not name its network.
    :param omitted: the keys of the received text that no signature covers, so that ``fields`` has them not: only in a
        legacy form. ``contractType``, ``linkedInternalAddresses.label``.
    """

    fields: Mapping[str, Any]
    legacy: bool
    hash: str
    rules: VerifiedRules
    applied: tuple[AppliedRule, ...]
    omitted: tuple[str, ...] = ()

    @property
    def user_ids(self) -> tuple[str, ...]:
        """The users whose signatures counted, each once."""
        return tuple(dict.fromkeys(user for rule in self.applied for group in rule.path for user in group.user_ids))

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON data."""
        found = asdict(self)
        # Tuples are lists in JSON.
        plain: dict[str, Any] = json.loads(json.dumps({**found, "user_ids": self.user_ids}))
        return plain


@dataclass(frozen=True)
class RequestSignatures:
    """
    The signatures of a request that may need more.

    :param hash: the hash of its text, in hex.
    :param rules: the rules under which they count; None: there are no signatures, and no rules.
    :param user_ids: the users who have validly signed, each once; of those who have the same key, the first.
    :param paths: the ways to sign it, any one of which is enough: of each group, who has validly signed.
    :param faults: why a signature is not valid, in the order of the signatures; empty text: it is valid.
    """

    hash: str
    rules: VerifiedRules | None
    user_ids: tuple[str, ...] = ()
    paths: tuple[tuple[GroupSignatures, ...], ...] = ()
    faults: tuple[str, ...] = ()
