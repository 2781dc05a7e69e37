"""Approving over a connection that pins the super-administrators' keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow_runs import FakeTaskInstance, execute, failing_at_once, new_dag, run_dag
from approver import APPROVE
from connections import connection_json
from cryptography.hazmat.primitives.asymmetric import ec
from people import Person, public_pem_of
from task_log import TaskLog

from airflow_custody.client import CustodyOutcomeUnknownError
from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestsOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

FIELDS: dict[str, Any] = {"label": "Treasury", "address": "0x" + "ab" * 20, "blockchain": "ETH"}


class Approver:
    """A user of a connection of their own."""

    def __init__(self, sandbox: Sandbox, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.person = Person(sandbox, name, "approvers")
        self._sandbox = sandbox
        self._monkeypatch = monkeypatch
        key = {"conn_type": "generic", "extra": {"private_key": self.person.pem}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}_KEY", json.dumps(key))

    def connect(self, **extra: Any) -> None:
        connection = json.loads(connection_json(self._sandbox, **extra)) | {"password": self.person.token}
        self._monkeypatch.setenv(f"AIRFLOW_CONN_{self.name.upper()}", json.dumps(connection))

    def operator(self, request_ids: Any, expected: Any) -> CustodyApproveWhitelistRequestsOperator:
        return CustodyApproveWhitelistRequestsOperator(
            task_id=self.name,
            request_ids=request_ids,
            expected=expected,
            custody_conn_id=self.name,
            signer=ConnectionSigner(f"{self.name}_key"),
            lookup_wait=0.2,
        )

    def approve(self, pushed: Any, expected: Any = FIELDS, try_number: int = 1) -> int:
        signed: int = execute(lambda: self.operator(pushed, expected), ti=FakeTaskInstance(try_number=try_number))
        return signed


@pytest.fixture(params=[True, False], ids=["rules shown", "rules not shown"])
def approvers(
    sandbox: Sandbox, connection: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> list[Approver]:
    sandbox.control.configure(rules_on_pending=request.param)
    made = [Approver(sandbox, name, monkeypatch) for name in ("ann", "bob")]
    sandbox.control.set_approvers([{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}])
    for each in made:
        each.connect(**sandbox.control.pins())
    return made


def create() -> str:
    number: str = execute(
        lambda: CustodyCreateWhitelistRequestOperator(task_id="create", **FIELDS), ti=FakeTaskInstance()
    )
    return number


@pytest.mark.usefixtures("airflow_db")
def test_two_approve_in_a_run(approvers: list[Approver], task_log: TaskLog) -> None:
    with new_dag() as dag:
        made: Any = CustodyCreateWhitelistRequestOperator(task_id="create", **FIELDS).output
        ann, bob = (each.operator(made, made["request"]) for each in approvers)
        ann >> bob
    assert run_dag(dag).states == {("create", -1): "success", ("ann", -1): "success", ("bob", -1): "success"}
    text = task_log.text
    assert "Verified signatures that it has: none; " in text
    assert f"Verified signatures that it has: {approvers[0].person.external_id}; rules " in text


def test_a_signature_that_nobody_made_fails_at_once(
    sandbox: Sandbox, approvers: list[Approver], task_log: TaskLog
) -> None:
    ann, bob = approvers
    number = create()
    bob.approve(number)
    sandbox.control.clear_request_log()
    entry = {"signature": {"userId": bob.person.external_id, "signature": "A" * 86 + "=="}, "hashes": ["0" * 64]}
    sandbox.control.set_whitelist_envelope(number, signedAddress={"signatures": [entry]})
    with failing_at_once("; nothing was signed") as caught:
        ann.approve(number)
    assert isinstance(caught.value.error, CustodyVerificationError)
    assert sandbox.control.request_log(**APPROVE) == []
    # Without pins, it is the service's word.
    ann.connect()
    assert ann.approve(number) == 1
    assert task_log.text.count("is the service's word") == 1


def test_rules_of_other_super_administrators_fail_at_once(sandbox: Sandbox, approvers: list[Approver]) -> None:
    number = create()
    # Without a signature and without rules, there is nothing to verify yet.
    approvers[1].connect()
    assert approvers[1].approve(number) == 1
    sandbox.control.clear_request_log()
    keys = [public_pem_of(ec.generate_private_key(ec.SECP256R1())) for _ in range(2)]
    approvers[0].connect(superadmin_keys=keys, superadmin_minimum=2)
    with failing_at_once("; nothing was signed") as caught:
        approvers[0].approve(number)
    assert isinstance(caught.value.error, CustodyVerificationError)
    assert sandbox.control.request_log(**APPROVE) == []


def test_a_lost_response_is_cleared_up_by_the_key(sandbox: Sandbox, approvers: list[Approver]) -> None:
    ann = approvers[0]
    number = create()
    sandbox.control.add_fault("status", path="/users/me", status=404, times=None)
    sandbox.control.add_fault("drop", **APPROVE, work=True)
    assert ann.approve(number) == 1
    assert ann.approve(number, try_number=2) == 1
    other = create()
    sandbox.control.add_fault("drop", **APPROVE)
    with pytest.raises(CustodyOutcomeUnknownError, match="Trying again is safe"):
        ann.approve(other)
    assert ann.approve(other, try_number=2) == 1
    assert len(sandbox.control.request_log(**APPROVE)) == 3
