"""A program that reads the webhook calls of an asset in a real run, and is killed. Argument: the URI of the asset."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset
from support.airflow.airflow_runs import run_dag

from airflow_custody.operators.webhook import CustodyReadWebhookCallsOperator


class KilledOperator(CustodyReadWebhookCallsOperator):
    """The operator, killed right after it has done its work."""

    def _run(self, context: Any, hook: Any) -> dict[str, Any]:
        super()._run(context, hook)
        if context["outlet_events"][self.asset].extra["count"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the task did not read exactly two calls")


if __name__ == "__main__":
    with DAG("killed_read", schedule=None) as dag:
        KilledOperator(task_id="read", asset=Asset(uri=sys.argv[1]), start="beginning")
    run_dag(dag)
