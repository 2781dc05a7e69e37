"""Files that an operator reads: where a path leads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context


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
