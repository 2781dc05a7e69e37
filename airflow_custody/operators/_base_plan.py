"""Functions that the operators for plans share: reading the whitelist, and checking a plan and its hash."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import check_text, describe
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import count, sanitize
from airflow_custody.hooks._storage import StorageError, locate, read_object

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client.whitelist.files.reading import WhitelistFile
    from airflow_custody.client.whitelist.plans.source import PlanSource
    from airflow_custody.operators._base import CustodyOperator


def read_whitelist(source: PlanSource, task: CustodyOperator, rows: Any, context: Context) -> WhitelistFile:
    """
    Read the whitelist of a plan.

    :param source: the path of the whitelist, and the settings of the plan.
    :param task: the task that reads the whitelist.
    :param rows: the list of rows, if there is no path.
    :param context: the task's context.
    :raises CustodyRequestError: if the whitelist has faults, or the file cannot be read.
    """
    from airflow_custody.client.whitelist.files import reading

    if source.path is None:
        file = reading.read_whitelist_rows(
            rows, check_addresses=source.check_address, omit_if_none=tuple(source.omit_if_none)
        )
    else:
        try:
            local, url = locate(task, source.path, context)
            if url:
                # Refuse an unknown format before reading the file.
                format = reading.format_of(url)
                data = read_object(url, reading.MAX_FILE_BYTES + 1)
                file = reading.parse_whitelist(data, format, name=url, check_addresses=source.check_address)
            else:
                file = reading.read_whitelist_file(local, check_addresses=source.check_address)
        except StorageError as error:
            raise reading.file_error(error.name, [error.why], retryable=error.retryable) from None
    task.log.info("Read %s from %s (SHA-256 %s).", count(len(file.rows), "row"), file.name, file.sha256)
    if file.unchecked:
        task.log.info("%s: %s.", file.name, file.unchecked_text)
    return file


def check_hash(value: object) -> str:
    """
    Check and return a plan's hash.

    Any other text, such as a truncated hash, is an error.
    """
    if isinstance(value, Mapping):
        raise CustodyRequestError(
            "plan_hash must be the hash alone; nothing is sent",
            advice='Write plan_hash=plan.output["plan_hash"].',
            code="parameter-wrong",
        )
    text = check_text("plan_hash", value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise CustodyRequestError(
            f"plan_hash must be all 64 hexadecimal digits of a plan's hash, not {describe(text)}; nothing is sent",
            code="parameter-wrong",
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
            advice="Write plan=plan.output; in a template, {{ ti.xcom_pull(...) | tojson }}.",
            code="parameter-wrong",
        )
    return plan


def source_of(plan: Mapping[str, Any]) -> PlanSource:
    """
    Return the whitelist and the settings of a plan.

    :param plan: the result of a plan task.
    :raises CustodyRequestError: if the plan lacks them, or if they are malformed.
    """
    if "source" not in plan:
        why = (
            "it has no 'source' with the plan's settings: either it is not the whole plan.output, or another "
            "version of airflow-provider-custody made it"
        )
    else:
        from pydantic import ValidationError

        from airflow_custody.client.whitelist.plans.source import PlanSource

        try:
            return PlanSource.model_validate(plan["source"])
        except ValidationError as error:
            where = ".".join(map(str, ("source", *error.errors()[0]["loc"])))
            why = f"its {sanitize(where, 80)} is malformed"
    raise CustodyRequestError(
        f"the plan cannot be applied, because {why}; nothing is sent",
        setting="plan",
        advice="Write plan=plan.output, and start a new run, which plans again.",
        code="parameter-wrong",
    )
