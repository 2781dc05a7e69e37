"""
Examples for the reference.

The reference prints the first statement that uses a class or function, and adds the imports. Tests run each statement
separately, in a DAG and against the sandbox.
"""

from __future__ import annotations

from datetime import timedelta
from logging import getLogger

from airflow.sdk import Asset, AssetWatcher

from airflow_custody.assets import (
    UnhandledEvents,
    calls_of,
    last_event,
    latest_events,
    webhook_calls_asset,
    whitelist_asset,
)
from airflow_custody.client import ApiKey, CustodyClient, PasswordSignIn, VerificationPins, WhitelistRequest
from airflow_custody.client.signers import PemSigner, raw_signature
from airflow_custody.client.signers.pkcs11 import Pkcs11Signer
from airflow_custody.client.verification import Verifier, verify_envelope
from airflow_custody.client.webhooks import verify_delivery
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.webhook import (
    CustodyCreateWebhookOperator,
    CustodyDeleteWebhookOperator,
    CustodyReadWebhookCallsOperator,
    CustodySetWebhookStatusOperator,
)
from airflow_custody.operators.whitelist import (
    CustodyCreateWhitelistRequestOperator,
    CustodyDeleteWhitelistRequestOperator,
    CustodyVerifyWhitelistOperator,
)
from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_plan_approval import CustodyApproveWhitelistPlanOperator
from airflow_custody.operators.whitelist_plan_completion import CustodyCompleteWhitelistPlanOperator
from airflow_custody.operators.whitelist_signing import (
    CustodyRejectWhitelistRequestsOperator,
    CustodySignWhitelistRequestsOperator,
)
from airflow_custody.retry_policy import CustodyRetryPolicy
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner, Pkcs11ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup, CustodyWhitelistRequestTaskGroup
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

# --- health

check = CustodyHealthCheckOperator(
    task_id="check",
    groups=["hsm", "blockchain"],
    require_results=["ETH", "BTC"],
)
wait_until_healthy = CustodyHealthSensor(
    task_id="wait_until_healthy",
    deferrable=True,
    timeout=60 * 60,
)
custody_unhealthy = Asset(
    "custody_unhealthy",
    watchers=[AssetWatcher(name="health", trigger=CustodyHealthTrigger(fire_on="unhealthy"))],
)

# --- whitelisting requests

create_request = CustodyCreateWhitelistRequestOperator(
    task_id="create_request",
    label="Supplier Bremen",
    address="0xde709f2102306220921060314715629080e2fb77",
    blockchain="ETH",
)
delete_request = CustodyDeleteWhitelistRequestOperator(
    task_id="delete_request",
    request_id="{{ params.request_id }}",
    comment="no longer a supplier",
)
wait_until_effective = CustodyWhitelistRequestSensor(
    task_id="wait_until_effective",
    request_id="{{ ti.xcom_pull(task_ids='create_request') }}",
    deferrable=True,
    timeout=24 * 60 * 60,
)
trigger = CustodyWhitelistRequestTrigger(request_id="3711", poke_interval=60)
request = WhitelistRequest(
    label="Supplier Bremen",
    address="0xde709f2102306220921060314715629080e2fb77",
    blockchain="ETH",
)
keep_evidence = CustodyVerifyWhitelistOperator(
    task_id="keep_evidence",
    path="s3://evidence@bucket/whitelist-{{ ds }}.json",
)

# --- task groups

whitelist = CustodyWhitelistFileTaskGroup(
    path="whitelist.yaml",
    signers={"custody_first_signer": ConnectionSigner("custody_first_key")},
    assigned_users=[{"id": "carol", "name": "carol"}],
)
whitelist_address = CustodyWhitelistRequestTaskGroup(
    label="{{ params.label }}",
    address="{{ params.address }}",
    blockchain="{{ params.blockchain }}",
    signers={"custody_first_signer": ConnectionSigner("custody_first_key")},
)

# --- signing

approve_request = CustodyApproveWhitelistRequestOperator(
    task_id="approve_request",
    request={"id": "3711", "label": "Supplier", "address": "0xde709f2102306220921060314715629080e2fb77"},
    assigned_users=[{"id": "carol", "name": "carol"}],
)
sign_request = CustodySignWhitelistRequestsOperator(
    task_id="sign_request",
    custody_conn_id="custody_first_signer",
    signer=ConnectionSigner("custody_first_key"),
    request_ids="3711",
    expected={"label": "Supplier", "address": "0xde709f2102306220921060314715629080e2fb77", "blockchain": "ETH"},
)
reject_requests = CustodyRejectWhitelistRequestsOperator(
    task_id="reject_requests",
    custody_conn_id="custody_first_signer",
    request_ids=["3711", "3712"],
    comment="not requested by us",
)
signer_of_connection = ConnectionSigner("custody_first_key")
signer_of_hsm = Pkcs11ConnectionSigner("custody_hsm")
signer_of_file = PemSigner.from_file("/etc/custody/first-signer.pem")
signer_without_airflow = Pkcs11Signer(
    module="/usr/lib/softhsm/libsofthsm2.so",
    token="treasury",
    key="first-signer",
    pin=lambda: input("PIN: "),
)

