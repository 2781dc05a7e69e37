"""An object storage in memory, behind the id of an Airflow connection."""

from __future__ import annotations

import importlib
import itertools
from typing import Any, ClassVar

from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from support.airflow.airflow_runs import AIRFLOW

_numbers = itertools.count()


def attach(name: str, storage: MemoryFileSystem) -> str:
    """Attach a file system to a new connection id; return its URL."""
    module = importlib.import_module("airflow.sdk.io" if AIRFLOW >= (3, 0) else "airflow.io.store")
    conn_id = f"{name}_{next(_numbers)}"
    module.attach("s3", conn_id, fs=storage)
    return f"s3://{conn_id}@bucket"


class Storage(MemoryFileSystem):  # type: ignore[misc]
    """A storage in which opening a file raises ``error``, if set."""

    store: ClassVar[dict[str, Any]] = {}
    error: Exception | None = None

    def _open(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise self.error
        return super()._open(path, *args, **kwargs)


def object_path(url: str) -> Any:
    return importlib.import_module("airflow.providers.common.compat.sdk").ObjectStoragePath(url)
