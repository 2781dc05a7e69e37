"""A whitelist plan, its hash and its limits."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow_custody.client.arguments import check_names, describe, refuse_missing
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import MAX_NAMED, as_list, count, lines, name_some, sanitize
from airflow_custody.client.whitelist.addresses.checks import chain_name
from airflow_custody.client.whitelist.addresses.destinations import destination, destination_of
from airflow_custody.client.whitelist.matching import DESTINATION_FIELDS

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import VerificationPins
    from airflow_custody.client.whitelist.models import WhitelistRequest

RowState = Literal[
    "create",
    "replace",
    "later",
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
#: The states in which the service differs from the file, the most serious first.
CHANGES: tuple[RowState, ...] = (
    "unverified",
    *(each for each in ROW_STATES if each not in ("pending", "unchanged", "unverified")),
)
#: The fields by which a plan can be limited.
ONLY_FIELDS = ("blockchain", "customer_id", "visibility_group_id")
#: The version of the format of the text that a plan's hash covers; part of that text.
_HASH_FORMAT = "custody-plan-3"
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_LATER: dict[Action, str] = {"create": "to be created by a later run", "delete": "to be deleted by a later run"}


@dataclass(frozen=True, slots=True)
class PlanRow:
    """
    One row of a plan.

    :param state: state of a row of the file, or of a request that the file does not have.
    :param action: the operation that applying the plan performs for this row. Default None: no operation.
    :param request: the content of the row of the file. If the file has no such row, the content of the request at the
        service, which is not proved if the state is ``unverified``. Default None: the request cannot be read.
    :param where: the place in the file, such as ``line 12``. Default empty: the file has no such row.
    :param request_id: the id of the request at the service. Default empty: the service has no such request.
    :param status: the service's own word for the request's status. Default empty: there is no status.
    :param hash: the hash that signers of the request sign. Default empty: there is no hash.
    :param fields: the names of the fields that differ. Default: none.
    :param note: further facts, as text. The plan's hash covers the notes of deletions. Default empty.
    :param shown: the service's values, as text, by name: the values of fields that differ, or the whole destination if
        a file cannot express the request. Default: none.
    :param others: the ids of other requests in effect for the same destination. For a creation, the requests that it
        replaces; for a duplicate, the request that is kept. Default: none.
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
        """
        Whether the destination itself differs.

        If so, it is uncertain whether the request at the service, or another row of the file, is for this row's
        destination.
        """
        return self.state == "differs" and not DESTINATION_FIELDS.isdisjoint(self.fields)

    @property
    def operation(self) -> str:
        """The operation, as text for the plan's hash; empty if none."""
        if self.action == "create" and self.request is not None:
            return create_operation(self.request, self.others)
        if self.action == "delete":
            # Leave out the request's own hash, because it also changes when the service renames linked objects. Include
            # the note and the ids of the requests that are kept, because the approver reads them.
            content = self.request and _fields(self.request)
            return _operation(
                {"delete": self.request_id, "beside": sorted(self.others), "note": self.note, "request": content}
            )
        return ""


