"""The whitelist and the settings of a plan, which the plan task writes and the apply task reads."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from airflow_custody.client.whitelist.plans.plan import check_only
from airflow_custody.client.whitelist.plans.planner import PlanSettings, check_ignored


class PlanSource(BaseModel):
    """
    The whitelist and the settings of a plan, which the plan task writes, and the apply task reads.

    Airflow users can edit this part of the XCom. That gains them nothing, because only operations with the approved
    hash are applied.

    :param path: the file: a path or URL. None: the whitelist is a list of rows, which each task gets itself.
    :param prune: see :class:`~airflow_custody.client.whitelist.plans.planner.PlanSettings`.
    :param replace: see the same class.
    :param only: see the same class; empty: everything.
    :param ignore: see the same class.
    :param check_address: whether an invalid address is a fault of the file.
    :param omit_if_none: names of fields that are left out of a row if their value is None.
    :param at_most: the number of operations of the part that was planned; None: it has all of them. The plan task has
        decided this number, because the whole plan and its report decide how many operations fit into one approval.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    path: str | None
    prune: bool
    replace: bool
    only: dict[str, list[str]]
    ignore: list[str]
    check_address: bool
    omit_if_none: list[str]
    at_most: int | None

    def plan_settings(self) -> PlanSettings:
        """Check and return the settings of the plan."""
        only = check_only(self.only) if self.only else {}
        return PlanSettings(prune=self.prune, replace=self.replace, only=only, ignore=check_ignored(self.ignore))
