from __future__ import annotations

import json

import pytest
import requests
from airflow_runs import redacted
from conftest import connection_json

from airflow_custody.client import CustodyConfigurationError
from airflow_custody.get_provider_info import get_provider_info
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
def test_base_url_in_each_way_of_writing_it(monkeypatch, connection, url):
    with define(monkeypatch, connection).get_conn() as client:
        assert client._transport.base_url == url


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
        ({"extra": "[1]"}, "Extra"),
    ],
)
def test_a_wrong_setting_is_named_and_the_token_is_not_shown(monkeypatch, change, named):
    hook = define(monkeypatch, {**BASE, **change})
    with pytest.raises(CustodyConfigurationError, match=named) as caught:
        hook.get_conn()
    assert "custody_default" in str(caught.value)
    for secret in ("a-token", "secret", "lines-of-token"):
        assert secret not in str(caught.value)


def test_a_connection_that_is_not_defined():
    with pytest.raises(CustodyConfigurationError, match="'nowhere' is not defined"):
        CustodyHook("nowhere").get_conn()


def test_what_the_form_leaves_empty_counts_as_unset(monkeypatch):
    extra = dict.fromkeys(get_provider_info()["connection-types"][0]["conn-fields"])
    with define(monkeypatch, {**BASE, "extra": extra}).get_conn() as client:
        assert client.timeout == 30
    with define(monkeypatch, {**BASE, "extra": dict.fromkeys(extra, "")}).get_conn() as client:
        assert client.timeout == 30


def test_extras_as_text_are_read_as_what_they_spell(monkeypatch):
    hook = define(
        monkeypatch, "custody://:t0ken@127.0.0.1:1/http?timeout=7.5&verify=False&max_retries=0&allow_http=true"
    )
    with hook.get_conn() as client:
        assert client.timeout == 7.5
        assert client._transport._verify is False


def test_an_unknown_extra_is_named_and_its_value_is_not(monkeypatch, task_log):
    define(monkeypatch, {**BASE, "extra": {"verfy": "shh-secret"}}).get_conn().close()
    text = task_log.text
    assert "verfy" in text
    assert "shh-secret" not in text


def test_the_token_is_masked_in_logs(monkeypatch):
    hook = define(monkeypatch, {**BASE, "password": "s3cr3t-t0k3n-value"})
    hook.get_conn().close()
    assert redacted("token is s3cr3t-t0k3n-value") == "token is ***"


def test_a_token_that_was_renewed_is_taken_up(monkeypatch, sandbox: Sandbox):
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


def test_user_agent_names_airflow(monkeypatch, sandbox: Sandbox):
    from airflow import __version__

    with define(monkeypatch, connection_json(sandbox)).get_conn() as client:
        client.list_health_checks()
    (received,) = sandbox.control.received()
    assert received["headers"]["user-agent"].startswith("airflow-provider-custody/")
    assert f"Airflow/{__version__}" in received["headers"]["user-agent"]


class TestTestConnection:
    def test_success(self, monkeypatch, sandbox: Sandbox):
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert good, text
        assert [(each["method"], each["path"]) for each in sandbox.control.received()] == [
            ("GET", "/api/rest/v1/health"),
            ("GET", "/api/rest/v1/users/me"),
        ]
        assert "User 1 has the roles: TPUser, WhitelistedAddressCreator" in text
        assert "Missing" not in text

    def test_names_the_roles_that_are_missing(self, monkeypatch, sandbox: Sandbox):
        token = sandbox.control.add_token(roles=["tpuser"])
        connection = json.loads(connection_json(sandbox)) | {"password": token}
        good, text = define(monkeypatch, connection).test_connection()
        assert good
        assert "Missing: WhitelistedAddressCreator (creating whitelisting requests), WhitelistedAddressApprover" in text

    @pytest.mark.parametrize("status", [403, 404, 405])
    def test_does_without_the_user_where_that_is_not_offered(self, monkeypatch, sandbox: Sandbox, status):
        sandbox.control.order_fault("status", path="/users/me", status=status)
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert good
        assert "health checks" in text

    def test_an_older_service_is_no_success_but_knows_its_user(self, monkeypatch, sandbox: Sandbox):
        sandbox.control.set_version("3.13")
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert not good
        assert "3.14" in text
        assert "User 1 has the roles" in text

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            ({"answer": "status", "status": 401}, "token is wrong"),
            ({"answer": "status", "status": 403}, "TPUser"),
            ({"answer": "status", "status": 404, "times": 2}, "3.14.*could not be tested"),
            ({"answer": "html"}, "not an answer of the custody service"),
            ({"answer": "status", "status": 200, "body": {"status": "UP"}}, "not an answer of the custody service"),
            ({"answer": "redirect", "location": "https://elsewhere.example/"}, "elsewhere.example"),
            ({"answer": "status", "status": 500}, "status 500"),
        ],
    )
    def test_tells_faults_apart(self, monkeypatch, sandbox: Sandbox, fault, said):
        import re

        sandbox.control.order_fault(**fault)
        good, text = define(monkeypatch, connection_json(sandbox)).test_connection()
        assert not good
        assert re.search(said, text), text
        assert sandbox.token not in text

    def test_wrong_host(self, monkeypatch):
        good, text = define(
            monkeypatch,
            {"conn_type": "custody", "host": "http://127.0.0.1:9", "password": "t0ken", "extra": {"max_retries": 0}},
        ).test_connection()
        assert not good
        assert "can not be reached" in text

    def test_tls_failure(self, monkeypatch, sandbox: Sandbox):
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
        assert "TLS" in text


