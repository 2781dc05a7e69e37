from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from airflow_runs import AIRFLOW, redacted
from connections import connection_json
from task_log import TaskLog

from airflow_custody.client import CustodyConfigurationError
from airflow_custody.client.text import sanitize
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.hooks._connection_test import describe_user
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox


def define(monkeypatch: pytest.MonkeyPatch, value: object) -> CustodyHook:
    text = value if isinstance(value, str) else json.dumps(value)
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", text)
    return CustodyHook()


BASE = {"conn_type": "custody", "host": "https://custody.example.com", "password": "a-token"}


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (BASE, "https://custody.example.com"),
        ({**BASE, "host": "custody.example.com"}, "https://custody.example.com"),
        ({**BASE, "host": "custody.example.com", "port": 8443}, "https://custody.example.com:8443"),
        ({**BASE, "port": 8443}, "https://custody.example.com:8443"),
        ({**BASE, "host": "https://custody.example.com/prefix/"}, "https://custody.example.com/prefix"),
        ({**BASE, "host": "https://custody.example.com/prefix", "port": 444}, "https://custody.example.com:444/prefix"),
        ({**BASE, "host": "127.0.0.1", "schema": "http", "port": 80}, "http://127.0.0.1:80"),
        ("custody://:a-token@custody.example.com:8443/https?timeout=7", "https://custody.example.com:8443"),
        ("custody://:a-token@custody.example.com", "https://custody.example.com"),
    ],
)
def test_base_url_in_every_notation(monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], url: str) -> None:
    with define(monkeypatch, connection).get_conn() as client:
        assert client.settings.base_url == url


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Airflow 2, about an extra that is no object
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"host": ""}, "Host"),
        ({"host": "ftp://custody.example.com"}, "Host"),
        ({"host": "https://user:secret@custody.example.com"}, "Host"),
        ({"host": "http://custody.example.com"}, "Host"),
        ({"host": "https://custody.example.com", "schema": "http"}, "Schema"),
        ({"schema": "gopher"}, "Schema"),
        ({"host": "https://custody.example.com:1", "port": 2}, "Port"),
        ({"password": ""}, "Password"),
        ({"password": "two\nlines-of-token"}, "Password"),
        ({"conn_type": "http"}, "Connection Type"),
        ({"extra": {"timeout": "soon"}}, "timeout"),
        ({"extra": {"timeout": -1}}, "timeout"),
        ({"extra": {"verify": "/no/such/bundle.pem"}}, "verify"),
        ({"extra": {"client_cert": "/no/such/cert.pem"}}, "client_cert"),
        ({"extra": {"client_cert": "/no/a.pem, /no/b.pem"}}, "client_cert"),
        ({"extra": {"proxy": "nonsense"}}, "proxy"),
        ({"extra": {"max_retries": 1.5}}, "max_retries"),
        ({"extra": {"allow_http": "perhaps"}}, "allow_http"),
        # Airflow 3.0 and 3.1 cannot read it.
        ({"extra": "[1]"}, "AIRFLOW_CONN_CUSTODY_DEFAULT" if (3, 0) <= AIRFLOW < (3, 2) else "Extra"),
        ({"extra": {"auth": ["bearer"]}}, "auth"),
        ({"extra": {"auth": {"bearer": 1}}}, "auth"),
        ({"host": ""}, "Base URL"),
        ({"schema": "ftp"}, "Schema"),
    ],
)
def test_a_wrong_setting_is_named_and_the_token_is_not_quoted(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], named: str
) -> None:
    hook = define(monkeypatch, {**BASE, **change})
    with pytest.raises(CustodyConfigurationError, match=named) as caught:
        hook.get_conn()
    assert caught.value.reason.count("custody_default") == 1
    assert caught.value.reason.count(named) == 1
    for secret in ("a-token", "secret", "lines-of-token"):
        assert secret not in str(caught.value)


def test_a_connection_that_is_not_defined() -> None:
    with pytest.raises(CustodyConfigurationError, match="'nowhere' is not defined"):
        CustodyHook("nowhere").get_conn()


def test_empty_fields_of_the_form_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = dict.fromkeys(get_provider_info()["connection-types"][0]["conn-fields"])
    with define(monkeypatch, {**BASE, "extra": extra}).get_conn() as client:
        assert client.settings.timeout == 30
    with define(monkeypatch, {**BASE, "extra": dict.fromkeys(extra, "")}).get_conn() as client:
        assert client.settings.timeout == 30


def test_extras_given_as_text_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = define(
        monkeypatch, "custody://:t0ken@127.0.0.1:1/http?timeout=7.5&verify=False&max_retries=0&allow_http=true"
    )
    with hook.get_conn() as client:
        assert client.settings.timeout == 7.5
        assert client.settings.verify is False


