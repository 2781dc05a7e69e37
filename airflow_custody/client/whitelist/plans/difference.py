"""Describes how a plan differs from the approved plan. The description is for people; the hash decides."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from airflow_custody.client.text import count, name_some
from airflow_custody.client.whitelist.plans.plan import create_operation, part_key

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.plans.plan import WhitelistPlan


def describe_difference(approved: Mapping[str, str], plan: WhitelistPlan) -> str:
    """
    Describe how a plan differs from the approved plan, creations first.

    :param approved: the :attr:`~WhitelistPlan.parts` of the approved plan. Empty if they are unknown; then the text
        only describes the operations of the current plan.
    :param plan: the current plan.
    """
    now = plan.parts
    if not approved:
        number = plan.counts["pending"]
        pending = f"; already pending: {count(number, 'row')}" if number else ""
        operations = _name(name for name in now.values() if name.startswith(("create ", "delete ")))
        return f"The current plan: {_numbers(now.values())} ({operations or 'nothing to do'}){pending}"
    new = [now[key] for key in now if key not in approved]
    states = {part_key(create_operation(row.request)): row.state for row in plan.rows if row.where and row.request}
    gone = {
        name: f"{name} (now {states[key]})" if key in states else name
        for key, name in approved.items()
        if key not in now
    }
    kinds = {
        "new": [name for name in new if name not in gone],
        "changed": [name for name in new if name in gone],
        "no longer planned": [text for name, text in gone.items() if name not in new],
    }
    found = "; ".join(f"{kind}: {_name(names)}" for kind, names in kinds.items() if names)
    return f"Approved: {_numbers(approved.values())}. Now: {_numbers(now.values())}. {found}".rstrip()


def lost_creations(approved: Mapping[str, str], kept: Collection[str]) -> str:
    """
    Name the approved creations that the file no longer has.

    :param approved: the :attr:`~WhitelistPlan.parts` of the approved plan; empty if they are unknown.
    :param kept: the keys, as in ``approved``, of the creations that the file still has.
    """
    return _name(name for key, name in approved.items() if key not in kept and _is_creation(name))


def _numbers(names: Collection[str]) -> str:
    creates, deletes = sum(map(_is_creation, names)), sum(name.startswith("delete ") for name in names)
    return f"create {creates}, delete {deletes}"


def _name(names: Iterable[str]) -> str:
    return name_some(sorted(names, key=lambda name: not _is_creation(name)), 80)


def _is_creation(name: str) -> bool:
    return name.startswith("create ")
