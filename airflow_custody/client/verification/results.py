"""The results of verification, and the exception if it fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.client.timestamps import format_unix_time


class RefusalError(Exception):
    """
    Raised when a request, a text or rules cannot be trusted.

    :param why: the reason.
    :param advice: advice about the reason. Default None: no advice.
    :param code: the code of the resulting error. Default ``not-verified``.
    """

    def __init__(self, why: str, advice: str | None = None, code: ErrorCode = "not-verified") -> None:
        super().__init__(why)
        self.advice = advice
        self.code: ErrorCode = code


@dataclass(frozen=True)
class VerifiedRules:
    """
    Rules that super-administrators have signed.

    :param sha256: the hash of the rules container, in hex.
    :param timestamp: creation time in Unix seconds; 0: not given.
    :param signed_by: the fingerprints of the pinned keys whose signatures counted.
    """

    sha256: str
    timestamp: int
    signed_by: tuple[str, ...]

    @property
    def date(self) -> str | None:
        """Creation time as text; None: not given."""
        return format_unix_time(self.timestamp) if self.timestamp else None

    def to_json(self) -> dict[str, object]:
        """Return the rules as plain JSON data."""
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

    :param currency: the chain that the rule is for; empty: all chains that have no rule of their own.
    :param network: the network that the rule is for; empty: all networks.
    :param wallet_path: the path of the linked wallet, if the rule has a line for this wallet; None: the rule's own
        thresholds were used.
    :param path: the groups of a complete path (see :data:`Path`): enough users of each group have signed.
    """

    currency: str
    network: str
    wallet_path: str | None
    path: tuple[GroupSignatures, ...]


@dataclass(frozen=True)
class VerifiedAddress:
    """
    An address that is proved to be whitelisted: enough users have signed its text.

    They may have signed at any time, under rules that super-administrators have signed.

    :param fields: keys and values of the signed text, and nothing else.
    :param legacy: whether a legacy form of the text was signed.
    :param hash: the hash of the text with exactly these fields, in hex. If some users signed before an upgrade of the
        service and some after it, their signatures cover different forms of the text. ``fields`` then has only the
        fields that all of these forms have.
    :param rules: the signed rules.
    :param applied: the single rules that were applied; there may be several if the text does not name its network.
    :param omitted: the keys of the received text that no signature covers, and that ``fields`` lacks. Only for a legacy
        form: ``contractType``, ``linkedInternalAddresses.label``.
    """

    fields: Mapping[str, object]
    legacy: bool
    hash: str
    rules: VerifiedRules
    applied: tuple[AppliedRule, ...]
    omitted: tuple[str, ...] = ()

    @cached_property
    def user_ids(self) -> tuple[str, ...]:
        """The users whose signatures counted, each once."""
        return tuple(dict.fromkeys(user for rule in self.applied for group in rule.path for user in group.user_ids))

    def to_json(self) -> dict[str, object]:
        """Return all attributes as plain JSON data."""
        found = asdict(self)
        # Convert tuples to lists.
        plain: dict[str, Any] = json.loads(json.dumps({**found, "user_ids": self.user_ids}))
        return plain


@dataclass(frozen=True)
class RequestSignatures:
    """
    The signatures of a request, which may not be complete yet.

    :param hash: the hash of its text, in hex.
    :param rules: the rules that name the valid signers; None: the request has neither signatures nor rules.
    :param user_ids: the users with valid signatures, each once. If several users have the same key, only the first of
        them is listed.
    :param paths: for each path of the rules, its groups with their valid signers. One complete path is enough.
    :param faults: for each signature, in order, the reason why it is not valid; an empty text means that it is valid.
    :param fields: the content of the request's text, which matches the hash. Default None: not given.
    """

    hash: str
    rules: VerifiedRules | None
    user_ids: tuple[str, ...] = ()
    paths: tuple[tuple[GroupSignatures, ...], ...] = ()
    faults: tuple[str, ...] = ()
    fields: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