# --- plans

plan = CustodyPlanWhitelistOperator(
    task_id="plan",
    path="whitelist.yaml",
    skip_if_nothing_to_do=True,
)
approve = CustodyApproveWhitelistPlanOperator(
    task_id="approve",
    plan="{{ ti.xcom_pull(task_ids='plan') | tojson }}",
    assigned_users=[{"id": "carol", "name": "carol"}],
)
apply = CustodyApplyWhitelistPlanOperator(
    task_id="apply",
    plan="{{ ti.xcom_pull(task_ids='plan') | tojson }}",
    plan_hash="{{ ti.xcom_pull(task_ids='approve')['plan_hash'] }}",
)
complete = CustodyCompleteWhitelistPlanOperator(
    task_id="complete",
    applied="{{ ti.xcom_pull(task_ids='apply') | tojson }}",
    plan_hash="{{ ti.xcom_pull(task_ids='approve')['plan_hash'] }}",
)

# --- webhooks

disable = CustodySetWebhookStatusOperator(
    task_id="disable",
    webhook_id="{{ var.value.custody_webhook_id }}",
    status="disabled",
)
create_webhook = CustodyCreateWebhookOperator(
    task_id="create_webhook",
    webhook_type="requestStatus.updated",
    url="https://hooks.example.com/custody",
    secret_conn_id="custody_webhook_secret",
)
delete_webhook = CustodyDeleteWebhookOperator(
    task_id="delete_webhook",
    webhook_id="{{ var.value.custody_webhook_id }}",
)
read_calls = CustodyReadWebhookCallsOperator(
    task_id="read_calls",
    webhook_types=["currencyStatus.updated"],
    data_statuses=["disabled"],
)
received = Asset(
    "custody_transactions_received",
    watchers=[AssetWatcher(name="calls", trigger=CustodyWebhookCallTrigger(poke_interval=10))],
)

# --- assets


def count_calls(ti, inlet_events, handled):
    """Count calls. The task's inlets are both assets, its outlet is ``handled``."""
    events = UnhandledEvents(inlet_events, webhook_calls_asset("custody_default"), handled, ti=ti)
    with CustodyHook("custody_default") as hook:
        return sum(len(calls_of(event, hook.get_conn())) for event in events)


def print_changes(inlet_events):
    """Print the last changes in a task with the asset as inlet."""
    for event in latest_events(inlet_events, whitelist_asset("custody_default"), 10):
        print(event.extra["event"], event.extra["plan_hash"])


def find_gap(inlet_events):
    """
    Return the last event with a gap from the task ``read`` of the DAG ``custody_read_webhook_calls``.

    The asset is the task's inlet.
    """
    return last_event(inlet_events, webhook_calls_asset("custody_default"), ["gap"], "custody_read_webhook_calls/read")


calls_asset = webhook_calls_asset("custody_default")
changes_asset = whitelist_asset("custody_default")

# --- hook and client

with CustodyHook("custody_default") as hook:
    hook_checks = hook.get_conn().list_health_checks()
with CustodyClient("https://custody.example.com", token="<API token>") as client:
    checks = client.list_health_checks()
client_of_user = CustodyClient("https://custody.example.com", auth=PasswordSignIn("alice", "<password>"))
client_of_program = CustodyClient("https://custody.example.com", auth=ApiKey("key-id", "<secret in hex>"))
policy = CustodyRetryPolicy(max_delay=timedelta(minutes=10))

# --- signing and verifying without Airflow


def sign(client, request_id, expected):
    """Sign a request if its content is as expected."""
    signer = RequestSigner(client, PemSigner.from_file("first-signer.pem"), log=getLogger("custody"))
    signer.sign([request_id], {request_id: expected}, "checked by the treasury")


def sign_in_kms(kms, message):
    """Sign with a key in AWS KMS, in a signer's ``sign`` method."""
    response = kms.sign(KeyId="alias/first-signer", Message=message, SigningAlgorithm="ECDSA_SHA_256")
    return raw_signature(response["Signature"])


def verify(superadmin_keys, envelope):
    """Verify an envelope, and return its address."""
    pins = VerificationPins(superadmin_keys=superadmin_keys, superadmin_minimum=2)
    return verify_envelope(envelope, pins).fields["address"]


def verify_all(pins, envelopes):
    """Verify envelopes. Each signature of the rules is verified only once."""
    verifier = Verifier(pins)
    return [verifier.verify(envelope) for envelope in envelopes]


def receive(headers, body):
    """Verify a delivery in your receiver. Pass the body unchanged."""
    delivery = verify_delivery(headers, body, secret="<the webhook's secret>")
    return delivery.type, delivery.data


# --- sandbox

with Sandbox() as sandbox:
    sandbox.control.add_fault("drop", method="POST", path="/whitelists/addresses", work=True)
    print(sandbox.url, sandbox.token)
