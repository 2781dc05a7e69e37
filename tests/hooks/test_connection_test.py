"""What the test of a connection, and ``custody check``, say of roles and of settings that are wrong."""

from __future__ import annotations

import json
import re

import pytest
from connections import connection_json

from airflow_custody.cli.check import all_operations
from airflow_custody.cli.main import main
from airflow_custody.client import CustodyConfigurationError
from airflow_custody.hooks._connection import _describe_unknown
from airflow_custody.hooks._connection_test import _ROLES
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox
from airflow_custody.signers import ConnectionSigner

UNKNOWN = "The service does not say which roles the user has."
BAD_PEM = "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"


def define(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, **extra: object) -> CustodyHook:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **extra))
    return CustodyHook()


# --- roles --------------------------------------------------------------------------------------------------


def test_all_roles_that_operations_need_are_known() -> None:
    assert {role for each in all_operations() for role in each.roles} == set(_ROLES)


@pytest.mark.parametrize("user", [{"id": "7"}, {"id": "7", "roles": None}])
def test_a_service_that_does_not_say_the_roles(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, user: dict[str, object]
) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": user}, path="/users/me")
    good, text = define(monkeypatch, sandbox).test_connection()
    assert (good, text.count(UNKNOWN)) == (True, 1)
    assert "Missing" not in text


@pytest.mark.parametrize("status", [404, 501])
def test_a_service_that_does_not_say_who_the_user_is(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    sandbox.control.add_fault("status", status=status, path="/users/me")
    good, text = define(monkeypatch, sandbox).test_connection()
    assert (good, text.count(UNKNOWN)) == (True, 1)


def test_a_user_without_roles_lacks_them_all(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.control.add_fault("status", status=200, body={"result": {"id": "7", "roles": []}}, path="/users/me")
    _, text = define(monkeypatch, sandbox).test_connection()
    assert "User 7 has the roles: none. Missing: TPUser (everything), WhitelistedAddressCreator" in text


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"regoin": "eu"}, "the extra 'regoin' is not known and has no effect. There are: auth, api_key_id, timeout"),
        ({"timeuot": 5, "retries": 5}, "the extras 'retries', 'timeuot' are not known"),
        ({"timeout": -1}, "Timeout (timeout): must be greater than or equal to 0.001, not -1"),
        ({"verify": "/no/such.pem"}, "TLS verification (verify): names no usable CA bundle: /no/such.pem"),
        ({"client_cert": "/no/such.pem"}, "Client certificate (client_cert): cannot be used: /no/such.pem"),
        ({"auth": "api_key"}, "Authentication method (auth): is api_key, which needs an API key ID"),
        ({"superadmin_keys": "/no/such.pem", "superadmin_minimum": 1}, "neither a public key in PEM nor a file"),
        (
            {"superadmin_keys": BAD_PEM, "superadmin_minimum": 1},
            "(superadmin_keys): cannot be used: what stands in the PEM is not base64",
        ),
        ({"superadmin_minimum": 1}, "(superadmin_minimum): needs 'superadmin_keys'"),
    ],
    ids=str,
)
def test_a_wrong_setting_fails(
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    extra: dict[str, object],
    text: str,
) -> None:
    good, found = define(monkeypatch, sandbox, **extra).test_connection()
    assert not good
    assert text in found
    code = re.search(r" \[custody/([a-z-]+)\]$", found)
    assert code
    assert "custody_default" not in found
    assert sandbox.control.request_log() == []
    assert main(["check", "-o", "json"]) == 1
    # A warning of the log may be before it: in a process of its own, that goes to standard error.
    first = json.loads("{\n" + capsys.readouterr().out.partition("{\n")[2])["checks"][0]
    assert (first["check"], first["state"], first["code"]) == ("settings", "failed", code[1])
    assert text in f"{first['detail']} {first['advice']}"


def test_only_some_unknown_extras_are_named_and_none_can_forge_a_line() -> None:
    assert len(_describe_unknown([f"x{number}" for number in range(1000)], ["auth"])) < 400
    assert "\n" not in _describe_unknown(["a\nb" * 100], ["auth"])


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("http:/custody.example.com", "must begin with https:// (or http:// for a service on this machine)"),
        ("https:custody.example.com", "must begin with https:// (or http:// for a service on this machine)"),
        ("https://a..b", "names no host, or a host that cannot exist"),
        ("https://" + "a" * 64 + ".example.com", "names no host, or a host that cannot exist"),
        ("https://" + "a." * 150 + "com", "names no host, or a host that cannot exist"),
    ],
)
def test_a_base_url_that_leads_nowhere_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch, host: str, text: str
) -> None:
    connection = {"conn_type": "custody", "host": host, "password": "a-token-of-nobody"}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    good, found = CustodyHook().test_connection()
    assert not good
    assert found == f"Base URL (Host): the base URL {found.partition('the base URL ')[2]}"
    assert text in found
    assert found.endswith("[custody/setting-wrong]")


@pytest.mark.parametrize("host", ["https://custody.example.com.", "https://127.0.0.1", "https://[::1]:8443", "custody"])
def test_a_host_that_can_exist_is_taken(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    connection = {"conn_type": "custody", "host": host, "password": "a-token-of-nobody"}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    CustodyHook().get_conn().close()


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(
    "value", ["{not json", '{"conn_type": "custody", "passwrd": "a-secret"}', '{"conn_type": "custody", "password": 5}']
)
def test_a_variable_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BANK", value)
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyHook("bank").get_conn()
    assert caught.value.code == "setting-wrong"
    assert "'bank' cannot be read from the environment variable AIRFLOW_CONN_BANK. Correct" in str(caught.value)
    with pytest.raises(CustodyConfigurationError, match="cannot be read from the environment variable AIRFLOW_CONN_B"):
        ConnectionSigner("bank").check()
    monkeypatch.delenv("AIRFLOW_CONN_BANK")
    with pytest.raises(CustodyConfigurationError, match=r"'bank' is not defined\. Make a connection with this id"):
        CustodyHook("bank").get_conn()
