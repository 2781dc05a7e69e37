"""Error reports, such as Sentry's, contain the variables of each function in a traceback, but no secret."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pkcs11
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from support.keys.hsm import FakeHsm
from support.service.people import pem_of
from support.service.raw_server import raw_server

from airflow_custody.client import CustodyClient
from airflow_custody.client.auth import ApiKey, PasswordSignIn
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.signers.key import SigningKey
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner, Pkcs11ConnectionSigner

SECRET = "5ec7e75ec7e7beef"
PEM = pem_of(ec.generate_private_key(ec.SECP256R1()))
#: A line of the key that no other key has.
KEY_LINE = PEM.splitlines()[2]
HTTP = {"conn_type": "custody", "host": "http://127.0.0.1:9"}
HSM = {"pkcs11_module": "/m.so", "pkcs11_token": "t", "pkcs11_key": "k"}


def reported(value: object, depth: int = 5) -> Iterator[str]:
    """Yield the texts of a variable in a report: the ``repr`` of a value, or of each item of a container."""
    # An object may be incomplete at this time.
    with suppress(AttributeError):
        yield repr(value)
    if depth and isinstance(value, Mapping):
        for name, each in value.items():
            yield from reported(name, 0)
            yield from reported(each, depth - 1)
    elif depth and isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from reported(each, depth - 1)


def report(error: BaseException | None) -> str:
    """Return all that a report has of an error: its text, its variables, and those of each error in its chain."""
    parts: list[str] = []
    pending, seen = [error], set[int]()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        parts += [str(each), repr(each)]
        traceback = each.__traceback__
        while traceback is not None:
            # Skip the frames of the test, because the test itself knows the secrets.
            if "/tests/" not in traceback.tb_frame.f_code.co_filename:
                for value in traceback.tb_frame.f_locals.values():
                    parts += reported(value)
            traceback = traceback.tb_next
        pending += [each.__cause__, each.__context__]
    return "\n".join(parts)


def error_of(call: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - any error is reported
        call()
    return caught.value


def check_report(error: BaseException, *secrets: str) -> None:
    text = report(error)
    assert not [each for each in (SECRET, *secrets) if each in text]
    # Check that the report includes frames of the package.
    assert "self" in {
        name for each in frames_of(error) for name in each.f_locals if "airflow_custody" in each.f_code.co_filename
    }


def frames_of(error: BaseException) -> Iterator[Any]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def define(**fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_BANK", json.dumps({"password": SECRET, **fields}))

    return define


Define = Callable[..., None]

#: Ways to authenticate, as fields of a connection.
METHODS: dict[str, dict[str, Any]] = {
    "token": {},
    "password": {"login": "ann"},
    "API key": {"extra": {"api_key_id": "7"}},
}


@pytest.mark.parametrize("method", METHODS)
def test_an_outage(define: Define, method: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        define(**HTTP | {"host": f"http://127.0.0.1:{closed.getsockname()[1]}"}, **METHODS[method])
        with CustodyHook("bank") as hook:
            check_report(error_of(lambda: hook.get_conn().get_current_user()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("status", [401, 500])
def test_a_refusal(define: Define, sandbox: Sandbox, method: str, status: int) -> None:
    sandbox.control.add_fault("status", status=status, body={"code": 16, "message": "no"}, times=None)
    define(**HTTP | {"host": sandbox.url, "extra": {"max_retries": 0}} | METHODS[method])
    with CustodyHook("bank") as hook:
        check_report(error_of(lambda: hook.get_conn().get_current_user()))


def test_a_token_that_was_fetched(define: Define, sandbox: Sandbox) -> None:
    # The sign-in succeeds, and the next call fails.
    sandbox.control.add_fault("status", path="/authentication/token", body={"result": f"{SECRET}-token"})
    sandbox.control.add_fault("status", path="/users/me", status=500, times=None)
    define(**HTTP | {"host": sandbox.url, "login": "ann", "password": "pass-word", "extra": {"max_retries": 0}})
    with CustodyHook("bank") as hook:
        check_report(error_of(lambda: hook.get_conn().get_current_user()), "pass-word")


@pytest.mark.parametrize(
    "fields",
    [
        {"host": ""},
        {"host": f"https://ann:{SECRET}@bank.example.com"},
        {"conn_type": "http"},
        {"extra": "{"},
        {"extra": {"tokn": SECRET}},
        {"extra": {"timeout": -1}},
        {"extra": {"proxy": f"http://ann:{SECRET}@[::"}},
        {"extra": {"proxy": f"http://ann:{SECRET}@proxy.example.com", "verify": "/no/such.pem"}},
        {"extra": {"superadmin_keys": PEM, "superadmin_minimum": 1}},
        {"extra": {"superadmin_keys": SECRET}},
        {"password": f"Bearer {SECRET}"},
        {"password": f"{SECRET}?", "extra": {"api_key_id": "7"}},
        {"login": "ann", "extra": {"api_key_id": SECRET}},
    ],
    ids=lambda fields: json.dumps(fields).replace(SECRET, "SECRET")[:60],
)
def test_a_wrong_setting(define: Define, fields: dict[str, Any]) -> None:
    define(**{**HTTP, **fields})
    check_report(error_of(CustodyHook("bank").get_conn), KEY_LINE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CustodyClient("https://x.example.com", SECRET, timeout=-1),
        lambda: CustodyClient("https://x.example.com", f"Bearer {SECRET}"),
        lambda: CustodyClient("https://x.example.com", "t", timeout=-1, proxy=f"http://ann:{SECRET}@p.example.com"),
        lambda: ApiKey("7", f"{SECRET}?"),
        lambda: PasswordSignIn("", SECRET),
    ],
    ids=["token", "wrong token", "proxy", "API key", "password"],
)
def test_an_argument_of_the_client(make: Callable[[], object]) -> None:
    check_report(error_of(make))


@pytest.mark.parametrize(
    ("key", "password"),
    [
        (PEM[:-40], ""),
        (PEM.replace("-----BEGIN", "---BEGIN"), SECRET),
        (PEM, SECRET),
        ("", SECRET),
    ],
    ids=["cut off", "not PEM", "not encrypted", "missing"],
)
def test_a_key_that_cannot_be_used(define: Define, tmp_path: Path, key: str, password: str) -> None:
    define(conn_type="generic", password=password, extra={"private_key": key, "other": SECRET})
    check_report(error_of(lambda: SigningKey(ConnectionSigner("bank"))), KEY_LINE)
    (tmp_path / "key.pem").write_text(key)
    signer = PemSigner.from_file(tmp_path / "key.pem", password=password)
    check_report(error_of(lambda: SigningKey(signer)), KEY_LINE)


def test_a_key_file_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text(PEM * 9_999)
    check_report(error_of(lambda: SigningKey(PemSigner.from_file(tmp_path / "key.pem"))), KEY_LINE)


@pytest.mark.parametrize("trouble", [pkcs11.exceptions.PinIncorrect(), pkcs11.exceptions.DeviceError(), OSError("x")])
def test_an_hsm_that_fails(define: Define, monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    def fail(**others: Any) -> None:
        raise trouble

    monkeypatch.setattr(pkcs11, "lib", lambda path: FakeHsm())
    monkeypatch.setattr(FakeHsm, "get_token", lambda self, **others: type("Token", (), {"open": staticmethod(fail)}))
    define(conn_type="generic", extra=HSM)
    check_report(error_of(lambda: SigningKey(Pkcs11ConnectionSigner("bank"))))
    define(conn_type="generic", extra=HSM | {"pkcs11_module": "m.so"})
    check_report(error_of(lambda: SigningKey(Pkcs11ConnectionSigner("bank"))))


class _TaskTimeout(BaseException):
    """An exception like the one that Airflow raises in the middle of a task when it times out."""


def test_a_time_out_of_the_task_while_a_request_is_sent(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(self: Any) -> None:
        raise _TaskTimeout

    monkeypatch.setattr("urllib3.connection.HTTPConnection.getresponse", receive)
    with CustodyClient(sandbox.url, SECRET) as client:
        error = error_of(client.get_current_user)
    assert type(error) is _TaskTimeout
    check_report(error)


def test_a_webhooks_secret(sandbox: Sandbox) -> None:
    with ExitStack() as stack:
        url, _ = stack.enter_context(raw_server(lambda stream: stream.sendall(b"HTTP/1.1 500 No\r\n\r\n")))
        client = stack.enter_context(CustodyClient(url, "t0ken"))
        check_report(
            error_of(lambda: client.create_webhook("requestStatus.updated", "https://x.example.com", secret=SECRET)),
            "t0ken",
        )