@pytest.mark.parametrize("size", [1_000_000.0, "1000000"])
def test_a_size_may_be_any_whole_number(monkeypatch: pytest.MonkeyPatch, size: object) -> None:
    with define(monkeypatch, {**BASE, "extra": {"max_response_bytes": size}}).get_conn() as client:
        assert client.settings.max_response_bytes == int(float(str(size)))


def test_an_unknown_extra_is_named_and_its_value_is_not(monkeypatch: pytest.MonkeyPatch, task_log: TaskLog) -> None:
    define(monkeypatch, {**BASE, "extra": {"verfy": "shh-secret"}}).get_conn().close()
    text = task_log.text
    assert "verfy" in text
    assert "shh-secret" not in text


def test_the_token_is_masked_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = define(monkeypatch, {**BASE, "password": "s3cr3t-t0k3n-value"})
    hook.get_conn().close()
    assert redacted("token is s3cr3t-t0k3n-value") == "token is ***"


def test_the_password_of_a_proxy_is_masked_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = "http://user:c0rrect%2Fh0rse@proxy.example.com:3128"
    define(monkeypatch, {**BASE, "extra": {"proxy": proxy}}).get_conn().close()
    for shown in (proxy, "c0rrect%2Fh0rse", "c0rrect/h0rse"):
        assert "h0rse" not in redacted(f"it is {shown}")


