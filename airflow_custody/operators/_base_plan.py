"""The base of the operators that plan and apply a whitelist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_custody._base import NOT_GIVEN
from airflow_custody.client.arguments import check_flag, check_text, describe
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import count
from airflow_custody.hooks._storage import StorageError, locate, read_object
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import WhitelistEventTask
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, ObjectStoragePath

    from airflow_custody.client.whitelist.files.reading import WhitelistFile
    from airflow_custody.client.whitelist.plans.planner import PlanSettings


class WhitelistFileTask(WhitelistEventTask):
    """
    The base of the tasks that plan and apply a whitelist.

    Both tasks must have the same whitelist and settings.
    """

    template_fields: Sequence[str] = (
        "path",
        "replace",
        "only",
        "rows",
        "ignore",
        "custody_conn_id",
    )

    def __init__(
        self,
        *,
        path: str | ObjectStoragePath = NOT_GIVEN,
        rows: str | Iterable[Mapping[str, Any]] = NOT_GIVEN,
        prune: bool = False,
        replace: bool | str = False,
        only: Mapping[str, Any] = NOT_GIVEN,
        check_address: bool = True,
        ignore: Iterable[str | int] = (),
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(prune=prune, check_address=check_address)
        if (path is NOT_GIVEN) == (rows is NOT_GIVEN):
            self._refuse("give either path or rows: the whitelist is either a file or a list of rows")
        if self.omit_if_none and rows is NOT_GIVEN:
            self._refuse("omit_if_none applies only to rows: in a file, leave out fields without a value")
        self.path = path
        self.rows = rows
        self.prune = prune
        self.replace = replace
        self.only = only
        self.check_address = check_address
        self.ignore = ignore

    @classmethod
    def _optional_parameters(cls) -> set[str]:
        """Return the names that ``omit_if_none`` may contain, including a row's optional fields."""
        of_a_row = CustodyCreateWhitelistRequestOperator._optional_parameters()
        return (super()._optional_parameters() - {"path", "rows"}) | of_a_row

    def _read_file(self, context: Context) -> WhitelistFile:
        from airflow_custody.client.whitelist.files.reading import read_whitelist_rows

        if self.rows is None:
            file = self._read_path(context)
        else:
            file = read_whitelist_rows(self.rows, check_addresses=self.check_address, omit_if_none=self.omit_if_none)
        self.log.info("Read %s from %s (SHA-256 %s).", count(len(file.rows), "row"), file.name, file.sha256)
        if file.unchecked:
            self.log.info("%s: %s.", file.name, file.unchecked_text)
        return file

    def _read_path(self, context: Context) -> WhitelistFile:
        from airflow_custody.client.whitelist.files.reading import (
            MAX_FILE_BYTES,
            file_error,
            format_of,
            parse_whitelist,
            read_whitelist_file,
        )

        try:
            local, url = locate(self, self.path, context)
            if not url:
                return read_whitelist_file(local, check_addresses=self.check_address)
            # Refuse an unknown format before reading the file.
            format = format_of(url)
            data = read_object(url, MAX_FILE_BYTES + 1)
        except StorageError as error:
            raise file_error(error.name, [error.why], retryable=error.retryable) from None
        return parse_whitelist(data, format, name=url, check_addresses=self.check_address)

    def _settings(self) -> PlanSettings:
        """Check and return the settings of the plan."""
        from airflow_custody.client.whitelist.plans import plan, planner

        return planner.PlanSettings(
            prune=self.prune,
            replace=check_flag("replace", self.replace),
            only={} if self.only is None else plan.check_only(self.only),
            ignore=planner.check_ignored(self.ignore),
        )


def check_hash(value: object) -> str:
    """
    Check and return a plan's hash.

    Any other text, such as a truncated hash, is an error.
    """
    if isinstance(value, Mapping):
        raise CustodyRequestError(
            "plan_hash must be the hash alone; nothing is sent",
            advice='Write plan_hash=plan.output["plan_hash"].',
            code="plan-changed",
        )
    text = check_text("plan_hash", value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise CustodyRequestError(
            f"plan_hash must be all 64 hexadecimal digits of a plan's hash, not {describe(text)}; nothing is sent",
            code="plan-changed",
        )
    return text


def check_plan(plan: object, consequence: str) -> Mapping[str, Any]:
    """
    Check that a value is the result of a plan task, and return it.

    :param plan: the value, or its JSON text.
    :param consequence: the consequence of an error, such as ``nothing is sent``.
    """
    if isinstance(plan, str):
        with suppress(ValueError):
            plan = json.loads(plan)
    if not isinstance(plan, Mapping):
        raise CustodyRequestError(
            f"plan must be the result of a plan task, not {describe(plan)}; {consequence}",
            advice="Write plan=plan.output.",
            code="plan-changed",
        )
    return plan
