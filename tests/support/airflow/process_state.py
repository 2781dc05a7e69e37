"""Removes state that Airflow keeps in a process, before later tests run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MASKERS = (
    "airflow.sdk._shared.secrets_masker.secrets_masker",
    "airflow._shared.secrets_masker.secrets_masker",
    "airflow.sdk.execution_time.secrets_masker",
    "airflow.utils.log.secrets_masker",
)


@contextmanager
def restored() -> Iterator[None]:
    """
    Remove what Airflow adds to the process within the context.

    - The handler that ``dag.test()`` of Airflow 2 adds to the tasks' log. It writes to the standard output of one test,
      which is closed afterwards. Each later log line would print an error, and ``dag.test()`` would add no new handler.
    - The secrets to mask. A secret of one letter, such as an invalid token, would change what later tests log.
    """
    log = logging.getLogger("airflow.task")
    handlers = log.handlers[:]
    yield
    log.handlers[:] = handlers
    for name in _MASKERS:
        if masker := vars(sys.modules.get(name, object)).get("_secrets_masker"):
            masker().patterns, masker().replacer = set(), None
