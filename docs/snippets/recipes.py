"""Short recipes for the guides, each a DAG. Tests run them."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, task

from airflow_custody.assets import latest_events, whitelist_asset
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
)
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.signers import ConnectionSigner

with DAG(dag_id="custody_sign_mapped", schedule=None) as sign_mapped:
    create = CustodyCreateWhitelistRequestOperator.partial(task_id="create", blockchain="ETH").expand_kwargs(
        [
            {"label": "Supplier Bremen", "address": "0xde709f2102306220921060314715629080e2fb77"},
            {"label": "Supplier Cadiz", "address": "0x27b1fdb04752bbc536007a920d24acb045561c26"},
        ]
    )
    sign_first = CustodySignWhitelistRequestsOperator(
        task_id="sign_first",
        custody_conn_id="custody_first_signer",
        signer=ConnectionSigner("custody_first_key"),
        # All ids, and the content of each. One signature covers up to a hundred requests.
        request_ids=create.output,
        expected=create.output["request"],
    )

with DAG(dag_id="custody_on_failure", schedule=None) as on_failure:

    def notify(context: dict) -> None:
        """Print the failed task and its error. Replace this with your own notification."""
        print(f"{context['ti'].task_id} failed: {context['exception']}")

    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="Supplier Bremen",
        address="0xde709f2102306220921060314715629080e2fb77",
        blockchain="ETH",
        on_failure_callback=notify,
    )
    sign = CustodySignWhitelistRequestsOperator(
        task_id="sign_first",
        custody_conn_id="custody_first_signer",
        signer=ConnectionSigner("custody_first_key"),
        request_ids=create_request.output,
        expected=create_request.output["request"],
        on_failure_callback=notify,
    )
    reject = CustodyRejectWhitelistRequestsOperator(
        task_id="reject",
        custody_conn_id="custody_first_signer",
        request_ids=create_request.output,
        comment="signing failed, {{ run_id }}",
        trigger_rule="one_failed",
    )

    @task(trigger_rule="one_failed", retries=0)
    def watcher() -> None:
        """Fail the run, because its last tasks decide its state."""
        raise AirflowFailException("a task of this run failed")

    sign >> reject
    [create_request, sign, reject] >> watcher()

with DAG(dag_id="custody_temporary_address", schedule=None) as temporary_address:
    create_temporary = CustodyCreateWhitelistRequestOperator(
        task_id="create_temporary",
        label="Supplier Bremen",
        address="0xde709f2102306220921060314715629080e2fb77",
        blockchain="ETH",
    )
    delete_temporary = CustodyDeleteWhitelistRequestOperator(
        task_id="delete_temporary",
        request_id=create_temporary.output,
        comment="end of {{ run_id }}",
        # Keep a request that existed before the run.
        only_if=create_temporary.output["created"],
    )

    @task
    def work() -> None:
        """Replace this with what needs the address."""

    create_temporary.as_setup() >> work() >> delete_temporary.as_teardown(setups=create_temporary)

with DAG(dag_id="custody_whitelist_changed", schedule=[whitelist_asset("custody_default")]) as whitelist_changed:

    @task(inlets=[whitelist_asset("custody_default")])
    def print_changes(*, inlet_events=None) -> None:
        """Print the latest change. Replace this with your own notification."""
        for event in latest_events(inlet_events, whitelist_asset("custody_default"), 1):
            print(event.extra["event"], event.extra["plan_hash"], event.extra.get("created"))

    print_changes()
