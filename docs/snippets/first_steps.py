"""The first DAG of the README: a health gate, and a request. Tests run it."""

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.health import CustodyHealthSensor

with DAG(
    dag_id="custody_create_request",
    schedule=None,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={name: Param(type="string", minLength=1) for name in ("label", "address", "blockchain")},
) as dag:
    wait_until_healthy = CustodyHealthSensor(task_id="wait_until_healthy", deferrable=True, timeout=30 * 60)
    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="{{ params.label }}",
        address="{{ params.address }}",
        blockchain="{{ params.blockchain }}",
    )
    wait_until_healthy >> create_request
