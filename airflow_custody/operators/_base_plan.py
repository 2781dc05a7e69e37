"""The base of the operators that plan and apply a whitelist that is kept as a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_custody._base import EFFECTIVE_STATUSES, REJECTED_STATUSES, check_flags
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context

    from airflow_custody.client.whitelist.file import WhitelistFile
    from airflow_custody.idempotency.apply_plan import PlanSettings

# The arguments that must be the same for planning and applying, besides the file.
_SAME = ("prune", "dry_run_chains", "effective_statuses", "rejected_statuses", "accept_fields", "custody_conn_id")


class WhitelistFileTask(CustodyOperator):
    """The base of planning and applying: the file and the settings of a plan."""

    none_is_a_value = ("effective_statuses",)

    def __init__(
        self,
        *,
        path: str,
        prune: bool = False,
        dry_run_chains: Iterable[str] = (),
        check_address: bool = True,
        effective_statuses: Iterable[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        accept_fields: Iterable[str] = (),
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        check_flags(prune=prune, check_address=check_address)
        self.path = path
        self.prune = prune
        self.dry_run_chains = dry_run_chains
        self.check_address = check_address
        self.effective_statuses = effective_statuses
        self.rejected_statuses = rejected_statuses
        self.accept_fields = accept_fields
        # Each value has a key of its own, too: plan.output["plan_hash"]. Set here, as a mapped task loses a default.
        self.multiple_outputs = True

    def _differing_arguments(self, planner: WhitelistFileTask) -> list[str]:
        """Describe the arguments that decide what is planned, and that another task was given otherwise."""
        return [
            f"{name}={getattr(self, name)!r} (there {getattr(planner, name)!r})"
            for name in _SAME
            if _comparable(getattr(self, name)) != (other := _comparable(getattr(planner, name)))
            # A template is rendered here only.
            and other is not None
            and not any("{" in each for each in other)
        ]

    def _push(self, context: Context, result: dict[str, Any]) -> None:
        """Push to XCom what the task would return, before it fails or is skipped."""
        for key, value in {**result, "return_value": result}.items():
            context["ti"].xcom_push(key=key, value=value)

    def _read_file(self, context: Context) -> WhitelistFile:
        from airflow_custody.client.arguments import check_text
        from airflow_custody.client.text import count
        from airflow_custody.client.whitelist.addresses import is_installed
        from airflow_custody.client.whitelist.file import read_whitelist_file

        path = resolve_path(check_text("path", self.path), self, context)
        file = read_whitelist_file(path, check_addresses=self.check_address)
        self.log.info("Read %s from %s (SHA-256 %s).", count(len(file.rows), "row"), path, file.sha256)
        if file.unchecked:
            log = self.log.info if is_installed() else self.log.warning
            log("%s: %s.", path, file.unchecked_text)
        return file

    def _settings(self) -> PlanSettings:
        from airflow_custody.client.arguments import check_names
        from airflow_custody.idempotency.apply_plan import PlanSettings

        return PlanSettings(
            prune=self.prune,
            dry_run_chains=check_names("dry_run_chains", self.dry_run_chains, may_be_empty=True) or (),
            effective_statuses=check_names("effective_statuses", self.effective_statuses),
            rejected_statuses=check_names("rejected_statuses", self.rejected_statuses, may_be_empty=True) or (),
            accept_fields=check_names("accept_fields", self.accept_fields, may_be_empty=True) or (),
        )


def _comparable(value: object) -> set[str] | None:
    """Return an argument in a form that can be compared; None if it is not given as it is, but by another task."""
    if value is None or isinstance(value, (bool, str)):
        return {str(value)}
    return {str(each) for each in value} if isinstance(value, (list, tuple, set, frozenset)) else None


def check_hash(value: object) -> str:
    """Return a plan's hash; raise if it is anything else, a part of one above all."""
    from airflow_custody.client.arguments import check_text, describe
    from airflow_custody.client.errors import CustodyRequestError

    if isinstance(value, Mapping):
        raise CustodyRequestError(
            "plan_hash must be the hash alone; nothing was sent",
            advice='Write plan_hash=plan.output["plan_hash"].',
            code="plan-changed",
        )
    text = check_text("plan_hash", value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise CustodyRequestError(
            f"plan_hash must be all 64 hexadecimal digits of a plan's hash, not {describe(text)}; nothing was sent",
            code="plan-changed",
        )
    return text


def resolve_path(path: str, operator: BaseOperator, context: Context) -> Path:
    """
    Return the file that a path means.

    A relative path begins in the folder of the DAG's file. What lies in a DAG bundle, or on Airflow 2 in the DAGs
    folder, must not be a link that leads out of it: the bundle is what was reviewed.

    :param path: the path.
    :param operator: the operator.
    :param context: the task's context.
    :raises CustodyRequestError: if the path leads out of the bundle.
    """
    dag_file = operator.dag.fileloc if operator.has_dag() else None  # type: ignore[no-untyped-call]
    folder = Path(dag_file).parent if dag_file else Path.cwd()
    given = Path(os.path.normpath(folder / path))
    root = _root(context, folder)
    is_inside = given.is_relative_to(root) or given.is_relative_to(root.resolve())
    if (is_inside or not Path(path).is_absolute()) and not given.resolve().is_relative_to(root.resolve()):
        from airflow_custody.client.errors import CustodyRequestError
        from airflow_custody.client.text import sanitize

        raise CustodyRequestError(
            f"the path {sanitize(path, 200)!r} leads out of the DAG's bundle, to {sanitize(given.resolve(), 300)}; "
            "nothing was read",
            advice="Keep the file in the bundle, where its changes are reviewed, or give its absolute path.",
            code="file-wrong",
        )
    return given


def _root(context: Context, folder: Path) -> Path:
    """Return the folder that a relative path must not lead out of."""
    bundle: Any = getattr(context["ti"], "bundle_instance", None)
    if bundle is not None:
        root = Path(bundle.path)
    else:
        from airflow.providers.common.compat.sdk import conf

        root = Path(conf.get("core", "dags_folder"))
    # A DAG that is in neither: a test's, or one in a script.
    return root if folder.resolve().is_relative_to(root.resolve()) else folder
