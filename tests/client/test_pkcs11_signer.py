"""Signing in an HSM: with SoftHSM2 where it is installed, and with one in memory that can fail on purpose."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from hsm import PIN, TOKEN, FakeHsm, FakeKey, HsmPerson, SoftHsm, soft_hsm

from airflow_custody.client import CustodyClient, CustodyConfigurationError, CustodyError, WhitelistRequest
from airflow_custody.client.signers import pkcs11 as module
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.client.signers.pkcs11 import Pkcs11Signer
from airflow_custody.client.whitelist.signing import RequestSigner
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


def approve(sandbox: Sandbox, hsm: Any, *, keep_public: bool) -> None:
    ann = HsmPerson(sandbox, hsm, f"ann-{keep_public}", keep_public=keep_public)
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH")
    with CustodyClient(sandbox.url, ann.token) as client:
        number = client.create_whitelist_request(request)
        approver = RequestSigner(client, signer(hsm, ann.key), log=logging.getLogger(__name__))
        assert approver.sign([number], {number: request}, "checked") == 1
    assert [each["status"] for each in sandbox.control.whitelist_requests()] == ["APPROVED"]


@pytest.mark.parametrize("keep_public", [True, False], ids=["public key in the token", "only the private key"])
def test_the_service_accepts_a_signature_of_the_hsm(sandbox: Sandbox, hsm: Any, keep_public: bool) -> None:
    approve(sandbox, hsm, keep_public=keep_public)


def test_each_signature_verifies(hsm: Any) -> None:
    hsm.generate("k")
    one = signer(hsm, "k")
    one.check()
    key = SigningKey(one).public_key
    assert key is not None
    assert all(key.verifies(one.sign(message), message) for message in (b"", b"message", b"x" * 10_000))


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
    """LocalExecutor's workers are forked: what a child inherits of an initialised library cannot be used."""
    soft_hsm.generate("forked")
    command = [sys.executable, "-c", _FORKING, soft_hsm.module, TOKEN, PIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


class _KnowsOfForks:
    """A library that sees by itself that it is in a child: it has nothing to finalize."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def finalize(self) -> None:
        self.calls.append("finalize")
        raise pkcs11.PKCS11Error("Initialisation error (not initialized). Should never see this.")

    def initialize(self) -> None:
        self.calls.append("initialize")


def test_a_library_that_knows_of_forks_is_initialised_in_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    library = _KnowsOfForks()
    monkeypatch.setattr(pkcs11, "lib", lambda path: library)
    monkeypatch.setattr(module, "_initialised_by", {"/m.so": os.getpid() + 1})
    assert [module._initialised("/m.so") for _ in range(2)] == [library, library]
    assert library.calls == ["finalize", "initialize"]


# Forks while another thread uses the HSM; the exit code is 0 if the child does not wait for that thread.
_FORKING_IN_USE = """
import os, sys, threading
from airflow_custody.client.signers import pkcs11
from airflow_custody.client.errors import CustodyConfigurationError
lock = pkcs11._locks.setdefault(os.getpid(), threading.Lock())
threading.Thread(target=lock.acquire).start()
while not lock.locked():
    pass
child = os.fork()
if not child:
    status = 1
    try:
        pkcs11.Pkcs11Signer(module="/no/such.so", token="t", key="k", pin=lambda: "1").check()
    except CustodyConfigurationError:
        status = 0
    finally:
        os._exit(status)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORKING_IN_USE], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_error_of_the_hsms_own_is_named_and_not_tried_again(fake_hsm: FakeHsm) -> None:
    """It may stand for a wrong PIN."""
    fake_hsm.generate("k")
    fake_hsm.failure = pkcs11.PKCS11Error("Unmapped error code 0x80000013")
    with pytest.raises(CustodyConfigurationError, match="does not name: Unmapped error code 0x80000013") as caught:
        signer(fake_hsm, "k").check()
    assert not caught.value.retryable
    assert "cannot be loaded" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pin": lambda: "999999"}, "the HSM refused the PIN"),
        ({"pin": lambda: ""}, "there is no PIN"),
        ({"key": "no such key"}, "no private EC key with this label"),
    ],
    ids=["wrong PIN", "no PIN", "no such key"],
)
def test_what_no_retry_changes_fails_at_once(hsm: Any, changes: dict[str, Any], why: str) -> None:
    hsm.generate("here")
    with pytest.raises(CustodyConfigurationError, match=why) as caught:
        signer(hsm, **{"key": "here", **changes}).check()
    assert not caught.value.retryable
    assert "999999" not in str(caught.value)


def test_a_key_on_another_curve_is_refused(hsm: Any) -> None:
    hsm.generate("p384", "secp384r1")
    for use in (signer(hsm, "p384").check, signer(hsm, "p384").public_key, lambda: signer(hsm, "p384").sign(b"x")):
        with pytest.raises(CustodyConfigurationError, match="not a P-256"):
            use()


def test_two_keys_with_one_label_are_refused(soft_hsm: SoftHsm) -> None:
    soft_hsm.generate("twins")
    soft_hsm.generate("twins")
    with pytest.raises(CustodyConfigurationError, match="several keys with this label"):
        signer(soft_hsm, "twins").check()


