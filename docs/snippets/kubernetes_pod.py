"""Only the pod of this task has the signer's key. Tests create the pod object; no cluster was used."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG
from kubernetes.client import models as k8s

from airflow_custody.client.signers import PemSigner
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator

KEYS = "/etc/custody"
WITH_KEY = {
    "pod_override": k8s.V1Pod(
        spec=k8s.V1PodSpec(
            # Airflow's container. Its other settings come from the pod template.
            containers=[
                k8s.V1Container(
                    name="base",
                    volume_mounts=[k8s.V1VolumeMount(name="signer", mount_path=KEYS, read_only=True)],
                )
            ],
            volumes=[
                k8s.V1Volume(
                    name="signer",
                    secret=k8s.V1SecretVolumeSource(secret_name="custody-first-signer", default_mode=0o400),
                )
            ],
        )
    )
}

with DAG(
    dag_id="custody_kubernetes",
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    params={"request_id": ""},
) as dag:
    CustodySignWhitelistRequestsOperator(
        task_id="sign",
        custody_conn_id="custody_first_signer",
        signer=PemSigner.from_file(f"{KEYS}/key.pem"),
        request_ids="{{ params.request_id }}",
        expected={
            "label": "Treasury cold wallet",
            "address": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "blockchain": "ETH",
        },
        executor_config=WITH_KEY,
    )
