"""Signing in an HSM: with SoftHSM2 where it is installed, and with an HSM in memory that fails on purpose."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pkcs11
import pytest
from support.keys.hsm import PIN, TOKEN, FakeHsm, FakeKey, HsmPerson, SoftHsm, soft_hsm
from support.whitelist.calls import REQUEST

from airflow_custody.client import CustodyClient, CustodyConfigurationError, CustodyError
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.client.signers.pkcs11 import Pkcs11Signer
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.sandbox import Sandbox


@pytest.fixture(name="soft_hsm")
def token_of_softhsm2() -> SoftHsm:
    return soft_hsm()


@pytest.fixture
def fake_hsm(monkeypatch: pytest.MonkeyPatch) -> FakeHsm:
    hsm = FakeHsm()
    monkeypatch.setattr(pkcs11, "lib", lambda path: hsm)
    return hsm


@pytest.fixture(params=["SoftHSM2", "in memory"])
def hsm(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("soft_hsm" if request.param == "SoftHSM2" else "fake_hsm")


def signer(hsm: Any, key: str, **changes: Any) -> Pkcs11Signer:
    return Pkcs11Signer(**{"module": hsm.module, "token": TOKEN, "key": key, "pin": lambda: PIN, **changes})


def approve(sandbox: Sandbox, hsm: Any, *, keep_public: bool = True) -> None:
    ann = HsmPerson(sandbox, hsm, f"ann-{keep_public}", keep_public=keep_public)
    with CustodyClient(sandbox.url, ann.token) as client:
        number = client.create_whitelist_request(REQUEST)
        approver = RequestSigner(client, signer(hsm, ann.key), log=logging.getLogger(__name__))
        assert approver.sign([number], {number: REQUEST}, "checked") == 1
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]


@pytest.mark.parametrize("keep_public", [True, False], ids=["public key in the token", "only the private key"])
def test_the_service_accepts_a_signature_of_the_hsm(sandbox: Sandbox, hsm: Any, keep_public: bool) -> None:
    approve(sandbox, hsm, keep_public=keep_public)


@pytest.mark.parametrize("oddity", ["hides_parameters", "is_point_raw"])
def test_an_hsm_may_show_its_keys_in_other_ways(sandbox: Sandbox, fake_hsm: FakeHsm, oddity: str) -> None:
    setattr(fake_hsm, oddity, True)
    approve(sandbox, fake_hsm)


def test_a_public_key_that_is_no_point_of_the_curve_is_refused(fake_hsm: FakeHsm) -> None:
    fake_hsm.generate("p384", "secp384r1")
    for fake_hsm.hides_parameters, why in ((False, "not a P-256"), (True, "as a P-256 point")):
        with pytest.raises(CustodyConfigurationError, match=why):
            signer(fake_hsm, "p384").public_key()


def test_two_threads_take_turns(hsm: Any) -> None:
    hsm.generate("shared")
    one = signer(hsm, "shared")
    key = SigningKey(one).public_key
    assert key is not None
    work: Callable[[bytes], bool] = lambda message: key.verifies(one.sign(message), message)  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [bytes([number]) * number * 100 for number in range(20)]))


# --- forked processes, such as LocalExecutor's workers ---------------------------------------------------------

# Signs, and again in a child, and again here; the exit code is 0 if each signature verifies.
_FORKING = """
import os, sys
from airflow_custody.client.signers.pkcs11 import Pkcs11Signer
from airflow_custody.client.signers.key import SigningKey
module, token, pin = sys.argv[1:]
signer = Pkcs11Signer(module=module, token=token, key="forked", pin=lambda: pin)
key = SigningKey(signer).public_key
assert key.verifies(signer.sign(b"parent"), b"parent")
child = os.fork()
if not child:
    status = 1
    try:
        status = 0 if key.verifies(signer.sign(b"child"), b"child") else 2
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert key.verifies(signer.sign(b"parent again"), b"parent again")
"""


def test_a_child_process_signs_too(soft_hsm: SoftHsm) -> None:
    """A child process cannot use the initialized library that it inherits, so it loads the library again."""
    soft_hsm.generate("forked")
    command = [sys.executable, "-c", _FORKING, soft_hsm.module, TOKEN, PIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_of_a_process_in_use_does_not_wait(fake_hsm: FakeHsm, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hsm.generate("k")
    statuses: list[int] = []

    def finalize(self: FakeHsm) -> None:
        # A library that notices forks reports this: there is nothing to finalize.
        raise pkcs11.PKCS11Error("Initialisation error (not initialized). Should never see this.")

    def fork(key: FakeKey, data: bytes, *, mechanism: Any) -> bytes:
        child = os.fork()
        if not child:
            signal.alarm(600)
            try:
                signer(fake_hsm, "k").check()
                os._exit(0)
            finally:
                os._exit(1)
        statuses.append(os.waitpid(child, 0)[1])
        return bytes(64)

    monkeypatch.setattr(FakeHsm, "finalize", finalize, raising=False)
    monkeypatch.setattr(FakeHsm, "initialize", lambda self: None, raising=False)
    monkeypatch.setattr(FakeKey, "sign", fork)
    signer(fake_hsm, "k").sign(b"while it is in use")
    assert statuses == [0]


# --- what goes wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why", "retryable"),
    [
        ({"pin": lambda: "999999"}, "the HSM rejected the PIN", False),
        ({"pin": lambda: ""}, "the PIN is missing", False),
        ({"key": "no such key"}, "no private EC key with this label", False),
        ({"key": "p384"}, "not a P-256", False),
        (
            {"token": "elsewhere"},
            "the HSM is unavailable, or has no token 'elsewhere'; this signature was not made",
            True,
        ),
    ],
    ids=["wrong PIN", "no PIN", "no such key", "another curve", "no such token"],
)
def test_a_permanent_fault_fails_at_once(hsm: Any, changes: dict[str, Any], why: str, retryable: bool) -> None:
    if changes.get("key") == "p384":
        hsm.generate("p384", "secp384r1")
    one = signer(hsm, **{"key": "here", **changes})
    for use in (one.check, lambda: one.sign(b"x")):
        with pytest.raises(CustodyError, match=why) as caught:
            use()
        assert caught.value.retryable is retryable
        assert isinstance(caught.value, CustodyConfigurationError) is not retryable
        assert "999999" not in str(caught.value)


@pytest.mark.parametrize("good", [0, 1], ids=["when it is checked", "when its public key is read"])
@pytest.mark.parametrize(
    ("failure", "why", "retryable"),
    [
        (pkcs11.GeneralError("line lost\x1b[2J"), "GeneralError", True),
        # A vendor-specific error of the HSM may mean a wrong PIN.
        (
            pkcs11.PKCS11Error("Unmapped error code 0x80000013"),
            "unknown to PKCS#11: Unmapped error code 0x80000013",
            False,
        ),
    ],
)
def test_an_hsm_that_is_away_is_tried_again_and_nothing_is_sent(
    sandbox: Sandbox, fake_hsm: FakeHsm, failure: Exception, why: str, retryable: bool, good: int
) -> None:
    ann = HsmPerson(sandbox, fake_hsm, "ann")
    fake_hsm.failure, fake_hsm.good = failure, good
    with CustodyClient(sandbox.url, ann.token) as client:
        approver = RequestSigner(client, signer(fake_hsm, ann.key), log=logging.getLogger(__name__))
        with pytest.raises(CustodyError, match=why) as caught:
            approver.sign(["1"], None, "checked")
    assert caught.value.retryable is retryable
    assert "\x1b" not in "".join(traceback.format_exception(caught.value))
    assert sandbox.control.request_log() == []


def test_two_keys_with_one_label_are_refused(soft_hsm: SoftHsm) -> None:
    soft_hsm.generate("twins")
    soft_hsm.generate("twins")
    with pytest.raises(CustodyConfigurationError, match="several keys with this label"):
        signer(soft_hsm, "twins").check()


@pytest.mark.parametrize("path", [__file__, "/no/such/" + "x" * 5000])
def test_a_library_that_cannot_be_loaded_is_named(path: str) -> None:
    with pytest.raises(CustodyConfigurationError, match="cannot be loaded on this machine") as caught:
        Pkcs11Signer(module=path, token=TOKEN, key="k", pin=lambda: PIN).check()
    assert path[:190] in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_missing_extra_is_named(fake_hsm: FakeHsm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    monkeypatch.delitem(sys.modules, "airflow_custody.client.signers.hsm", raising=False)
    with pytest.raises(CustodyConfigurationError, match="pip install python-pkcs11"):
        signer(fake_hsm, "k").check()


def test_white_space_that_a_file_adds_is_not_part_of_a_label_or_the_pin(fake_hsm: FakeHsm) -> None:
    fake_hsm.generate("k")
    for end in (" ", "\n", "\r\n"):
        signer(fake_hsm, f"k{end}", token=f"{TOKEN}{end}", pin=lambda end=end: f"{PIN}{end.strip(' ')}").check()


def test_the_name_is_a_uri_without_the_pin(fake_hsm: FakeHsm) -> None:
    assert repr(signer(fake_hsm, "k")) == "Pkcs11Signer('pkcs11:token=treasury;object=k')"
