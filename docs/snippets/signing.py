"""A DAG with three signers, whose keys are in a file, a connection and an HSM. Tests run it."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.providers.common.compat.sdk import DAG

from airflow_custody.client.signers import PemSigner
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.signers import ConnectionSigner, Pkcs11ConnectionSigner

with DAG(
    dag_id="custody_signing",
    schedule=None,
    start_date=datetime(2025, 1, 1, tzinfo=timezone.utc),
    default_args={"retries": 2},
) as dag:
    create_request = CustodyCreateWhitelistRequestOperator(
        task_id="create_request",
        label="Treasury cold wallet",
        address="0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        blockchain="ETH",
    )

    sign_with_file = CustodySignWhitelistRequestsOperator(
        task_id="sign_with_file",
        custody_conn_id="custody_first_signer",
        signer=PemSigner.from_file(os.environ.get("CUSTODY_KEY_FILE", "/etc/custody/first-signer.pem")),
        request_ids=create_request.output,
        # Sign only if the request has exactly this content.
        expected=create_request.output["request"],
    )

    sign_with_connection = CustodySignWhitelistRequestsOperator(
        task_id="sign_with_connection",
        custody_conn_id="custody_second_signer",
        signer=ConnectionSigner("custody_second_key"),
        request_ids=create_request.output,
        expected=create_request.output["request"],
    )

    sign_with_hsm = CustodySignWhitelistRequestsOperator(
        task_id="sign_with_hsm",
        custody_conn_id="custody_third_signer",
        signer=Pkcs11ConnectionSigner("custody_hsm"),
        request_ids=create_request.output,
        expected=create_request.output["request"],
    )

    sign_with_file >> sign_with_connection >> sign_with_hsm
