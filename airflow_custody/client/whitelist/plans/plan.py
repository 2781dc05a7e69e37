"""A plan: what must be done so that the service has what a whitelist file says, and what it may do at most."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_custody.client.arguments import check_names, describe, refuse_missing
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import MAX_NAMED, as_list, count, lines, name_some, sanitize
from airflow_custody.client.whitelist.files.addresses import chain_name

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import VerificationPins
    from airflow_custody.client.whitelist.models import WhitelistRequest

RowState = Literal[
    "create",
    "replace",
    "pending",
    "unchanged",
    "differs",
    "duplicate",
    "undeclared",
    "rejected",
    "unreadable",
    "unverified",
]
Action = Literal["create", "delete"]

#: The states of a row, in the order of a report.
ROW_STATES: tuple[RowState, ...] = get_args(RowState)
#: The states that mean that the service does not have what the file says, the gravest first.
CHANGES: tuple[RowState, ...] = (
    "unverified",
    *(each for each in ROW_STATES if each not in ("pending", "unchanged", "unverified")),
)
#: The fields that can limit what a plan is about.
ONLY_FIELDS = ("blockchain", "customer_id", "visibility_group_id")
#: Version of what a plan's hash covers.
_HASH_FORMAT = "custody-plan-3"


@dataclass(frozen=True, slots=True)
class FileRow:
    """
    One row of a whitelist file.

    :param request: the request, with the file's defaults.
    :param where: its place: ``line 12``, or ``row 3`` of a JSON file, counted from 1.
    """

    request: WhitelistRequest
    where: str


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
    :param others: the ids of other requests in effect for the same destination: those that a new one replaces; of a
        duplicate, the one that is kept.
    """

    state: RowState
    action: Action | None = None
    request: WhitelistRequest | None = None
    where: str = ""
    request_id: str = ""
    status: str = ""
    hash: str = ""
    fields: tuple[str, ...] = ()
    note: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    @property
    def is_doubtful(self) -> bool:
        """Whether what differs is the destination: the request, or another row, may be for another one."""
        return self.state == "differs" and not {"blockchain", "network", "address"}.isdisjoint(self.fields)

    @property
    def operation(self) -> str:
        """The operation, as the text that the plan's hash covers; empty for none."""
        if self.action == "create" and self.request is not None:
            return create_operation(self.request, self.others)
        if self.action == "delete":
            # Not the request's own hash, which also changes when the service renames linked objects. The note, and the
            # requests that are kept beside it, are what the approver reads.
            content = self.request and _fields(self.request)
            return _operation(
                {"delete": self.request_id, "beside": sorted(self.others), "note": self.note, "request": content}
            )
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
    :param only: what the plan is about: values by field, as :func:`check_only` returns them. Default: everything.
    """

    rows: Sequence[PlanRow]
    service: str = ""
    name: str = ""
    pins: VerificationPins | None = None
    ignored: tuple[str, ...] = ()
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of rows in each state."""
        found = Counter(each.state for each in self.rows)
        return {state: found[state] for state in ROW_STATES}

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """The operations, in the order of the rows."""
        return tuple(each.operation for each in self.rows if each.operation)

    @cached_property
    def observed(self) -> tuple[str, ...]:
        """
        The requests that do not verify, those that are ignored, and what the plan is about, as text that the plan's
        hash covers, each once.

        If there are others by the time of applying, it is another plan than the one that was approved.
        """
        found = [ignored_text(each) for each in self.ignored]
        unverified = [row for row in self.rows if row.state == "unverified"]
        found += [_operation({"unverified": row.request_id, "hash": row.hash}) for row in unverified]
        found += [_operation({"only": self.only})] if self.only else []
        return tuple(dict.fromkeys(found))

    @cached_property
    def plan_hash(self) -> str:
        """
        SHA-256, in hexadecimal, of what applying does, of where, of what the plan is about, and of what does not verify
        or is ignored.

        The pinned keys are not in it. They matter only through the requests that do not verify, and through the note of
        a deletion whose signatures do not cover everything. So if a request verifies when planning but not when
        applying, or the other way round, it is another plan.
        """
        return hash_operations(self.operations, self.observed, self.service)

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

    :param max_creates: maximum number of creations. Default 100; None: no limit.
    :param max_deletes: maximum number of deletions. Default 10; None: no limit.
    :param max_delete_percent: maximum number of deletions, in per cent of the requests at the service, from
        ten requests up. Default 30; None: no limit.
    :param must_keep: addresses or labels that must be in the file. Default: none.
    """

    max_creates: int | None = 100
    max_deletes: int | None = 10
    max_delete_percent: float | None = 30
    must_keep: Collection[str] = ()

    def faults(self, plan: WhitelistPlan) -> tuple[str, ...]:
        """
        Describe the limits that a plan exceeds.

        :param plan: the plan.
        :return: a text for each limit; empty if the plan keeps all of them.
        """
        return (*self._number_faults(plan), *self._missing(plan))

    def _number_faults(self, plan: WhitelistPlan) -> list[str]:
        found = []
        creates, deletes = len(plan.with_action("create")), len(plan.with_action("delete"))
        listed = sum(bool(each.request_id) for each in plan.rows)
        # Requests that nobody signed, or that may be another team's, must not make room for more deletions.
        no_room = ("unverified", "unreadable") if plan.only else ("unverified",)
        verified = listed - sum(each.state in no_room for each in plan.rows)
        if self.max_creates is not None and creates > self.max_creates:
            found.append(f"it creates {creates}, and max_creates is {self.max_creates}")
        if self.max_deletes is not None and deletes > self.max_deletes:
            found.append(f"it deletes {deletes}, and max_deletes is {self.max_deletes}")
        percent = self.max_delete_percent
        if listed >= 10 and percent is not None and deletes * 100 > percent * verified:
            limit = f"max_delete_percent is {percent:g}"
            found.append(f"it deletes {deletes} of the {count(verified, 'request')} at the service, and {limit}")
        return found

    def _missing(self, plan: WhitelistPlan) -> list[str]:
        requests = [each.request for each in plan.rows if each.where and each.request is not None]
        kept = {each.label for each in requests} | {each.address for each in requests}
        missing = [each for each in as_list(self.must_keep) if each not in kept]
        return [f"must_keep names {sanitize(each, 80)!r}, which the file does not have" for each in missing]


def create_operation(request: WhitelistRequest, replaced: Collection[str] = ()) -> str:
    """Return the creation of a request, in place of the replaced ones, as the text that a plan's hash covers."""
    replaces = {"replaces": sorted(replaced)} if replaced else {}
    return _operation({"create": _fields(request), **replaces})