def test_a_token_that_is_not_there_is_tried_again(hsm: Any) -> None:
    with pytest.raises(
        CustodyError, match="the HSM is away, or has no token 'elsewhere'; nothing was signed"
    ) as caught:
        signer(hsm, "k", token="elsewhere").check()
    assert caught.value.retryable


@pytest.mark.parametrize("module", ["/no/such/library.so", __file__, "/no/such/" + "x" * 5000])
def test_a_library_that_cannot_be_loaded_is_named(module: str) -> None:
    with pytest.raises(CustodyConfigurationError, match="cannot be loaded on this machine") as caught:
        Pkcs11Signer(module=module, token=TOKEN, key="k", pin=lambda: PIN).check()
    assert module[:190] in str(caught.value)
    assert len(str(caught.value)) < 600


def test_one_library_has_many_paths(soft_hsm: SoftHsm, tmp_path: Path) -> None:
    soft_hsm.generate("by link")
    (tmp_path / "link.so").symlink_to(soft_hsm.module)
    for path in (soft_hsm.module, str(tmp_path / "link.so"), f"{tmp_path}/../{tmp_path.name}/link.so"):
        signer(soft_hsm, "by link", module=path).check()


def test_a_library_that_the_process_has_loaded_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise pkcs11.PKCS11Error("Initialisation error (already initialized). Should never see this.")

    monkeypatch.setattr(pkcs11, "lib", fail)
    with pytest.raises(CustodyConfigurationError, match=r"'/m\.so' cannot be used: this process has loaded it already"):
        Pkcs11Signer(module="/m.so", token=TOKEN, key="k", pin=lambda: PIN).check()


def test_long_texts_are_cut(fake_hsm: FakeHsm) -> None:
    long = "a\n" * 5000
    for changes in ({"token": long}, {"key": long}):
        with pytest.raises(CustodyError) as caught:
            signer(fake_hsm, **{"key": "k", **changes}).check()
        assert len(str(caught.value)) < 500
    assert len(repr(signer(fake_hsm, long, token=long))) < 250


def test_the_missing_extra_is_named(fake_hsm: FakeHsm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    with pytest.raises(CustodyConfigurationError, match=r"pip install 'airflow-provider-custody\[pkcs11\]'"):
        signer(fake_hsm, "k").check()


@pytest.mark.parametrize("good", [0, 1], ids=["when it is checked", "when its public key is read"])
@pytest.mark.parametrize("failure", [pkcs11.DeviceRemoved(), pkcs11.GeneralError("line lost"), pkcs11.SessionCount()])
def test_an_hsm_that_is_away_is_tried_again_and_nothing_is_sent(
    sandbox: Sandbox, fake_hsm: FakeHsm, failure: Exception, good: int
) -> None:
    ann = HsmPerson(sandbox, fake_hsm, "ann")
    fake_hsm.failure, fake_hsm.good = failure, good
    with CustodyClient(sandbox.url, ann.token) as client:
        approver = RequestSigner(client, signer(fake_hsm, ann.key), log=logging.getLogger(__name__))
        with pytest.raises(CustodyError, match=type(failure).__name__) as caught:
            approver.sign(["1"], None, "checked")
    assert caught.value.retryable
    assert sandbox.control.request_log() == []


def test_what_the_library_says_while_it_signs_comes_along_sanitized(
    fake_hsm: FakeHsm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(key: FakeKey, data: bytes, *, mechanism: Any) -> bytes:
        raise pkcs11.DeviceError("line lost\x1b[2J")

    monkeypatch.setattr(FakeKey, "sign", fail)
    fake_hsm.generate("k")
    with pytest.raises(CustodyError, match="DeviceError: line lost") as caught:
        signer(fake_hsm, "k").sign(b"message")
    assert caught.value.retryable
    assert "\x1b" not in "".join(traceback.format_exception(caught.value))


def test_an_hsm_that_shows_no_curve_of_a_private_key_can_sign(sandbox: Sandbox, fake_hsm: FakeHsm) -> None:
    fake_hsm.hides_parameters = True
    approve(sandbox, fake_hsm, keep_public=True)


def test_a_public_key_may_be_a_point_as_it_is(sandbox: Sandbox, fake_hsm: FakeHsm) -> None:
    fake_hsm.is_point_raw = True
    approve(sandbox, fake_hsm, keep_public=True)


def test_a_public_key_that_is_no_point_of_the_curve_is_refused(fake_hsm: FakeHsm) -> None:
    fake_hsm.hides_parameters = True
    fake_hsm.generate("p384", "secp384r1")
    with pytest.raises(CustodyConfigurationError, match="as a point of P-256"):
        signer(fake_hsm, "p384").public_key()


def test_the_name_is_a_uri_without_the_pin(fake_hsm: FakeHsm) -> None:
    one = signer(fake_hsm, "k")
    assert one.name == "pkcs11:token=treasury;object=k"
    assert repr(one) == "Pkcs11Signer('pkcs11:token=treasury;object=k')"


def test_two_threads_take_turns(soft_hsm: SoftHsm) -> None:
    from concurrent.futures import ThreadPoolExecutor

    soft_hsm.generate("shared")
    one = signer(soft_hsm, "shared")
    key = SigningKey(one).public_key
    assert key is not None
    work: Callable[[bytes], bool] = lambda message: key.verifies(one.sign(message), message)  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, [bytes([number]) for number in range(20)]))
