"""The pod of the guide to executors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from support.airflow.airflow_runs import load
from support.keys.hsm import missing

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.filterwarnings("ignore")
def test_the_pod_has_the_key() -> None:
    if importlib.util.find_spec("kubernetes") is None:
        missing("Kubernetes' client is not installed: pip install kubernetes")
    kubernetes: Any = importlib.import_module("kubernetes.client")
    (task,) = load(ROOT / "docs" / "snippets" / "kubernetes_pod.py").dag.tasks
    spec = kubernetes.ApiClient().sanitize_for_serialization(task.executor_config["pod_override"])["spec"]
    assert spec["containers"] == [
        {"name": "base", "volumeMounts": [{"name": "signer", "mountPath": "/etc/custody", "readOnly": True}]}
    ]
    assert spec["volumes"] == [{"name": "signer", "secret": {"secretName": "custody-first-signer", "defaultMode": 256}}]
    assert task.signer.name == "/etc/custody/key.pem"
