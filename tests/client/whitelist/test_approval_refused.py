"""What the error says to do if the service refuses an approval, or to create a request."""

from __future__ import annotations

from typing import Any

import pytest
from approver import ChangingSigner, KeylessSigner, SignedInApprover
from cryptography.hazmat.primitives.asymmetric import ec
from people import Person, pem_of

from airflow_custody.client import CustodyClient, CustodyError, CustodyRequestError
from airflow_custody.client.signers import PemSigner


def refusal(approver: SignedInApprover, signer: Any, says: str = "does not verify against") -> CustodyError:
    approver.create()
    approver.signer = signer
    with pytest.raises(CustodyRequestError, match=says) as caught:
        approver.approve()
    assert approver.signed == []
    assert not caught.value.retryable
    return caught.value


@pytest.mark.parametrize("bob_has_a_key", [True, False])
def test_the_key_of_another_user_is_named_with_its_owner(approver: SignedInApprover, bob_has_a_key: bool) -> None:
    bob = Person(approver.sandbox, "bob", "approvers") if bob_has_a_key else None
    pem = bob.pem if bob else pem_of(ec.generate_private_key(ec.SECP256R1()))
    with CustodyClient(approver.sandbox.url, approver.person.token, source="connection 'custody_ann'") as client:
        approver.client = client
        error = refusal(approver, PemSigner(lambda: pem, name="custody_bob_key"))
    assert error.code == "request-refused"
    whose = f"it is the key of '{bob.external_id}'" if bob else "it is no user's key there"
    assert error.advice == (
        "If it is about the signature: the key of the signer 'custody_bob_key' is not the one that the service's rules "
        f"have for the user of connection 'custody_ann', '{approver.person.external_id}': {whose}. Give the signer "
        "that user's key, or use the connection of the user whose key it is."
    )


def test_a_refusal_of_something_else_is_not_said_to_be_the_keys(approver: SignedInApprover) -> None:
    body = {"error": "InvalidArgument", "message": "comment: is too long", "code": 400}
    approver.sandbox.control.add_fault("status", path="/whitelists/addresses/approve", status=400, body=body)
    bob = Person(approver.sandbox, "bob", "approvers")
    error = refusal(approver, PemSigner(lambda: bob.pem, name="other"), says="comment: is too long")
    assert error.code == "request-refused"
    assert str(error.advice).startswith("If it is about the signature: the key of the signer 'other' is not the one")


def test_a_wrong_signature_of_an_unknown_key_names_the_signer_and_the_connection(approver: SignedInApprover) -> None:
    pem = pem_of(ec.generate_private_key(ec.SECP256R1()))
    keyless = KeylessSigner(approver)
    keyless._signer = PemSigner(lambda: pem, name="inner")
    error = refusal(approver, keyless)
    assert error.code == "request-refused"
    assert error.advice == (
        "If it is about the signature: the key of the signer 'keyless' must be the one that the service has for the "
        "user."
    )


@pytest.mark.parametrize(
    "answer",
    [None, {"result": {"rulesContainer": "AA=="}}, {"result": {"rulesContainer": "not base64"}}],
    ids=["not offered", "no rules", "no base64"],
)
def test_without_rules_that_can_be_read_the_cause_is_not_known(approver: SignedInApprover, answer: Any) -> None:
    status = 200 if answer else 404
    approver.sandbox.control.add_fault("status", path="/rules", status=status, body=answer)
    pem = pem_of(ec.generate_private_key(ec.SECP256R1()))
    error = refusal(approver, PemSigner(lambda: pem, name="other"))
    assert error.code == "request-refused"
    assert "the key of the signer 'other' must be the one" in str(error.advice)


def test_a_refusal_for_another_reason_says_that_the_key_is_right(approver: SignedInApprover) -> None:
    change = lambda: approver.sandbox.control.change_whitelist_request(*approver.expected, label="Other")  # noqa: E731
    signer: Any = ChangingSigner(approver, change)
    signer.public_key = approver.signer.public_key
    error = refusal(approver, signer)
    assert error.code == "request-refused"
    assert error.advice == ("The key of the signer 'changing' is the one that the service's rules have for the user.")


def test_a_currency_that_is_not_active_names_the_parameter(approver: SignedInApprover) -> None:
    with pytest.raises(CustodyRequestError, match="the currency ETX is not active") as caught:
        approver.create(blockchain="ETX")
    assert "'blockchain' is the chain's symbol at the service, such as ETH" in str(caught.value.advice)


@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 503, "retry_after": 3}, {"kind": "status", "status": 401}],
    ids=["busy", "refused"],
)
def test_the_rules_that_explain_a_refusal_are_asked_for_once(approver: SignedInApprover, fault: dict[str, Any]) -> None:
    seen: list[int | None] = []
    approver.sandbox.control.add_fault(path="/rules", times=9, **fault)
    pem = pem_of(ec.generate_private_key(ec.SECP256R1()))
    with CustodyClient(approver.sandbox.url, approver.person.token, max_retries=3) as client:
        client.observe(lambda each: seen.append(each.status) if each.operation == "get rules" else None)
        approver.client = client
        error = refusal(approver, PemSigner(lambda: pem, name="other"))
    assert (error.status, seen) == (400, [fault["status"]])


def test_whatever_fails_while_a_refusal_is_explained_the_refusal_is_shown(approver: SignedInApprover) -> None:
    def fail(operation: Any) -> None:
        if operation.name == "get rules":
            raise RuntimeError("not of the client")

    pem = pem_of(ec.generate_private_key(ec.SECP256R1()))
    with approver.client.check_calls(fail):
        assert refusal(approver, PemSigner(lambda: pem, name="other")).status == 400