def test_a_renewed_token_is_picked_up(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    hook = define(monkeypatch, connection_json(sandbox))
    first = hook.get_conn()
    assert hook.get_conn() is first
    token = sandbox.control.add_token(roles=["TPUser"])
    monkeypatch.setenv(
        "AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps({**json.loads(connection_json(sandbox)), "password": token})
    )
    second = hook.get_conn()
    assert second is not first
    assert second.list_health_checks()
    hook.close()


def test_user_agent_names_airflow(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    from airflow import __version__

    with define(monkeypatch, connection_json(sandbox)).get_conn() as client:
        client.list_health_checks()
    (received,) = sandbox.control.request_log()
    assert received["headers"]["user-agent"].startswith("airflow-provider-custody/")
    assert f"Airflow/{__version__}" in received["headers"]["user-agent"]


class TestTestConnection:
    def test_success(self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert good, text
        assert [(each["method"], each["path"]) for each in sandbox.control.request_log()] == [
            ("GET", "/api/rest/v1/health"),
            ("GET", "/api/rest/v1/users/me"),
        ]
        assert "User 1 has the roles: TPUser, WhitelistedAddressCreator" in text
        assert "Missing" not in text

    def test_names_the_roles_that_are_missing(self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
        token = sandbox.control.add_token(roles=["tpuser"])
        connection = json.loads(connection_json(sandbox)) | {"password": token}
        good, text = define(monkeypatch, connection).test_connection()
        assert good
        assert "Missing: WhitelistedAddressCreator (creating whitelisting requests), WhitelistedAddressApprover" in text

    def test_what_the_service_says_of_the_user_is_bounded(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
    ) -> None:
        roles = ["TPUser", "\x1b[2J\u202e", "r" * 500, *(f"role{number}" for number in range(500))]
        connection = json.loads(connection_json(sandbox)) | {"password": sandbox.control.add_token(roles=roles)}
        good, text = define(monkeypatch, connection).test_connection()
        assert good
        assert not {"\x1b", "\u202e"} & set(text)
        assert len(text) < 2000
        long = describe_user({"id": "7\x1b" + "7" * 500, "roles": None}, sanitize)
        assert len(long) < 700
        assert "\x1b" not in long

    def test_no_health_checks_are_no_gate(self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
        sandbox.control.set_health([])
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert good
        assert "lists 0 health checks. Without any, no health gate passes." in text

    def test_a_refusal_to_fetch_the_user_is_a_missing_role(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
    ) -> None:
        sandbox.control.add_fault("status", path="/users/me", status=403)
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert not good
        assert text.endswith("needs the role TPUser. [custody/role-missing]")

    @pytest.mark.parametrize("status", [404, 405])
    def test_works_where_the_user_cannot_be_fetched(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, status: int
    ) -> None:
        sandbox.control.add_fault("status", path="/users/me", status=status)
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert good
        assert "health checks" in text
        # A gateway's page does not say what the service offers.
        sandbox.control.add_fault("html", path="/users/me", status=status)
        assert define(monkeypatch, connection_json(sandbox)).test_connection()[0] is False

    def test_an_older_service_is_not_a_success_but_its_user_is_named(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
    ) -> None:
        sandbox.control.configure(version="3.13")
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert not good
        assert "3.14" in text
        assert "User 1 has the roles" in text

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ({"kind": "status", "status": 401}, "token is wrong"),
            ({"kind": "status", "status": 403}, "TPUser"),
            ({"kind": "status", "status": 404, "times": 2}, "3.14.*credentials could not be tested"),
            ({"kind": "html"}, "not a response of the custody service"),
            ({"kind": "status", "status": 200, "body": {"status": "UP"}}, "not a response of the custody service"),
            ({"kind": "redirect", "location": "https://elsewhere.example/"}, "elsewhere.example"),
            ({"kind": "status", "status": 500}, "status 500"),
        ],
    )
    def test_each_fault_has_its_own_message(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, fault: dict[str, Any], message: str
    ) -> None:
        import re

        sandbox.control.add_fault(**fault)
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert not good
        assert re.search(message, text), text
        assert sandbox.token not in text

    def test_wrong_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        good, text = define(
            monkeypatch,
            {"conn_type": "custody", "host": "http://127.0.0.1:9", "password": "t0ken", "extra": {"max_retries": 0}},
        ).test_connection()
        assert not good
        assert "cannot be reached" in text
        assert "The port may be wrong, or the service is down: check the base URL of this connection." in text

    def test_tls_failure(self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
        good, text = define(
            monkeypatch,
            {
                "conn_type": "custody",
                "host": sandbox.url.replace("http://", "https://"),
                "password": "t0ken",
                "extra": {"max_retries": 0},
            },
        ).test_connection()
        assert not good
        assert "Begin the base URL of this connection with http://, or give the port" in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Airflow 2, about an extra that is no object
@pytest.mark.parametrize(
    "change",
    [
        {"extra": '{"a-secret": '},
        {"extra": '["a-secret"]'},
        {"host": "https://user:a-secret@[custody"},
        {"host": "https://user:a-secret@custody.example.com:x", "port": 5},
        {"password": "a-secret-\u20ac"},
        {"password": "a-secret", "extra": {"api_key_id": "k"}},
        {"extra": {"proxy": "http://user:a-secret@[proxy"}},
    ],
    ids=str,
)
def test_no_secret_in_a_chain(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        define(monkeypatch, {**BASE, **change}).get_conn()
    assert "a-secret" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


class TestSigningIn:
    def test_a_user_name_and_a_password(
        self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, task_log: TaskLog
    ) -> None:
        ann = sandbox.control.add_user("ann", ["TPUser"], password="ann-s-password")
        connection = json.loads(connection_json(sandbox)) | {"login": "ann", "password": "ann-s-password"}
        hook = define(monkeypatch, connection)
        assert len(hook.get_conn().list_health_checks()) > 0
        assert hook.get_conn() is hook.get_conn()
        sent = requests.Request("GET", sandbox.url).prepare()
        client = hook.get_conn()
        client.auth.apply(sent, client._transport)
        assert redacted(sent.headers["Authorization"]) == "Bearer ***"
        hook.close()
        sandbox.control.add_user("ann", ["TPUser"], user_id=ann, password="another")
        good, text = define(monkeypatch, connection).test_connection()
        assert not good
        assert "come from this connection" in text
        assert "ann-s-password" not in text + task_log.text

    def test_an_api_key(self, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
        made = sandbox.control.add_api_key(sandbox.control.add_user("ann", ["TPUser"]))
        connection = json.loads(connection_json(sandbox, api_key_id=made["id"])) | {"password": made["secret"]}
        good, text = define(monkeypatch, connection).test_connection()
        assert good, text
        (call, _) = sandbox.control.request_log()
        assert call["headers"]["authorization"].startswith("TPV1-HMAC-SHA256 ")

    @pytest.mark.parametrize("auth", ["bearer", "password", "api_key"])
    @pytest.mark.parametrize("filled_in", ["bearer", "password", "api_key"])
    def test_auth_must_agree_with_the_other_fields(
        self, monkeypatch: pytest.MonkeyPatch, auth: str, filled_in: str
    ) -> None:
        connection: dict[str, Any] = {**BASE, "password": "abcdef", "extra": {"auth": auth}}
        if filled_in == "password":
            connection["login"] = "ann"
        if filled_in == "api_key":
            connection["extra"]["api_key_id"] = "key-1"
        if auth == filled_in:
            with define(monkeypatch, connection).get_conn() as client:
                assert (
                    type(client.auth).__name__
                    == {
                        "bearer": "BearerToken",
                        "password": "PasswordSignIn",
                        "api_key": "ApiKey",
                    }[auth]
                )
        else:
            with pytest.raises(CustodyConfigurationError, match=rf"\(auth\): is {auth}, which needs"):
                define(monkeypatch, connection).get_conn()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"login": "ann", "extra": {"api_key_id": "k"}}, "leave one of them empty"),
            ({"extra": {"auth": "magic"}}, "bearer, password or api_key"),
            ({"password": "", "login": "ann"}, "the password is missing"),
            ({"password": "", "extra": {"api_key_id": "k"}}, "the API key's secret is missing"),
            (
                {"password": "not-hex-at-all", "extra": {"api_key_id": "k"}},
                "Password: the API key's secret is not made of hexadecimal digits",
            ),
        ],
    )
    def test_ambiguous_or_missing_credentials_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(CustodyConfigurationError, match=message) as caught:
            define(monkeypatch, {**BASE, **change}).get_conn()
        assert "not-hex-at-all" not in str(caught.value)
