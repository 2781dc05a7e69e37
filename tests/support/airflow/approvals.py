"""The users who respond to the approvals of this process's Airflow, through its REST API."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.airflow.airflow_runs import Run, run_dag

_DEMO = Path(__file__).parents[3] / "demo"


class Notices(logging.Handler):
    """Notices when something is logged: here that dag.test() has seen that the task waits; before, it must not end."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.text in record.getMessage():
            self.seen.set()


class Office:
    """The people who respond to the approvals of this process's Airflow."""

    def __init__(self, carol: Any, mallory: Any) -> None:
        self.carol = carol
        self.mallory = mallory
        self.question: dict[str, Any] = {}

    def run(self, dag: Any, respond: Callable[[], object], **kwargs: Any) -> Run:
        """Run a DAG, and do something in a thread while it waits for the approval."""
        notices = Notices("Waiting for Human-in-the-loop input")
        ended = threading.Event()

        def wait_and_respond() -> None:
            while not notices.seen.wait(0.2):
                if ended.is_set():
                    return
            (self.question,) = self.carol.pending_approvals()
            respond()

        thread = threading.Thread(target=wait_and_respond, daemon=True)
        thread.start()
        log = logging.getLogger(type(dag).__module__)
        log.addHandler(notices)
        log.setLevel(logging.INFO)
        try:
            return run_dag(dag, **kwargs)
        finally:
            log.removeHandler(notices)
            log.setLevel(logging.NOTSET)
            ended.set()
            thread.join(timeout=600)

    def approve(self) -> None:
        """Approve what is asked."""
        assert self.carol.respond(self.question, "Approve") == 200

    def reject(self) -> None:
        """Reject what is asked."""
        assert self.carol.respond(self.question, "Reject") == 200


def open_office() -> Office:
    """Serve Airflow's REST API, and return its users."""
    sys.path.insert(0, str(_DEMO))
    try:
        from _airflow_api import serve_api
    finally:
        sys.path.remove(str(_DEMO))
    return Office(*serve_api("carol", "mallory"))
