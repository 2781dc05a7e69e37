"""A plan: what must be done so that the service has what a whitelist file says, and what it may do at most."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.client.text import as_list, count, sanitize
from airflow_custody.client.whitelist.addresses import canonical_address, chain_name

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import VerificationPins
    from airflow_custody.client.whitelist.models import WhitelistRequest

State = Literal["create", "pending", "unchanged", "differs", "undeclared", "rejected", "unreadable", "unverified"]
Action = Literal["create", "delete"]

#: The states of a row, in the order of a report.
STATES: tuple[State, ...] = (
    "create",
    "pending",
    "unchanged",
    "differs",
    "undeclared",
    "rejected",
    "unreadable",
    "unverified",
)
#: The states that mean that the service does not have what the file says, the gravest first.
CHANGES: tuple[State, ...] = ("unverified", "create", "differs", "undeclared", "rejected", "unreadable")
#: Version of what a plan's hash covers.
_HASH_FORMAT = "custody-plan-2"


@dataclass(frozen=True, slots=True)
class PlanRow:
    """
    One row of a plan.

    :param state: state of a row of the file, or of a request that is in no file.
    :param action: action of applying the plan; None: there is none.
    :param request: the file's request, or the one that the service has, or claims to have; None if unreadable.
    :param where: the place in the file, such as ``line 12``; empty if the file does not have it.
    :param request_id: the id of the request at the service; empty if there is none.
    :param status: the service's own word for the status; empty if there is none.
    :param hash: the hash that signers of the request sign; empty if there is none.
    :param fields: the names of the fields that differ.
    :param note: further facts, in words. Of deletions, the plan's hash covers it.
    :param shown: the service's values, as text, by name: of the fields that differ, and of a request that no file can
        ask for.
    """

    state: State
    action: Action | None = None
    request: WhitelistRequest | None = None
    where: str = ""
    request_id: str = ""
    status: str = ""
    hash: str = ""
    fields: tuple[str, ...] = ()
    note: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def operation(self) -> str:
        """The operation, as the text that the plan's hash covers; empty for none."""
        if self.action == "create" and self.request is not None:
            return create_operation(self.request)
        if self.action == "delete":
            # The hash also covers how the service describes what is linked, which changes with its name.
            content = {"hash": self.hash} if self.request is None else {"request": _fields(self.request)}
            # And what else whoever approves reads of it: whether it is pending or in effect.
            return _operation({"delete": self.request_id, "note": self.note, **content})
        return ""


