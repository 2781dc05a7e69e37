"""The files that operators read and write: which place a path means, seen from a DAG."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_custody.client.arguments import check_text
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.operators._base import CustodyOperator


def check_path(path: Any) -> str:
    """Return a path or a URL, given as text or as an ``ObjectStoragePath``."""
    if not isinstance(path, str):
        from airflow.providers.common.compat.sdk import ObjectStoragePath

        path = str(path) if isinstance(path, ObjectStoragePath) else path
    return check_text("path", path)


def path_to_read(task: CustodyOperator, path: str, context: Context) -> Path:
    """
    Return the file on this machine that a path means.

    A relative path begins in the folder of the DAG's file. A path that leads into a DAG bundle, or on Airflow 2
    into the DAGs folder, must not leave it through a link: the bundle is what was reviewed.

    :raises CustodyRequestError: if it leads out of the bundle, or begins in an archive.
    """
    folder, root = _folder_and_root(task, context)
    is_relative = not Path(path).is_absolute()
    archive = next((each for each in (folder, *folder.parents) if each.is_file()), None)
    if is_relative and archive is not None:
        raise CustodyRequestError(
            f"the path {sanitize(path, 200)!r} is relative, and the DAG's file is in an archive, "
            f"{sanitize(archive, 300)}; nothing was read",
            advice="Keep the whitelist file outside the archive, and give its absolute path, or the URL of an "
            "object storage.",
            code="file-wrong",
        )
    given = Path(os.path.normpath(folder / path))
    if (is_relative or _passes(root, given)) and not _is_in(root, given):
        raise CustodyRequestError(
            f"the path {sanitize(path, 200)!r} leads out of the DAG's bundle, to {sanitize(given.resolve(), 300)}; "
            "nothing was read",
            advice="Keep the file in the bundle, where its changes are reviewed, or give its absolute path.",
            code="file-wrong",
        )
    return given


def path_to_write(task: CustodyOperator, path: str, context: Context) -> Path:
    """
    Return the file on this machine that is to be written.

    The path must be absolute, and must not pass through the DAG's bundle: Airflow replaces and removes the folders of
    a bundle, and a link in it could lead anywhere.

    :raises CustodyRequestError: if it is another path.
    """
    _, root = _folder_and_root(task, context)
    given = Path(os.path.normpath(path))
    if given.is_absolute() and not _passes(root, given):
        return given
    why = "leads into the DAG's bundle" if given.is_absolute() else "is relative"
    raise CustodyRequestError(
        f"the path {sanitize(path, 200)!r} {why}; nothing was written",
        setting="path",
        advice="Give an absolute path outside the folder of the DAGs, or the URL of an object storage.",
        code="file-wrong",
    )


def _folder_and_root(task: CustodyOperator, context: Context) -> tuple[Path, Path]:
    """Return the folder of the DAG's file, and the bundle, or on Airflow 2 the DAGs folder, that it is in."""
    dag_file = task.dag.fileloc if task.has_dag() else None  # type: ignore[no-untyped-call]
    folder = Path(dag_file).parent if dag_file else Path.cwd()
    bundle: Any = getattr(context["ti"], "bundle_instance", None)
    if bundle is not None:
        return folder, Path(bundle.path)
    root = Path(conf.get("core", "dags_folder"))
    # A test's DAG, or one in a script, is in neither.
    return folder, root if _is_in(root, folder) else folder


def _passes(root: Path, path: Path) -> bool:
    """Tell whether a path, however it is spelled, or some folder on its way lies in a folder."""
    return any(_is_in(root, each) for each in (path, *path.parents))


def _is_in(root: Path, path: Path) -> bool:
    """Tell whether a path lies in a folder, after all links."""
    return path.resolve().is_relative_to(root.resolve())