@dataclass(frozen=True)
class WhitelistPlan:
    """
    The operations that make the service match a whitelist file.

    :param rows: first the rows of the file, in the file's order; then the requests that the file does not have. Only
        rows of the file are created, and only the other requests are deleted, so all creations come before the first
        deletion.
    :param service: name of the service and the tenant; covered by the plan's hash. Default empty.
    :param name: the file's name. Default empty.
    :param pins: the pinned keys that the rows were verified with; not covered by the hash. Default None: nothing was
        verified.
    :param ignored: the ids of the requests to ignore. They may be for rows of the file, but do not prevent a creation.
        Default: none.
    :param only: the limits of the plan: values by field, in the form that :func:`check_only` returns. Default:
        everything.
    :param hidden: number of requests that the service counts but does not return; not covered by the hash. Default 0.
    :param warnings: warnings for the approver, such as a chain that the service does not list; not covered by the hash.
        Default: none.
    """

    rows: Sequence[PlanRow]
    service: str = ""
    name: str = ""
    pins: VerificationPins | None = None
    ignored: tuple[str, ...] = ()
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    hidden: int = 0
    warnings: tuple[str, ...] = ()

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
        The facts that the plan's hash covers besides the operations, as text, each once.

        These facts are the unverified requests, the ignored requests, and the limits of the plan. If one of them has
        changed when the plan is applied, the plan is no longer the approved one.
        """
        return tuple(self._observed)

    @cached_property
    def _observed(self) -> dict[str, str]:
        """A readable name for each fact in :attr:`observed`, by the fact's text."""
        found = {ignored_text(each): f"ignored request {each}" for each in self.ignored}
        for row in self.rows:
            if row.state == "unverified":
                text = _operation({"unverified": row.request_id, "hash": row.hash})
                found[text] = f"unverified request {row.request_id}"
        if self.only:
            found[_operation({"only": self.only})] = "the limits 'only'"
        return found

    @cached_property
    def parts(self) -> dict[str, str]:
        """
        The names of everything that the plan's hash covers, such as ``create line 12``, by a short key.

        They only serve to describe, in an error, how another plan differs from this one. No decision depends on them.
        """
        named = {
            row.operation: f"create {row.where}" if row.action == "create" else f"delete request {row.request_id}"
            for row in self.rows
            if row.operation
        }
        named |= {**self._observed, _operation({"service": self.service}): "the service or its tenant"}
        return {part_key(text): name for text, name in named.items()}

    @cached_property
    def plan_hash(self) -> str:
        """
        SHA-256, in hexadecimal, of everything that is approved.

        It covers the operations, the service and tenant, the limits of the plan, and the unverified and ignored
        requests. It does not cover the pinned keys themselves. These affect the hash only through the unverified
        requests, and through the notes of deletions whose signatures do not cover all fields. If a request verifies
        when planning but not when applying, or the other way round, the hashes differ.
        """
        return hash_operations(self.operations, self.observed, self.service)

    @property
    def has_changes(self) -> bool:
        """Whether the service differs from the file."""
        return any(self.counts[state] for state in CHANGES)

    @property
    def new_requests(self) -> dict[str, WhitelistRequest]:
        """The requests to create, by their place in the file."""
        return {each.where: each.request for each in self.with_action("create") if each.request is not None}

    def with_action(self, action: Action) -> list[PlanRow]:
        """Return the rows with this action."""
        return [each for each in self.rows if each.action == action]

    def first(self, number: int | None) -> WhitelistPlan:
        """
        Return a part of this plan: its first operations, in the order of the rows.

        The rows of all other operations get the state ``later`` and no action, so the hash of the part does not cover
        them. Because creations come first, a part deletes something only if it leaves no creation.

        :param number: maximum number of operations. None: all of them.
        """
        if number is None or number >= len(self.operations):
            return self
        rows, done = [], 0
        for row in self.rows:
            if row.action is not None:
                done += 1
                if done > number:
                    what = "to be replaced by a later run" if row.state == "replace" else _LATER[row.action]
                    note = "; ".join(filter(None, [what, row.note]))
                    row = replace(row, state="later", action=None, note=note)
            rows.append(row)
        return replace(self, rows=rows)


@dataclass(frozen=True)
class PlanLimits:
    """
    Limits of a plan.

    They serve to find faulty files. They apply to the whole plan, before its first part is taken, because a file that
    lost half of its rows must not cause the deletion of these addresses in several small parts.

    :param max_creates: maximum number of creations. Default 100; None: no limit.
    :param max_deletes: maximum number of deletions. Default 10; None: no limit.
    :param max_delete_percent: maximum number of deletions, in per cent of the requests at the service. It applies if
        the service has at least ten requests. Default 30; None: no limit.
    :param must_keep: addresses, in any spelling, or labels that must be in the file. Default: none.
    """

    max_creates: int | None = 100
    max_deletes: int | None = 10
    max_delete_percent: float | None = 30
    must_keep: Collection[str] = ()

    def faults(self, plan: WhitelistPlan) -> tuple[str, ...]:
        """
        Describe the limits that a plan exceeds.

        :param plan: the plan.
        :return: a text for each exceeded limit; empty if the plan is within all limits.
        """
        return (*self._number_faults(plan), *self._missing(plan))

    def _number_faults(self, plan: WhitelistPlan) -> list[str]:
        found = []
        creates, deletes = len(plan.with_action("create")), len(plan.with_action("delete"))
        listed = sum(bool(each.request_id) for each in plan.rows)
        # Do not count unverified requests, because they would raise the limit. With ``only``, do not count unreadable
        # requests either, because they may be outside the plan's limits.
        no_room = ("unverified", "unreadable") if plan.only else ("unverified",)
        verified = listed - sum(each.state in no_room for each in plan.rows)
        if self.max_creates is not None and creates > self.max_creates:
            found.append(f"it creates {count(creates, 'request')}, but max_creates is {self.max_creates}")
        if self.max_deletes is not None and deletes > self.max_deletes:
            found.append(f"it deletes {count(deletes, 'request')}, but max_deletes is {self.max_deletes}")
        percent = self.max_delete_percent
        if listed >= 10 and percent is not None and deletes * 100 > percent * verified:
            limit = f"max_delete_percent is {percent:g}"
            found.append(f"it deletes {deletes} of the {count(verified, 'request')} at the service, but {limit}")
        return found

    def _missing(self, plan: WhitelistPlan) -> list[str]:
        requests = [each.request for each in plan.rows if each.where and each.request is not None]
        missing = [each for each in as_list(self.must_keep) if not any(_has(request, each) for request in requests)]
        return [f"must_keep requires {sanitize(each, 80)!r}, but the file does not have it" for each in missing]


def _has(request: WhitelistRequest, text: str) -> bool:
    """Tell whether a text is a request's label, or its address in any spelling, such as an X-address with a memo."""
    kept = destination_of(request)
    named = destination(request.chain, request.network, text, None)
    return text == request.label or (named.address == kept.address and named.memo in ("", kept.memo))


def create_operation(request: WhitelistRequest, replaced: Collection[str] = ()) -> str:
    """Return a creation, with the ids of the requests that it replaces, as text for the hash."""
    replaces = {"replaces": sorted(replaced)} if replaced else {}
    return _operation({"create": _fields(request), **replaces})


