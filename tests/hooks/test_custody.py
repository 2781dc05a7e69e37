"""An Airflow connection becomes a client."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import requests
from airflow.providers.common.compat.sdk import Connection
from support.airflow.airflow_runs import AIRFLOW, redacted
from support.airflow.connections import connection_json
from support.airflow.task_log import TaskLog
from support.keys.pinned_keys import pinned, public_pem
from support.service.authorities import Authority

from airflow_custody.client import CustodyConfigurationError, VerificationPins
from airflow_custody.client.checks import ROLES
from airflow_custody.client.http.operation import Operation
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox

Define = Callable[[Any], CustodyHook]
BASE = {"conn_type": "custody", "host": "https://custody.example.com", "password": "a-token"}
#: Airflow 2's message about an extra that is not a JSON object.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def connection_of(sandbox: Sandbox, **fields: Any) -> dict[str, Any]:
    return {**json.loads(connection_json(sandbox)), **fields}


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (BASE, "https://custody.example.com"),
        ({**BASE, "host": "custody.example.com", "port": 8443}, "https://custody.example.com:8443"),
        ({**BASE, "host": "https://custody.example.com/prefix/"}, "https://custody.example.com/prefix"),
        ({**BASE, "host": "https://custody.example.com/prefix", "port": 444}, "https://custody.example.com:444/prefix"),
        ({**BASE, "host": "127.0.0.1", "schema": "http", "port": 80}, "http://127.0.0.1:80"),
        ("custody://:a-token@custody.example.com:8443/https?timeout=7", "https://custody.example.com:8443"),
        # Airflow removes the brackets of an IPv6 address.
        ("custody://:a-token@[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ({**BASE, "host": "2001:db8::1/prefix", "port": 444}, "https://[2001:db8::1]:444/prefix"),
    ],
    ids=str,
)
def test_base_url_in_every_notation(define: Define, connection: dict[str, Any], url: str) -> None:
    with define(connection).get_conn() as client:
        assert client.settings.base_url == url


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"host": ""}, "Base URL (Host)"),
        ({"host": "https://user:a-secret@custody.example.com:x", "port": 5}, "Base URL (Host)"),
        ({"host": "https://custody.example.com", "schema": "http"}, "Schema"),
        ({"schema": "gopher"}, "Schema"),
        ({"host": "https://custody.example.com:1", "port": 2}, "Port"),
        ({"password": ""}, "Password"),
        ({"password": "a-secret", "extra": {"api_key_id": "k"}}, "Password"),
        ({"conn_type": "http"}, "Connection Type"),
        ({"extra": {"verify": "/no/such/bundle.pem"}}, "TLS verification (verify)"),
        ({"extra": {"proxy": "http://user:a-secret@[proxy"}}, "Proxy (proxy)"),
        ({"extra": {"auth": ["bearer"]}}, "Authentication method (auth)"),
        ({"extra": {"auth": "api_key"}}, "(auth): is api_key, which needs an API key ID"),
        ({"login": "ann", "extra": {"auth": "bearer"}}, "(auth): is bearer, which needs neither"),
        ({"login": "ann", "extra": {"api_key_id": "k"}}, "leave one of them empty"),
        ({"password": "", "login": "ann"}, "the password is missing"),
        # Airflow 3.0 and 3.1 cannot read this form.
        ({"extra": '["a-secret"]'}, "AIRFLOW_CONN_CUSTODY_DEFAULT" if (3, 0) <= AIRFLOW < (3, 2) else "Extra"),
        ({"extra": '{"a-secret": '}, "custody_default"),
        ({"extra": '{"verify": true, "verify": false}'}, "repeats a name"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named_without_its_secret(define: Define, change: dict[str, Any], named: str) -> None:
    """A wrong setting is named like its field in the form, and its value is not quoted."""
    with pytest.raises(CustodyConfigurationError, match=re.escape(named)) as caught:
        define({**BASE, **change}).get_conn()
    assert caught.value.reason.count("custody_default") == 1
    for secret in ("a-token", "a-secret"):
        assert secret not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


@pytest.mark.usefixtures("airflow_db")
@pytest.mark.parametrize(
    "value", ["{not json", '{"conn_type": "custody", "passwrd": "a-secret"}', '{"conn_type": "custody", "password": 5}']
)
def test_a_connection_that_cannot_be_read_or_is_not_defined(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BANK", value)
    with pytest.raises(CustodyConfigurationError) as caught:
        CustodyHook("bank").get_conn()
    assert "'bank' cannot be read from the environment variable AIRFLOW_CONN_BANK\nCorrect" in str(caught.value)
    assert caught.value.code == "setting-wrong"
    assert "a-secret" not in str(caught.value)
    monkeypatch.delenv("AIRFLOW_CONN_BANK")
    with pytest.raises(CustodyConfigurationError, match=r"'bank' is not defined\nCreate a connection with this id"):
        CustodyHook("bank").get_conn()


@pytest.mark.parametrize(
    ("conn_id", "defined", "near"),
    [
        ("custody_defalt", "custody_default", "custody_default"),
        ("Custody-Signer", "custody_signer", "custody_signer"),
        ("custody_singer", "custody_signer", "custody_signer"),
        # Only an existing connection is suggested.
        ("custody_defalt", "custody_other", ""),
        ("bank", "custody_default", ""),
    ],
)
def test_a_near_miss_of_a_connections_id_is_answered_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, conn_id: str, defined: str, near: str
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_CUSTODY_DEFAULT", raising=False)
    monkeypatch.setenv(f"AIRFLOW_CONN_{defined.upper()}", json.dumps(BASE))
    with pytest.raises(CustodyConfigurationError, match=f"'{conn_id}' is not defined") as caught:
        CustodyHook(conn_id).get_conn()
    suggestion = f"is not defined: did you mean '{near}'?\n"
    assert (suggestion in str(caught.value)) is bool(near)
    assert ("did you mean" in str(caught.value)) is bool(near)


def test_empty_fields_of_the_form_count_as_unset(define: Define) -> None:
    extra = dict.fromkeys(get_provider_info()["connection-types"][0]["conn-fields"])
    for each in (extra, dict.fromkeys(extra, "")):
        with define({**BASE, "extra": each}).get_conn() as client:
            assert client.settings.timeout == 30


def test_an_unknown_extra_is_refused_and_its_value_is_not_shown(define: Define) -> None:
    names = ["a\nb", "superadmin-keys", "timeuot", *(f"x{number}" for number in range(100))]
    text = str(refusal(define({**BASE, "extra": dict.fromkeys(names, "a-value")})))
    assert "'custody_default', Extra: unknown key 'a\\nb', 'superadmin-keys', 'timeuot', 'x0'" in text
    # No value can forge a line of the log.
    assert len(text) < 800
    assert len(text.split("\n")) == 2


# --- values as secrets backends return them ------------------------------------------------------------------


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CustodyHook]:
    """Return a function that has a secrets backend return a connection with some fields, and returns its hook."""

    def define(**fields: Any) -> CustodyHook:
        connection = Connection(conn_id="custody_default", **{**BASE, **fields})
        monkeypatch.setattr(CustodyHook, "get_connection", staticmethod(lambda conn_id: connection))
        return CustodyHook()

    return define


@pytest.mark.parametrize("port", [" 8443\n", 8443, "", None, 0])
@pytest.mark.parametrize("host", ["https://custody.example.com:8443", " https://custody.example.com:8443/\n"])
def test_a_port_may_be_text(returned: Callable[..., CustodyHook], host: str, port: Any) -> None:
    with returned(host=host, port=port, schema=" https\n").get_conn() as client:
        assert client.settings.base_url == "https://custody.example.com:8443"


@pytest.mark.parametrize("port", ["x", "-1", "65536", True], ids=str)
def test_a_wrong_port_is_refused(returned: Callable[..., CustodyHook], port: Any) -> None:
    text = str(refusal(returned(port=port)))
    assert "Port: must be a whole number up to 65535" in text


def test_white_space_around_extras_is_removed(
    returned: Callable[..., CustodyHook], authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "keys.pem").write_text(ONE)
    extra = {
        "auth": "bearer ",
        "api_key_id": "\n",
        "verify": f" {authority[1]}\n",
        "client_cert": f"{authority[2]} , {authority[2]}\n",
        "superadmin_keys": f"{tmp_path}/keys.pem\n",
        "superadmin_minimum": " 1\n",
        "timeout": " 7.5\n",
        "max_retries": "2 ",
        "allow_http": "true\n",
        "allow_legacy_signatures": " False",
        "networks": " mainnet, testnet\n",
        "rules_not_before": " 2026-01-01\n",
        "proxy": " ",
    }
    for each in (json.dumps(extra), {**extra, "superadmin_keys": [f" {tmp_path}/keys.pem"]}):
        with returned(extra=each).get_conn() as client:
            settings = client.settings
        assert settings.verify == authority[1]
        assert settings.client_cert == (authority[2], authority[2])
        assert settings.timeout == 7.5
        assert settings.max_retries == 2
        assert settings.allow_http is True
        assert settings.pins == VerificationPins([ONE], 1, ["mainnet", "testnet"], False, 1767225600)
        assert settings.proxy is None


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        # A number may have lost leading zeros.
        ({"password": 12345678}, "Password"),
        ({"login": 7}, "User name (Login)"),
        ({"extra": '{"api_key_id": 7}'}, "API key ID (api_key_id)"),
        ({"host": 7}, "Base URL (Host)"),
        ({"schema": 7}, "Schema"),
    ],
    ids=str,
)
def test_a_number_in_place_of_text_is_refused(
    returned: Callable[..., CustodyHook], fields: dict[str, Any], named: str
) -> None:
    if AIRFLOW < (3, 0) and "password" in fields:
        pytest.skip("Airflow 2 does not accept such a connection")
    text = str(refusal(returned(**fields)))
    assert f"{named}: must be text: put it in quotation marks" in text
    assert "12345678" not in text


# --- what is masked, and what is new -------------------------------------------------------------------------


def test_the_token_is_masked_in_logs(define: Define) -> None:
    # The secret is masked without its line break, because it is sent without it.
    define({**BASE, "password": "s3cr3t-t0k3n-value\r\n"}).get_conn().close()
    assert redacted("token is s3cr3t-t0k3n-value") == "token is ***"


def test_the_password_of_a_proxy_is_masked_by_itself(define: Define) -> None:
    proxy = "http://user:c0rrect%2Fh0rse@proxy.example.com:3128"
    define({**BASE, "extra": {"proxy": proxy}}).get_conn().close()
    for shown in (proxy, "c0rrect%2Fh0rse", "c0rrect/h0rse"):
        assert "h0rse" not in redacted(f"it is {shown}")


def test_a_renewed_token_is_picked_up(define: Define, sandbox: Sandbox) -> None:
    from airflow import __version__

    hook = define(connection_of(sandbox))
    first = hook.get_conn()
    assert hook.get_conn() is first
    define(connection_of(sandbox, password=sandbox.control.add_token(roles=["TPUser"])))
    second = hook.get_conn()
    assert second is not first
    assert second.list_health_checks()
    hook.close()
    (received,) = sandbox.control.request_log()
    assert received["headers"]["user-agent"].startswith("airflow-provider-custody/")
    assert f"Airflow/{__version__}" in received["headers"]["user-agent"]


# --- signing in ----------------------------------------------------------------------------------------------


def test_a_user_name_and_a_password(define: Define, sandbox: Sandbox, task_log: TaskLog) -> None:
    ann = sandbox.control.add_user("ann", ["TPUser"], password="ann-s-password")
    connection = connection_of(sandbox, login="ann", password="ann-s-password")
    hook = define(connection)
    client = hook.get_conn()
    assert client.list_health_checks()
    sent = requests.Request("GET", sandbox.url).prepare()
    client.auth.apply(sent, client._transport)
    assert redacted(sent.headers["Authorization"]) == "Bearer ***"
    hook.close()
    sandbox.control.add_user("ann", ["TPUser"], user_id=ann, password="another")
    good, text = define(connection).test_connection()
    assert not good
    assert "(from this connection)" in text
    assert "ann-s-password" not in text + task_log.text


# --- the test of a connection --------------------------------------------------------------------------------


class TestTestConnection:
    def test_success(self, define: Define, sandbox: Sandbox) -> None:
        good, text = define(connection_of(sandbox)).test_connection()
        assert good, text
        assert "User 1 has the roles: TPUser, WhitelistedAddressCreator" in text
        assert "Missing" not in text

    # Connections that work are tested with ``custody check``, which uses the same checks.
    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ({"status": 404, "times": 2}, "3.14.*credentials could not be tested"),
            # An older service is not reported as a success, but the user is named.
            ({"status": 404, "path": "/health"}, "3.14.*User 1 has the roles"),
            (
                {"status": 200, "path": "/health", "body": {}},
                "lists 0 health checks. Without health checks, the health operator and sensor never succeed.",
            ),
            ({"status": 404, "path": "/users/me"}, "The service does not return the user's roles."),
            ({"status": 200, "path": "/users/me", "body": {"result": {"id": "7", "roles": []}}}, "the roles: none"),
        ],
        ids=str,
    )
    def test_each_fault_has_its_own_message(
        self, define: Define, sandbox: Sandbox, fault: dict[str, Any], message: str
    ) -> None:
        sandbox.control.add_fault("status", **fault)
        text = define(connection_of(sandbox)).test_connection()[1]
        assert re.search(message, text), text
        assert sandbox.token not in text

    @pytest.mark.parametrize(
        ("extra", "message"),
        [
            ({"regoin": "eu"}, "Extra: unknown key 'regoin'. Correct or remove it; valid keys: auth, api_key_id"),
            ({"timeout": -1}, "Timeout (timeout): must be greater than or equal to 0.001, not -1"),
        ],
        ids=["unknown key", "out of bounds"],
    )
    def test_a_wrong_setting_fails(self, define: Define, sandbox: Sandbox, extra: dict[str, Any], message: str) -> None:
        good, text = define(connection_of(sandbox, extra=extra)).test_connection()
        assert good is False
        assert message in text
        assert "custody_default" not in text
        assert text.endswith(" [custody/setting-wrong]")
        # Airflow shows the result on one line only.
        assert "\n" not in text
        assert sandbox.control.request_log() == []


def test_all_roles_that_operations_need_are_known() -> None:
    subjects = ("approvals", "health", "rules", "users", "webhooks", "whitelist")
    modules = [vars(import_module(f"airflow_custody.client.{each}.operations")).values() for each in subjects]
    operations = [each for module in modules for each in module if isinstance(each, Operation)]
    assert {role for each in operations for role in each.roles} == set(ROLES)


# --- pins --------------------------------------------------------------------------------------------------------


ONE, TWO = public_pem(1), public_pem(2)


def refusal(hook: CustodyHook) -> CustodyConfigurationError:
    with pytest.raises(CustodyConfigurationError) as caught:
        hook.get_conn()
    for secret in ("a-token", "a-value"):
        assert secret not in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize("keys", ["keys.pem", [ONE, "./keys.pem"], "~/keys.pem"], ids=["relative", "in a list", "home"])
def test_a_relative_path_is_refused(monkeypatch: pytest.MonkeyPatch, define: Define, tmp_path: Path, keys: Any) -> None:
    (tmp_path / "keys.pem").write_text(TWO)
    monkeypatch.chdir(tmp_path)
    error = refusal(define({**BASE, "extra": {"superadmin_keys": keys, "superadmin_minimum": 1}}))
    assert (
        "Super-administrators' public keys (superadmin_keys): must be public keys in PEM, or the absolute path of a "
        "file with them"
    ) in str(error)


@pytest.mark.parametrize(
    ("pins", "status", "good", "text"),
    [
        ("own", 200, True, "The service's current rules are signed by the pinned keys."),
        ("own", 403, True, "The service's rules could not be verified, because it does not offer them"),
        ("others", 200, False, "the service's rules are not verified: its rules are signed by none of the pinned keys"),
    ],
)
def test_the_rules_are_verified(
    sandbox: Sandbox, define: Define, pins: str, status: int, good: bool, text: str
) -> None:
    connection = json.loads(sandbox.connection(pins=True))
    connection["extra"] |= pinned(1) if pins == "others" else {}
    if status != 200:
        sandbox.control.add_fault("status", path="/rules", status=status)
    found, words = define(connection).test_connection()
    assert found is good
    assert text in words


def test_a_changed_file_of_a_setting_is_a_changed_connection(
    define: Define, tmp_path: Path, authority: Authority
) -> None:
    """A running process, such as a watcher, must stop trusting a key when its file revokes the key."""
    contents = {
        "superadmin_keys": (ONE, TWO),
        "verify": (Path(authority[1]).read_text(), Path(authority[1]).read_text() * 2),
        "client_cert": (Path(authority[2]).read_text(), Path(authority[2]).read_text() + "\n"),
    }
    paths = {name: tmp_path / name for name in contents}
    for name, path in paths.items():
        path.write_text(contents[name][0])
    extra = {**{name: str(path) for name, path in paths.items()}, "superadmin_minimum": 1}
    with define({**BASE, "extra": extra}) as hook:
        client = hook.get_conn()
        for name, path in paths.items():
            assert hook.get_conn() is client
            # The new file has the same size and age as the old one, where the content allows this.
            before = path.stat()
            path.write_text(contents[name][1])
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            changed = hook.get_conn()
            assert changed is not client, name
            client = changed
        assert client.settings.superadmin_keys == (TWO,)
        paths["superadmin_keys"].unlink()
        with pytest.raises(CustodyConfigurationError, match="No such file"):
            hook.get_conn()
