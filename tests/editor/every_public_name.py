# pyright: strict
"""
Every public class, function and method, as a user's editor sees it. Nothing runs this file.

``test_editor.py`` checks it with pyright in strict mode, and requires that it names everything that the reference
documents.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.sdk import DAG, chain, task

from airflow_custody.assets import (
    UnhandledEvents,
    calls_of,
    last_event,
    latest_events,
    webhook_calls_asset,
    whitelist_asset,
)
from airflow_custody.client import (
    ApiKey,
    ClientSettings,
    CustodyClient,
    CustodyError,
    HealthCheck,
    PasswordSignIn,
    VerificationPins,
    VerifiedAddress,
    WhitelistEnvelope,
    WhitelistRequest,
    verify_envelope,
)
from airflow_custody.client.approvals.operations import PendingApprovals
from airflow_custody.client.health.models import HealthReport, VaultdClient
from airflow_custody.client.health.verdict import HealthCriteria
from airflow_custody.client.signers import PemSigner, Signer, raw_signature
from airflow_custody.client.signers.pkcs11 import Pkcs11Signer
from airflow_custody.client.verification import Verifier
from airflow_custody.client.verification.verifier import RequestSignatures, VerifiedRules
from airflow_custody.client.webhooks import Delivery, verify_delivery
from airflow_custody.client.webhooks.calls import CallCursor, NewCalls
from airflow_custody.client.webhooks.models import WebhookCall, WebhookEvent
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
from airflow_custody.sandbox import (
    CallSettings,
    ListingSettings,
    Sandbox,
    SandboxControl,
    SandboxError,
    Settings,
    connection_variables,
    fingerprint,
    health_entry,
)
from airflow_custody.sensors.health import CustodyHealthSensor
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner, Pkcs11ConnectionSigner
from airflow_custody.task_groups.whitelist import CustodyWhitelistFileTaskGroup, CustodyWhitelistRequestTaskGroup
from airflow_custody.triggers.health import CustodyHealthTrigger
from airflow_custody.triggers.webhook import CustodyWebhookCallTrigger
from airflow_custody.triggers.whitelist import CustodyWhitelistRequestTrigger

# --- DAGs ------------------------------------------------------------------------------------------------------


@task
def fetch_rows() -> list[dict[str, str]]:
    return [{"label": "Treasury", "address": "0x", "blockchain": "ETH"}]


def a_whitelist_as_a_file() -> None:
    with DAG("nightly", schedule="@daily"):
        check = CustodyHealthCheckOperator(
            task_id="check",
            custody_conn_id="custody_prod",
            groups=["hsm"],
            require_results=("ETH", "BTC"),
            fail_when_unhealthy=True,
            retries=3,
            retry_policy=CustodyRetryPolicy(min_delay=timedelta(minutes=1)),
        )
        plan = CustodyPlanWhitelistOperator(
            task_id="plan",
            path="whitelist.yaml",
            prune=True,
            replace="{{ params.replace }}",
            only={"blockchain": ["ETH", "BTC"]},
            must_keep=["Treasury"],
            ignore=[3711, "3712"],
            max_creates=None,
        )
        approve = CustodyApproveWhitelistPlanOperator(task_id="approve", plan=plan.output, assigned_users=[])
        apply = CustodyApplyWhitelistPlanOperator(
            task_id="apply", plan=plan.output, plan_hash=approve.output["plan_hash"]
        )
        sign = CustodySignWhitelistRequestsOperator(
            task_id="sign",
            request_ids=apply.output["request_ids"],
            expected=apply.output["requests"],
            signer=ConnectionSigner("signing_key"),
            skip_if_empty=True,
        )
        wait = CustodyWhitelistRequestSensor(
            task_id="wait",
            request_id=apply.output["request_ids"],
            expected=apply.output["requests"],
            deferrable=True,
            poke_interval=60,
            timeout=timedelta(hours=8).total_seconds(),
        )
        complete = CustodyCompleteWhitelistPlanOperator(
            task_id="complete", applied=apply.output, plan_hash=approve.output["plan_hash"]
        )
        verify = CustodyVerifyWhitelistOperator(
            task_id="verify", path="/evidence/{{ run_id }}.json", ids=apply.output["request_ids"]
        )
        chain(check, plan, approve, apply, sign, wait, complete, verify)
    with DAG("rows"):
        rows = fetch_rows()
        plan = CustodyPlanWhitelistOperator(task_id="plan", rows=rows, omit_if_none=["memo"])
        CustodyApplyWhitelistPlanOperator(
            task_id="apply", plan=plan.output, plan_hash=plan.output["plan_hash"], rows=rows
        )
        CustodyPlanWhitelistOperator(task_id="written", rows=[{"label": "Treasury", "linked_wallet_ids": ["1"]}])


def task_groups() -> None:
    signers = {"custody_first_signer": ConnectionSigner("custody_first_key")}
    with DAG("task_groups"):
        whitelist = CustodyWhitelistFileTaskGroup(
            path="whitelist.yaml",
            signers=signers,
            assigned_users=[{"id": "carol", "name": "carol"}],
            response_timeout=timedelta(hours=8),
            only={"blockchain": "ETH"},
            at_most=500,
            evidence="/evidence",
            task_arguments={"plan": {"max_creates": 500}},
            default_args={"retries": 2},
        )
        request = CustodyWhitelistRequestTaskGroup(
            label="{{ params.label }}",
            address=fetch_rows(),
            blockchain="ETH",
            signers=signers,
            approve=False,
        )
        approve = CustodyApproveWhitelistRequestOperator(task_id="approve", request=request.create.output["request"])
        chain(whitelist.apply, request, approve)


def one_request() -> None:
    with DAG("one_request"):
        gate = CustodyHealthSensor(task_id="gate", checks="{{ params.checks }}", deferrable=True, timeout=600)
        create = CustodyCreateWhitelistRequestOperator(
            task_id="create",
            label="{{ params.label }}",
            address=fetch_rows(),
            blockchain="ETH",
            linked_wallet_ids=["1", "2"],
            memo=None,
            if_exists="fail",
        )
        CustodySignWhitelistRequestsOperator(
            task_id="sign",
            request_ids=[create.output, "3711", 3712],
            expected=[create.output["request"], {"id": "3711", "label": "Treasury"}],
            signer=Pkcs11ConnectionSigner("hsm"),
        )
        CustodySignWhitelistRequestsOperator(
            task_id="blind", request_ids=3711, expected=None, signer=PemSigner.from_file("key.pem", password="secret")
        )
        reject = CustodyRejectWhitelistRequestsOperator(task_id="reject", request_ids=["3711"], comment="wrong")
        delete = CustodyDeleteWhitelistRequestOperator(
            task_id="delete", request_id=create.output, comment="test", only_if=create.output["created"]
        )
        chain(gate, create, [reject, delete])


def webhooks_and_events() -> None:
    with DAG("webhooks", schedule=[webhook_calls_asset("custody_prod"), whitelist_asset()]):
        made = CustodyCreateWebhookOperator(
            task_id="create",
            webhook_type="requestStatus.updated",
            url="https://example.com/{{ conn.hook.password }}",
            secret_conn_id="webhook_secret",
        )
        CustodySetWebhookStatusOperator(task_id="enable", webhook_id=made.output, status="enabled")
        CustodyReadWebhookCallsOperator(task_id="read", webhook_ids=[], start="beginning", on_gap="continue")
        CustodyDeleteWebhookOperator(task_id="delete", webhook_id=made.output)
    CustodyHealthTrigger(groups=["hsm"], poke_interval=30.0)
    CustodyWebhookCallTrigger(webhook_types=["requestStatus.updated"], poke_interval=timedelta(minutes=1))
    CustodyWhitelistRequestTrigger(request_id=["3711"], poke_interval=30.0)


@task
def handle_events(inlet_events: Any = None, ti: Any = None) -> list[dict[str, object]]:
    calls, handled = webhook_calls_asset(), whitelist_asset()
    events = UnhandledEvents(inlet_events, calls, handled, ti=ti)
    newest = latest_events(inlet_events, calls, 10)
    last = last_event(inlet_events, calls, ["cursor"], "dag/task")
    place: dict[str, object] = events.place
    with CustodyHook() as hook:
        found = [call for event in events for call in calls_of(event, hook.get_conn())]
    return [*found, place] if newest and last else found


# --- the client ------------------------------------------------------------------------------------------------


def use_the_hook() -> str:
    with CustodyHook("custody_prod") as hook:
        client: CustodyClient = hook.get_conn()
        verdict = hook.check_health(HealthCriteria(groups=("hsm",)))
        works, text = hook.test_connection()
        hook.close()
        return f"{client} {verdict.healthy} {works} {text.upper()}"


def make_clients(settings: ClientSettings) -> None:
    with CustodyClient("https://custody.example.com", "token", timeout=10, networks=["mainnet"]) as client:
        client.observe(lambda observation: print(observation.status))
    CustodyClient("https://custody.example.com", auth=ApiKey("id", "secret")).close()
    other = CustodyClient.from_settings(settings, PasswordSignIn("user", "password", on_token=print))
    verifier: Verifier | None = other.verifier
    print(verifier)


def read_the_service(client: CustodyClient) -> None:
    listing = client.list_health_checks(tenant_id="1")
    print(listing)
    currencies, config, user = client.list_currencies(), client.get_tenant_config(), client.get_current_user()
    print(currencies[0], config, user.get("id"), client.get_rules().get("rulesContainer"))
    pending: PendingApprovals = client.get_pending_approvals()
    print(pending.total, pending.counts, pending.at_least, pending.texts, pending.to_json())


def show_health(check: HealthCheck) -> str:
    report: HealthReport | None = check.report
    clients: Sequence[VaultdClient] = () if report is None else report.vaultd_clients
    HealthReport.from_wire({"name": "ping"})
    connected = [each.connected for each in clients] or VaultdClient.from_wire({"connected": True}).connected
    dates = (check.last_update_date, check.valid_until_date)
    names = [check.tenant_id, check.component_name, check.component_id, check.group, check.health_check, check.status]
    return f"{names} {dates} {connected}"


def whitelist(client: CustodyClient, sign: Signer) -> None:
    request = WhitelistRequest(label="Treasury", address="0x", blockchain="ETH", linked_wallet_ids=["1"])
    print(request.chain, request.to_wire()["label"], request.model_copy(update={"label": "Other"}).label)
    request_id: str = client.create_whitelist_request(request)
    envelope: WhitelistEnvelope = client.get_whitelist_request(request_id)
    print(envelope.signings, envelope.signed_by, envelope.created_at, envelope.created_by)
    content: dict[str, object] = envelope.payload() or envelope.read_payload()
    ids = [each.id for each in client.find_whitelist_requests(addresses=["0x"], include_pending=True)]
    ids += [each.id for each in client.list_whitelist_requests(ids=ids).rows]
    ids += [each.id for each in client.find_whitelist_requests_for_approval(include_already_signed=True)]
    total: int | None = client.count_whitelist_requests()
    signature = raw_signature(sign.sign(b"message")).hex()
    number: int = client.approve_whitelist_requests(ids, signature, f"{sign.name}: {content}, {total}")
    client.reject_whitelist_requests(ids, "wrong")
    client.delete_whitelist_request(request_id, "wrong")
    signer = RequestSigner(client, sign, log=logging.getLogger("signing"))
    print(number, signer.sign(ids, {request_id: request}, "comment", earlier_try=False))


def sign_with_keys() -> list[object]:
    pem = PemSigner(lambda: b"-----BEGIN PRIVATE KEY-----", name="treasury")
    hsm = Pkcs11Signer(module="/usr/lib/hsm.so", token="token", key="key", pin=lambda: "1234")
    hsm.check()
    return [pem.public_key(), pem.sign(b""), hsm.public_key(), hsm.sign(b"")]


def webhooks(client: CustodyClient) -> None:
    webhook_id, secret = client.create_webhook("requestStatus.updated", "https://example.com")
    client.set_webhook_status(webhook_id, "enabled")
    client.delete_webhook(webhook_id)
    print([each.get("id") for each in client.list_webhooks(webhook_type=None)], secret.upper())
    calls: list[WebhookCall] = [*client.list_webhook_calls()]
    new: NewCalls = client.read_webhook_calls(None, start="beginning", limit=10)
    cursor: CallCursor = new.cursor
    print(client.get_newest_webhook_call(), new.calls, new.more, new.gap, cursor.at, cursor.seen)
    for call in [*calls, WebhookCall.from_wire("1", {"payload": "{}"})]:
        event: WebhookEvent = call.event
        print(event.data.get("requestId"), call.payload, call.type, call.event_at, call.data, call.to_json())


def receive(headers: dict[str, str], body: bytes) -> str:
    delivery: Delivery = verify_delivery(headers, body, "secret", first_time=lambda delivery_id: bool(delivery_id))
    return f"{delivery.id} {delivery.type} {delivery.created_at} {delivery.data.get('status')}"


def verify_addresses(envelope: dict[str, object]) -> None:
    pins = VerificationPins(["-----BEGIN PUBLIC KEY-----"], 1, networks=["mainnet"])
    address: VerifiedAddress = verify_envelope(envelope, pins)
    print(pins.fingerprints, pins.to_json(), address.user_ids, address.to_json(), address.fields["label"])
    verifier = Verifier(pins)
    rules: VerifiedRules = verifier.verify_rules({"rulesContainer": ""})
    print(rules.date, rules.to_json(), verifier.verify(envelope).rules, verifier.needs_rules_in_force(envelope))
    signatures: list[RequestSignatures] = [verifier.verify_signatures(envelope), verifier.examine(envelope)]
    print([each.faults for each in signatures], [*verifier.users_of(envelope).items()])


def handle(error: CustodyError) -> str:
    facts = [error.transient, error.not_offered, error.not_offered_by_service, error.is_missing_role]
    texts = [error.reason, error.text, error.explanation, error.shorten(), error.render(place="here")]
    same = CustodyError.from_json(error.with_facts(setting="timeout").to_json())
    decision = CustodyRetryPolicy().evaluate(same, 1, 3)
    return f"{facts} {texts} {same.code} {decision}"


# --- the sandbox -----------------------------------------------------------------------------------------------


def use_the_sandbox() -> None:
    with Sandbox(port=0) as sandbox:
        print(connection_variables(sandbox.connection(pins=True, timeout=5), []), fingerprint("secret"))
        control: SandboxControl = sandbox.control
    sandbox.start().stop()
    print(control.about(), control.pins(), control.private_keys(), control.send("reset", {}))
    control.reset()
    control.configure(clock_offset=60.0, listings={"webhooks": {"page_size": 1}})
    control.set_health([health_entry("hsm", results={"ETH": "success"}, report={"error": "late"})])
    control.set_health_response({"groups": {}})
    control.update_health("hsm", status="error")
    user_id: str = control.add_user("ann", ["TPUser"], groups=["approvers"])
    print(control.add_token(["TPUser"], user_id=user_id), control.add_api_key(user_id)["id"])
    control.revoke_tokens(user_id)
    control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    ids: list[str] = control.add_whitelist_requests([{"label": "Treasury", "address": "0x"}], signed=True)
    print([each["status"] for each in control.whitelist_requests()])
    control.change_whitelist_request(ids[0], label="Other")
    control.set_whitelist_status(ids[0], "APPROVED")
    control.set_whitelist_age(ids[0], 60)
    control.set_whitelist_metadata(ids[0], hash="")
    control.set_whitelist_envelope(ids[0], action="create")
    control.sign_whitelist_requests(ids)
    control.add_signers(["ann", "bob"])
    print(control.add_webhook(type="requestStatus.updated"), control.webhooks()[0]["id"])
    control.add_webhook_call(payload="{}")
    control.add_webhook_calls(10, age=60)
    control.send_event("requestStatus.updated", {"requestId": 123})
    control.add_fault("lost", times=1)
    print(control.faults(), control.request_log(method="POST"))
    control.clear_faults()
    control.clear_request_log()
    control.close()


def configure_the_sandbox() -> Settings:
    if datetime.now(timezone.utc).year < 2000:
        raise SandboxError("the clock is wrong")
    return Settings(listings={"webhooks": ListingSettings(page_size=1)}, calls=CallSettings(order="written"))
