"""Resolve and check the paths of files that operators read and write."""

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
    """Return a path, URL or ``ObjectStoragePath`` as text."""
    if not isinstance(path, str):
        from airflow.providers.common.compat.sdk import ObjectStoragePath

        path = str(path) if isinstance(path, ObjectStoragePath) else path
    text = check_text("path", path)
    if "\0" in text:
        raise CustodyRequestError(f"the path {sanitize(text, 200)!r} has a NUL; nothing was read", code="file-wrong")
    return text


def path_to_read(task: CustodyOperator, path: str, context: Context) -> Path:
    """
    Return the full path of a local file to read.

    A relative path starts at the folder of the DAG file, and must stay within the DAG bundle (on Airflow 2, the DAGs
    folder). An absolute path into the bundle must not leave the bundle through a link. Only the content of the bundle
    was reviewed.

    :raises CustodyRequestError: if the path leads out of the bundle, or is relative to an archive.
    """
    folder, root = _folder_and_root(task, context)
    is_relative = not Path(path).is_absolute()
    archive = next((each for each in (folder, *folder.parents) if each.is_file()), None)
    if is_relative and archive is not None:
        raise CustodyRequestError(
            f"the path {sanitize(path, 200)!r} is relative, and the DAG file is in the archive "
            f"{sanitize(archive, 300)}; nothing was read",
            advice="Keep the whitelist file outside the archive, and give its absolute path or an object storage URL.",
            code="file-wrong",
        )
    given = Path(os.path.normpath(folder / path))
    if (is_relative or _passes(root, given)) and not _is_in(root, given):
        raise CustodyRequestError(
            f"the path {sanitize(path, 200)!r} leads out of the DAG bundle, to "
            f"{sanitize(os.path.realpath(given), 300)}; nothing was read",
            advice="Keep the file in the bundle, where its changes are reviewed, or give its absolute path.",
            code="file-wrong",
        )
    return given


def path_to_write(task: CustodyOperator, path: str, context: Context) -> Path:
    """
    Return the full path of a local file to write.

    The path must be absolute, and must not pass through the DAG's bundle: Airflow replaces and removes the folders of
    a bundle, and a link in it could lead anywhere.

    :raises CustodyRequestError: if the path is relative, or passes through the bundle.
    """
    _, root = _folder_and_root(task, context)
    given = Path(os.path.normpath(path))
    if given.is_absolute() and not _passes(root, given):
        return given
    why = "leads into the DAG bundle" if given.is_absolute() else "is relative"
    raise CustodyRequestError(
        f"the path {sanitize(path, 200)!r} {why}; nothing was written",
        setting="path",
        advice="Give an absolute path outside the DAGs folder, or an object storage URL.",
        code="file-wrong",
    )


def _folder_and_root(task: CustodyOperator, context: Context) -> tuple[Path, Path]:
    """
    Return the folders of the DAG file and of its bundle.

    On Airflow 2, the DAGs folder counts as the bundle.
    """
    dag_file = task.dag.fileloc if task.has_dag() else None  # type: ignore[no-untyped-call]
    folder = Path(dag_file).parent if dag_file else Path.cwd()
    bundle: Any = getattr(context["ti"], "bundle_instance", None)
    if bundle is not None:
        return folder, Path(bundle.path)
    root = Path(conf.get("core", "dags_folder"))
    # In a test or a script, the DAG file may be outside the DAGs folder.
    return folder, root if _is_in(root, folder) else folder


def _passes(root: Path, path: Path) -> bool:
    """Tell whether a path, or any of its parents, lies in a folder."""
    return any(_is_in(root, each) for each in (path, *path.parents))


def _is_in(root: Path, path: Path) -> bool:
    """Tell whether a path, with all links followed, lies in a folder. A loop of links ends where it begins."""
    # Path.resolve() raises an error for a loop.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