def ignored_text(request_id: str) -> str:
    """Return that a request is ignored, as the text that a plan's hash covers."""
    return _operation({"ignored": request_id})


def _fields(request: WhitelistRequest) -> dict[str, Any]:
    fields = request.model_dump(exclude_none=True)
    return {name: sorted(each) if isinstance(each, list) else each for name, each in fields.items()}


def _operation(data: Mapping[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"))


def check_only(value: object) -> dict[str, list[str]]:
    """
    Return what a plan is limited to: chains by one name for all of their names, and each value once.

    :param value: a value or several for each of some of :data:`ONLY_FIELDS`.
    :raises CustodyRequestError: if it is anything else, or empty.
    """
    if not isinstance(value, Mapping) or not value or not {*value} <= {*ONLY_FIELDS}:
        what = sorted(map(str, value)) if isinstance(value, Mapping) else describe(value)
        raise CustodyRequestError(
            f"only must have values for some of {', '.join(ONLY_FIELDS)}, not {sanitize(what, 200)}; nothing was sent",
            setting="only",
            code="parameter-wrong",
        )
    return {name: _check_values(name, given) for name, given in value.items()}


def _check_values(name: str, given: object) -> list[str]:
    values = [*given] if isinstance(given, (list, tuple, set)) else [given]
    refuse_missing(f"only[{name!r}]", values)
    # In a YAML file, an id may be a number.
    texts = [str(each) if type(each) is int else each for each in values]
    names = check_names(f"only[{name!r}]", texts) or []
    return sorted({chain_name(each) if name == "blockchain" else each for each in names})


def describe_only(only: Mapping[str, Iterable[str]]) -> str:
    """Return in words what a plan is about."""
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in only.items())


def advice_on_differences(plan: WhitelistPlan, *, replace: bool) -> str:
    """Return what to do about rows that differ, with ``replace`` or without, and about duplicates, line by line."""
    found = []
    doubtful = sum(row.is_doubtful for row in plan.rows)
    if doubtful:
        found += [
            f"Nothing is done about rows whose destination is not certain ({doubtful}).",
            "Write chain, network and address as the service does, or name the network that you mean.",
            "If the request at the service is for another destination, put its id into 'ignore' (--ignore).",
        ]
    if differing := plan.counts["differs"] - doubtful:
        way = "or have replace=True (--replace) create a new request, and delete the old one once that is in effect; "
        found += [
            f"Nothing is done about rows that differ ({differing}).",
            f"Change the file to what the service has; {'' if replace else way}or delete the request at the service "
            "(custody whitelist delete), which leaves the address without effect until a new one is signed.",
        ]
    if any(row.state == "duplicate" and not row.action for row in plan.rows):
        found.append("Duplicates are deleted by a plan with prune=True, and those that were replaced by replace=True.")
    elif plan.counts["duplicate"]:
        found.append("Applying this plan deletes the duplicates: what replaced them is in effect.")
    return lines(*found)


def changes_text(plan: WhitelistPlan, states: Collection[RowState]) -> str:
    """Return how many rows are in these states, and which the first are."""
    numbers = ", ".join(f"{plan.counts[state]} {state}" for state in states if plan.counts[state])
    # Unverified rows must not be hidden behind others.
    rows = sorted((row for row in plan.rows if row.state in states), key=lambda row: row.state != "unverified")
    names = []
    for row in rows[:MAX_NAMED]:
        request = f"request {sanitize(row.request_id, 40)}"
        place = row.where or request
        if row.state == "unverified" and row.where:
            place += f" ({request})"
        names.append(f"{place} {row.state}" + (f" ({name_some(row.fields)})" if row.fields else ""))
    more = f"; and {len(rows) - len(names)} more" if len(rows) > len(names) else ""
    return f"{numbers}: {'; '.join(names)}{more}" if rows else "nothing to do"


def hash_operations(operations: Iterable[str], observed: Iterable[str], service: str) -> str:
    """
    Return the SHA-256, in hexadecimal, of what is to be done, in whatever order.

    :param operations: the operations.
    :param observed: what else is approved: :attr:`WhitelistPlan.observed`. It is told apart from the operations, so
        that none of these can be hidden there.
    :param service: name of the service and the tenant.
    """
    found = hashlib.sha256(_operation({"format": _HASH_FORMAT, "service": service}).encode())
    for label, texts in (("do", operations), ("observed", observed)):
        for each in sorted(texts):
            found.update(f"\n{label} {each}".encode())
    return found.hexdigest()


def requested_content(request: WhitelistRequest) -> dict[str, Any]:
    """Return what a request asks for, as an operation has it."""
    content: dict[str, Any] = json.loads(_operation(_fields(request)))
    return content