@dataclass(frozen=True)
class WhitelistPlan:
    """
    The plan: operations after which the service has what a file says.

    :param rows: a row for each row of the file, in its order, and after them one for each request that is in no file.
    :param service: name of the service and the tenant; part of the hash.
    :param name: the file's name. Default empty.
    :param pins: the pins that the rows were verified with; not part of the hash. Default None: nothing was verified.
    :param ignored: the ids of the requests that stop no row, although they may be one's. Default: none.
    """

    rows: Sequence[PlanRow]
    service: str = ""
    name: str = ""
    pins: VerificationPins | None = None
    ignored: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of rows in each state."""
        found = Counter(each.state for each in self.rows)
        return {state: found[state] for state in STATES}

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """The operations, in the order of the rows."""
        return tuple(each.operation for each in self.rows if each.operation)

    @cached_property
    def observed(self) -> tuple[str, ...]:
        """
        The requests that do not verify, and those that are ignored, as text that the plan's hash covers, each once.

        Whoever approves the plan has seen these and no others: if there are more by then, it is another plan.
        """
        found = [{"unverified": each.request_id, "hash": each.hash} for each in self.rows if each.state == "unverified"]
        return tuple(dict.fromkeys(map(_operation, [*found, *({"ignored": each} for each in self.ignored)])))

    @cached_property
    def plan_hash(self) -> str:
        """
        SHA-256, in hexadecimal, of what applying does, of where, and of what does not verify or is ignored.

        Pinned keys alone do not change it, unless something that is deleted has a signature that does not cover all of
        it. What was approved is done, and nothing else, whatever applying verifies; and
        a request that verifies at one of the two times only makes another plan.
        """
        return hash_operations([*self.operations, *self.observed], self.service)

    @property
    def has_changes(self) -> bool:
        """Whether the service does not have what the file says."""
        return any(self.counts[state] for state in CHANGES)

    def with_action(self, action: Action) -> list[PlanRow]:
        """Return the rows about which applying does this."""
        return [each for each in self.rows if each.action == action]


@dataclass(frozen=True)
class PlanLimits:
    """
    Limits of a plan.

    :param max_creates: maximum number of creations. Default 100, which is what a report shows; None: no limit.
    :param max_create_percent: maximum number of creations, in per cent of the rows of the file. Default None: no limit.
    :param max_deletes: maximum number of deletions. Default 10; None: no limit.
    :param max_delete_percent: maximum number of deletions, in per cent of the requests at the service, from
        ten requests up. Default 30; None: no limit.
    :param must_keep: addresses or labels that must be in the file. Default: none.
    """

    max_creates: int | None = 100
    max_create_percent: float | None = None
    max_deletes: int | None = 10
    max_delete_percent: float | None = 30
    must_keep: Collection[str] = ()

    def faults(self, plan: WhitelistPlan) -> tuple[str, ...]:
        """
        Describe the limits that a plan exceeds.

        :param plan: the plan.
        :return: a text for each limit; empty if the plan keeps all of them.
        """
        found = []
        creates, deletes = len(plan.with_action("create")), len(plan.with_action("delete"))
        declared = [each for each in plan.rows if each.where]
        listed = sum(bool(each.request_id) for each in plan.rows)
        # Requests that nobody signed must not make room for more deletions.
        verified = listed - sum(each.state == "unverified" for each in plan.rows)
        if self.max_creates is not None and creates > self.max_creates:
            found.append(f"it creates {creates}, and max_creates is {self.max_creates}")
        if _is_over(creates, len(declared), self.max_create_percent):
            rows = count(len(declared), "row")
            limit = f"max_create_percent is {self.max_create_percent:g}"
            found.append(f"it creates {creates} of the {rows} of the file, and {limit}")
        if self.max_deletes is not None and deletes > self.max_deletes:
            found.append(f"it deletes {deletes}, and max_deletes is {self.max_deletes}")
        if listed >= 10 and _is_over(deletes, verified, self.max_delete_percent):
            limit = f"max_delete_percent is {self.max_delete_percent:g}"
            found.append(f"it deletes {deletes} of the {count(verified, 'request')} at the service, and {limit}")
        requests = [each.request for each in declared if each.request is not None]
        kept = {text for each in requests for text in (each.label, each.address)}
        for each in as_list(self.must_keep):
            if each not in kept and not any(_is_address_of(request, each) for request in requests):
                found.append(f"must_keep names {sanitize(each, 80)!r}, which the file does not have")
        return tuple(found)


def _is_address_of(request: WhitelistRequest, text: str) -> bool:
    chain = chain_name(request.chain)
    return canonical_address(text, chain) == canonical_address(request.address, chain)


def _is_over(number: int, total: int, percent: float | None) -> bool:
    # So that nothing is allowed by what is no number.
    return percent is not None and not number * 100 <= percent * total


def create_operation(request: WhitelistRequest) -> str:
    """Return the creation of a request as the text that a plan's hash covers."""
    return _operation({"create": _fields(request)})


def _fields(request: WhitelistRequest) -> dict[str, Any]:
    fields = request.model_dump(exclude_none=True)
    return {name: sorted(each) if isinstance(each, list) else each for name, each in fields.items()}


def _operation(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def hash_operations(operations: Iterable[str], service: str) -> str:
    """
    Return the SHA-256, in hexadecimal, of what is to be done, in whatever order.

    :param operations: the operations, and :attr:`WhitelistPlan.observed`.
    :param service: name of the service and the tenant.
    """
    found = hashlib.sha256(_operation({"format": _HASH_FORMAT, "service": service}).encode())
    for each in sorted(operations):
        found.update(b"\n" + each.encode())
    return found.hexdigest()
