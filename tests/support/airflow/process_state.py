"""Remove what Airflow keeps for the rest of a process, so that it does not reach later tests."""

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
    Remove what is added within.

    - The handler that ``dag.test()`` of Airflow 2 adds to the tasks' log. It writes to the standard output of one test,
      which is closed afterwards: then each line is an error of logging, printed, and ``dag.test()`` adds no other.
    - The secrets that are masked. One of one letter, as a wrong token may be, changes what is logged later.
    """
    log = logging.getLogger("airflow.task")
    handlers = log.handlers[:]
    yield
    log.handlers[:] = handlers
    for name in _MASKERS:
        if masker := vars(sys.modules.get(name, object)).get("_secrets_masker"):
            masker().patterns, masker().replacer = set(), None