def part_key(text: str) -> str:
    """Return the key of an operation, or of another text that a plan's hash covers, in :attr:`WhitelistPlan.parts`."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def ignored_text(request_id: str) -> str:
    """Return the text for an ignored request that a plan's hash covers."""
    return _operation({"ignored": request_id})


def _fields(request: WhitelistRequest) -> dict[str, Any]:
    fields = request.model_dump(exclude_none=True)
    return {name: sorted(each) if isinstance(each, list) else each for name, each in fields.items()}


def _operation(data: Mapping[str, Any]) -> str:
    return _ENCODER.encode(data)


def check_only(value: object) -> dict[str, list[str]]:
    """
    Check the limits of a plan, and return them.

    :param value: a mapping of fields in :data:`ONLY_FIELDS` to one value or several.
    :return: the values by field, each value once; chains by their canonical names.
    :raises CustodyRequestError: if the value has another form, or is empty.
    """
    if not isinstance(value, Mapping) or not value or not {*value} <= {*ONLY_FIELDS}:
        what = sorted(map(str, value)) if isinstance(value, Mapping) else describe(value)
        raise CustodyRequestError(
            f"only must have values for some of {', '.join(ONLY_FIELDS)}, not {sanitize(what, 200)}; nothing is sent",
            setting="only",
            code="parameter-wrong",
        )
    return {name: _check_values(name, given) for name, given in value.items()}


def _check_values(name: str, given: object) -> list[str]:
    values = [*given] if isinstance(given, (list, tuple, set)) else [given]
    refuse_missing(f"only[{name!r}]", values)
    # Convert numbers to text, because an id in a YAML file may be a number.
    texts = [str(each) if type(each) is int else each for each in values]
    names = check_names(f"only[{name!r}]", texts) or []
    return sorted({chain_name(each) if name == "blockchain" else each for each in names})


def describe_only(only: Mapping[str, Iterable[str]]) -> str:
    """Return a description of a plan's limits."""
    return "; ".join(f"{name} {' or '.join(values)}" for name, values in only.items())


def advice_on_differences(plan: WhitelistPlan, *, replace: bool) -> str:
    """Return lines of advice about requests that cannot be read, differing rows, and duplicates."""
    found = []
    if any(row.state == "unreadable" and row.where for row in plan.rows):
        found += [
            "A request that cannot be read may be for a row of the file, so no request is created for such a row.",
            "Inspect the unreadable request. If it is for another destination, add its id to 'ignore' (--ignore).",
        ]
    return lines(*found, *_advice_on_differing_rows(plan, replace=replace), _advice_on_duplicates(plan))


def _advice_on_differing_rows(plan: WhitelistPlan, *, replace: bool) -> list[str]:
    found = []
    doubtful = sum(row.is_doubtful for row in plan.rows)
    if doubtful:
        found += [
            f"Rows with an uncertain destination ({doubtful}) are neither created nor changed.",
            "Write chain, network and address as the service does, or add the missing network to the row.",
            "If the request at the service is for another destination, add its id to 'ignore' (--ignore).",
        ]
    if differing := plan.counts["differs"] - doubtful:
        way = "or plan with replace=True (--replace), which creates a new request, and deletes the old one later; "
        found += [
            f"Rows that differ ({differing}) are left as they are at the service.",
            f"Change the file to match the service; {'' if replace else way}or delete the request at the service "
            "(custody whitelist delete). After the deletion, the address is not whitelisted until a new request is "
            "signed.",
        ]
    return found


def _advice_on_duplicates(plan: WhitelistPlan) -> str:
    if any(row.state == "duplicate" and not row.action for row in plan.rows):
        return "prune=True deletes all duplicates, and replace=True only those that differ from the file."
    if plan.counts["duplicate"]:
        return "Applying this plan deletes the duplicates, because the requests that are kept are in effect."
    return ""


def changes_text(plan: WhitelistPlan, states: Collection[RowState]) -> str:
    """Return text with the number of rows in each of these states, and with the places of the first of these rows."""
    numbers = ", ".join(f"{plan.counts[state]} {state}" for state in states if plan.counts[state])
    # Name unverified rows first, because only a limited number of rows is named.
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
    Return the SHA-256, in hexadecimal, of everything that is approved.

    The order of the arguments' items does not matter.

    :param operations: the operations.
    :param observed: the other approved facts, see :attr:`WhitelistPlan.observed`. They are hashed under a label that
        differs from the operations' label, so that an operation and a fact with the same text have different hashes.
    :param service: name of the service and the tenant.
    """
    found = hashlib.sha256(_operation({"format": _HASH_FORMAT, "service": service}).encode())
    for label, texts in (("do", operations), ("observed", observed)):
        for each in sorted(texts):
            found.update(f"\n{label} {each}".encode())
    return found.hexdigest()


def requested_content(request: WhitelistRequest) -> dict[str, Any]:
    """Return the requested content, in the form that an operation contains."""
    content: dict[str, Any] = json.loads(_operation(_fields(request)))
    return content
