"""The source of a plan, which the plan task passes to the apply task."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from airflow_custody.client.whitelist.plans.plan import check_only
from airflow_custody.client.whitelist.plans.planner import PlanSettings, check_ignored


class PlanSource(BaseModel):
    """
    The whitelist and the settings of a plan, which the plan task writes, and the apply task reads.

    Airflow users can edit this part of the XCom. An edit has no effect but an error, because only operations with the
    approved hash are applied.

    :param path: the file: a path or URL. None: the whitelist is a list of rows, and each task has its own parameter
        ``rows``.
    :param prune: see :class:`~airflow_custody.client.whitelist.plans.planner.PlanSettings`.
    :param replace: see the same class.
    :param only: see the same class; empty: everything.
    :param ignore: see the same class.
    :param check_address: whether an invalid address is a fault of the file.
    :param omit_if_none: names of fields that are left out of a row if their value is None.
    :param at_most: the number of operations in the approved part of the plan; None: the plan was approved as a whole.
        The plan task determines this number, because it depends on the size of the report how many operations one
        approval can show.
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