class TestSigningIn:
    def test_a_user_name_and_a_password(self, monkeypatch, sandbox: Sandbox, task_log):
        ann = sandbox.control.add_user("ann", ["TPUser"], password="ann-s-password")
        connection = json.loads(connection_json(sandbox)) | {"login": "ann", "password": "ann-s-password"}
        hook = define(monkeypatch, connection)
        assert len(hook.get_conn().list_health_checks()) > 0
        assert hook.get_conn() is hook.get_conn()
        sent = hook.get_conn()._auth(requests.Request("GET", sandbox.url).prepare())
        assert redacted(sent.headers["Authorization"]) == "Bearer ***"
        hook.close()
        sandbox.control.add_user("ann", ["TPUser"], user_id=ann, password="another")
        good, text = define(monkeypatch, connection).test_connection()
        assert not good
        assert "come from the Airflow connection" in text
        assert "ann-s-password" not in text + task_log.text

    def test_an_api_key(self, monkeypatch, sandbox: Sandbox):
        made = sandbox.control.add_api_key(sandbox.control.add_user("ann", ["TPUser"]))
        connection = json.loads(connection_json(sandbox, api_key_id=made["id"])) | {"password": made["secret"]}
        good, text = define(monkeypatch, connection).test_connection()
        assert good, text
        (call, _) = sandbox.control.received()
        assert call["headers"]["authorization"].startswith("TPV1-HMAC-SHA256 ")

    @pytest.mark.parametrize("auth", ["bearer", "password", "api_key"])
    @pytest.mark.parametrize("filled_in", ["bearer", "password", "api_key"])
    def test_what_is_said_and_what_is_filled_in_must_agree(self, monkeypatch, auth, filled_in):
        connection = {**BASE, "password": "abcdef", "extra": {"auth": auth}}
        if filled_in == "password":
            connection["login"] = "ann"
        if filled_in == "api_key":
            connection["extra"]["api_key_id"] = "key-1"
        if auth == filled_in:
            with define(monkeypatch, connection).get_conn() as client:
                assert (
                    type(client._auth).__name__
                    == {
                        "bearer": "BearerToken",
                        "password": "PasswordSignIn",
                        "api_key": "ApiKey",
                    }[auth]
                )
        else:
            with pytest.raises(CustodyConfigurationError, match=f"auth: is {auth}, which needs"):
                define(monkeypatch, connection).get_conn()

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"login": "ann", "extra": {"api_key_id": "k"}}, "leave one of them empty"),
            ({"extra": {"auth": "magic"}}, "bearer, password or api_key"),
            ({"password": "", "login": "ann"}, "the password is missing"),
            ({"password": "", "extra": {"api_key_id": "k"}}, "the API key's secret is missing"),
            ({"password": "not-hex-at-all", "extra": {"api_key_id": "k"}}, "Password: the API key's secret is not hex"),
        ],
    )
    def test_what_is_ambiguous_or_missing_is_refused(self, monkeypatch, change, said):
        with pytest.raises(CustodyConfigurationError, match=said) as caught:
            define(monkeypatch, {**BASE, **change}).get_conn()
        assert "not-hex-at-all" not in str(caught.value)
