"""
Read and write files on this machine or in an object storage, which is reached through its Airflow connection.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_custody.client.arguments import check_text
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.files import write_new_file
from airflow_custody.client.text import sanitize

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator, Context

#: Schemes, in lower case, of URLs that Airflow itself treats as files of this machine.
_LOCAL_SCHEMES = ("file", "local")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
#: Errors of local files that a retry does not overcome.
_FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


class StorageError(Exception):
    """
    Raised for a file that cannot be read or written.

    :param name: the file's name, without secrets.
    :param why: the reason.
    :param retryable: whether the same call may succeed later. Default False.
    :param exists: whether the reason is an existing file. Default False.
    """

    def __init__(self, name: str, why: str, *, retryable: bool = False, exists: bool = False) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why
        self.retryable = retryable
        self.exists = exists


def split_location(location: str) -> tuple[str, str]:
    """
    Split a location into a local path and an object's URL.

    Either the path or the URL is empty.

    :param location: a path or a URL.
    :raises StorageError: if the location is a URL that must not be used. The error quotes neither a password nor a
        signature in it.
    """
    scheme, is_url, rest = location.partition("://")
    scheme = scheme.lower()
    if not is_url:
        return location, ""
    if scheme in _LOCAL_SCHEMES:
        return rest, ""
    if not _SCHEME.fullmatch(scheme):
        # Refuse a malformed scheme, because Airflow would remove white space from it. The URL could then become a
        # file:// URL, and lead out of the DAG bundle.
        raise StorageError(f"{scheme}://", "the part before :// is not an object storage scheme, such as s3")
    host, slash, key = rest.partition("?")[0].partition("/")
    user, _, host = host.rpartition("@")
    # Do not quote the rest if there is no slash: it may be part of a password that contains a ?.
    shown = f"{scheme}://{host}/{key}" if slash else f"{scheme}://"
    if ":" in user:
        raise StorageError(shown, "the part before the @ must be an Airflow connection id, never a password")
    if "?" in rest:
        # The rest may be a signature, which gives access to the file.
        raise StorageError(shown, "use the plain URL without a ?, because its Airflow connection signs the request")
    return "", f"{scheme}://{rest}"


def check_path(path: Any) -> str:
    """Return a path, URL or ``ObjectStoragePath`` as text."""
    if not isinstance(path, str):
        from airflow.providers.common.compat.sdk import ObjectStoragePath

        path = str(path) if isinstance(path, ObjectStoragePath) else path
    text = check_text("path", path)
    if "\0" in text:
        raise CustodyRequestError(f"the path {sanitize(text, 200)!r} has a NUL; nothing was read", code="file-wrong")
    return text


def locate(task: BaseOperator, path: Any, context: Context, *, to_write: bool = False) -> tuple[str, str]:
    """
    Return the full local path and the URL of a task's file. One of them is empty.

    To read: a relative path starts at the folder of the DAG file, and must stay within the DAG bundle (on Airflow 2,
    the DAGs folder), because only the content of the bundle was reviewed. For the same reason, an absolute path into
    the bundle must not leave it through a link.

    To write: the path must be absolute, and must not pass through the bundle, because Airflow replaces and removes the
    folders of a bundle, and a link in it could lead anywhere.

    :param task: the task.
    :param path: a path, a URL or an ``ObjectStoragePath``.
    :param context: the task's context.
    :param to_write: whether the file is to be written. Default False: it is read.
    :raises CustodyRequestError: if the path is malformed, or is not allowed.
    :raises StorageError: like :func:`split_location`.
    """
    local, url = split_location(check_path(path))
    if url:
        return "", url
    folder, root = _folder_and_root(task, context)
    given = Path(os.path.normpath(folder / local))
    is_relative = not Path(local).is_absolute()
    shown = repr(sanitize(local, 200))
    if to_write:
        if is_relative or _passes(root, given):
            why = "is relative" if is_relative else "leads into the DAG bundle"
            raise CustodyRequestError(
                f"the path {shown} {why}; nothing was written",
                setting="path",
                advice="Use an absolute path outside the DAGs folder, or an object storage URL.",
                code="file-wrong",
            )
        return str(given), ""
    archive = next((each for each in (folder, *folder.parents) if each.is_file()), None)
    if is_relative and archive is not None:
        raise CustodyRequestError(
            f"the path {shown} is relative, and the DAG file is in the archive {sanitize(archive, 300)}; nothing was "
            "read",
            advice="Keep the whitelist file outside the archive, and use its absolute path or an object storage URL.",
            code="file-wrong",
        )
    if (is_relative or _passes(root, given)) and not _is_in(root, given):
        raise CustodyRequestError(
            f"the path {shown} leads out of the DAG bundle, to {sanitize(os.path.realpath(given), 300)}; nothing was "
            "read",
            advice="Keep the file in the bundle, where its changes are reviewed, or use its absolute path.",
            code="file-wrong",
        )
    return str(given), ""


def _folder_and_root(task: BaseOperator, context: Context) -> tuple[Path, Path]:
    """
    Return the folders of the DAG file and of its bundle.

    On Airflow 2, the DAGs folder counts as the bundle.
    """
    # Import Airflow's configuration only here, because the command line also uses this module, and does not need it.
    from airflow.providers.common.compat.sdk import conf

    dag_file = task.dag.fileloc if task.has_dag() else None  # type: ignore[no-untyped-call]
    folder = Path(dag_file).parent if dag_file else Path.cwd()
    bundle: Any = getattr(context["ti"], "bundle_instance", None)
    if bundle is not None:
        return folder, Path(bundle.path)
    root = Path(conf.get("core", "dags_folder"))
    # In a test or a script, the DAG file may be outside the DAGs folder. Its own folder then counts as the bundle.
    return folder, root if _is_in(root, folder) else folder


def _passes(root: Path, path: Path) -> bool:
    """Tell whether a path, or any of its parents, lies in a folder."""
    return any(_is_in(root, each) for each in (path, *path.parents))


def _is_in(root: Path, path: Path) -> bool:
    """Tell whether a path, with all links followed, lies in a folder."""
    # Use os.path.realpath(), because Path.resolve() raises an error for a loop of links.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def read_object(url: str, size: int) -> bytes:
    """Return the first bytes of a file in an object storage."""
    try:
        with _object_path(url).open("rb") as file:
            data: bytes = file.read(size)
    except Exception as error:
        raise _storage_error(url, error) from None
    return data


def write_location(path: str, url: str, data: bytes) -> None:
    """
    Write a new file, either completely or not at all. An existing file is never replaced.

    In an object storage, another writer may create the same file between the check and the write. The write then fails
    only if the storage supports conditional writes.

    :param path: the file's path on this machine; empty: the file is in an object storage.
    :param url: the object's URL, if the path is empty.
    :param data: the file's content.
    :raises StorageError: if the file already exists, or cannot be written.
    """
    try:
        if path:
            write_new_file(path, data)
            return
        target = _object_path(url)
        if target.exists():
            raise FileExistsError
        # Write with a single call. If the file were opened first and writing failed, a part of it would be stored.
        target.fs.pipe_file(target.path, data, mode="create")
    except Exception as error:
        raise _storage_error(path or url, error) from None


def _object_path(url: str) -> Any:
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    return ObjectStoragePath(url)


def _storage_error(name: str, error: Exception) -> StorageError:
    """
    Return the error for a failure of a storage, whose exceptions may have any type.
    """
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    exists = isinstance(error, FileExistsError)
    if isinstance(error, FileNotFoundError):
        why = "there is no such file or folder"
    elif exists:
        why = "it already exists, and is never replaced"
    elif "://" not in name and isinstance(error, OSError):
        # Name the requested file, because the error itself names a temporary file.
        why = error.strerror or type(error).__name__
    else:
        why = f"{type(error).__name__}: {sanitize(error, 500)}"
    final = (*_FINAL, ValueError, ImportError, AirflowNotFoundException)
    return StorageError(name, why, retryable=not isinstance(error, final), exists=exists)
