"""The client, with and without faults, over a real socket."""

from __future__ import annotations

import logging
import pickle
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from authorities import Authority, context_of
from clocks import SkippingTime
from raw_server import raw_server

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyConflictError,
    CustodyConnectionError,
    CustodyError,
    CustodyNotFoundError,
    CustodyOutcomeUnknownError,
    CustodyPermissionError,
    CustodyRateLimitError,
    CustodyRequestError,
    CustodyResponseError,
    CustodyServerError,
    WhitelistRequest,
)
from airflow_custody.sandbox import Sandbox, health_entry

REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0) as made:
        yield made


@pytest.fixture
def repeating(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=1) as made:
        yield made


class TestHealth:
    def test_entries(self, sandbox: Sandbox, client: CustodyClient) -> None:
        sandbox.control.set_health_response(
            {
                "groups": {
                    "hsm": {
                        "healthChecks": [
                            {
                                "tenantId": 1,
                                "componentName": "c",
                                "group": "hsm",
                                "healthCheck": "k",
                                "status": "Success",
                                "validUntilDate": "2026-01-02T03:04:05.123456789Z",
                                "report": {"duration": "1m2.5s", "results": {"ETH": "success"}, "new": 1},
                                "unknown": [],
                            },
                            {},
                        ]
                    },
                    "empty": {},
                    "null": None,
                }
            }
        )
        full, bare, unreadable = client.list_health_checks()
        assert (full.tenant_id, full.status, full.listed_under) == ("1", "Success", "hsm")
        assert full.report is not None
        assert full.report["duration"] == "1m2.5s"
        assert full.report["results"] == {"ETH": "success"}
        assert full.last_update_date is None
        assert (bare.status, bare.report) == (None, None)
        assert (unreadable.listed_under, unreadable.is_readable) == ("null", False)

    def test_tenant(self, sandbox: Sandbox, client: CustodyClient) -> None:
        assert {check.tenant_id for check in client.list_health_checks("2")} == {"2"}
        assert sandbox.control.request_log()[0]["query"] == {"tenantId": ["2"]}
        with pytest.raises(CustodyRequestError, match="tenant"):
            client.list_health_checks("")

    def test_an_empty_listing_is_valid(self, sandbox: Sandbox, client: CustodyClient) -> None:
        responses: list[dict[str, Any]] = [{}, {"groups": {}}, {"groups": None}]
        for response in responses:
            sandbox.control.set_health_response(response)
            assert client.list_health_checks() == []

    @pytest.mark.parametrize(
        "body", ['{"status": "UP"}', "[]", '"x"', "null", "<html>gateway</html>", "{", '{"groups": 3}']
    )
    def test_a_response_of_another_service_is_refused(self, sandbox: Sandbox, client: CustodyClient, body: Any) -> None:
        sandbox.control.add_fault("status", status=200, body=body, content_type="text/x-test")
        with pytest.raises(CustodyResponseError, match=r"not a response of the custody service.*text/x-test"):
            client.list_health_checks()

    @pytest.mark.parametrize("kind", ["empty", "truncate_body"])
    def test_an_empty_or_truncated_body_is_refused(self, sandbox: Sandbox, client: CustodyClient, kind: str) -> None:
        sandbox.control.add_fault(kind)
        with pytest.raises(CustodyResponseError, match="not a response of the custody service"):
            client.list_health_checks()

    def test_ten_thousand_checks(self, sandbox: Sandbox, client: CustodyClient) -> None:
        sandbox.control.set_health([health_entry(check=f"c{i}") for i in range(10_000)])
        assert len(client.list_health_checks()) == 10_000

    @pytest.mark.parametrize("chunked", [False, True])
    def test_a_response_that_is_too_large_is_refused(self, sandbox: Sandbox, chunked: bool) -> None:
        sandbox.control.add_fault("large", size=5_000_000, chunked=chunked)
        with (
            CustodyClient(sandbox.url, sandbox.token, max_response_bytes=1_000_000) as client,
            pytest.raises(CustodyResponseError, match="larger than 1000000"),
        ):
            client.list_health_checks()

    @pytest.mark.parametrize("fault", [{"kind": "trickle"}, {"kind": "normal", "delay": 3600}])
    def test_the_time_out_bounds_the_wait_and_the_body(self, sandbox: Sandbox, fault: dict[str, Any]) -> None:
        sandbox.control.add_fault(**fault)
        with (
            CustodyClient(sandbox.url, sandbox.token, timeout=1, max_retries=0) as client,
            pytest.raises(CustodyConnectionError, match=r"within 1 s"),
        ):
            client.list_health_checks()


WITHOUT_ID: list[Any] = [
    {},
    {"result": {}},
    {"result": {"id": ""}},
    {"result": {"id": None}},
    {"result": {"id": 1.5}},
    [],
]
UNKNOWN: list[dict[str, Any]] = [
    {"kind": "drop"},
    {"kind": "drop", "work": True},
    {"kind": "truncate_body"},
    {"kind": "truncate_headers"},
    {"kind": "empty"},
    {"kind": "html"},
    {"kind": "trickle"},
    {"kind": "normal", "delay_after": 3600},
    *({"kind": "status", "status": status} for status in (408, 500, 502, 503, 504)),
    *({"kind": "status", "status": 200, "body": body} for body in WITHOUT_ID),
]


class TestCreate:
    @pytest.mark.parametrize("fault", UNKNOWN, ids=str)
    def test_a_create_that_may_have_been_carried_out_is_sent_once(
        self, sandbox: Sandbox, fault: dict[str, Any]
    ) -> None:
        sandbox.control.add_fault(times=None, **fault)
        # Only what never ends waits for the time-out.
        timeout = 1 if fault["kind"] in ("normal", "trickle") else 60
        with (
            CustodyClient(sandbox.url, sandbox.token, timeout=timeout, max_retries=3) as client,
            pytest.raises(CustodyOutcomeUnknownError, match="may have been carried out") as caught,
        ):
            client.create_whitelist_request(REQUEST)
        assert not caught.value.retryable
        assert len(sandbox.control.request_log()) == 1

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, CustodyRequestError),
            (401, CustodyAuthenticationError),
            (403, CustodyPermissionError),
            (404, CustodyNotFoundError),
            (409, CustodyConflictError),
            (422, CustodyRequestError),
            (429, CustodyRateLimitError),
            (302, CustodyResponseError),
        ],
    )
    def test_a_refused_create_is_sent_once(
        self, sandbox: Sandbox, repeating: CustodyClient, status: int, kind: type[CustodyError]
    ) -> None:
        sandbox.control.add_fault("status", status=status, times=None)
        with pytest.raises(kind) as caught:
            repeating.create_whitelist_request(REQUEST)
        assert type(caught.value) is kind
        assert caught.value.status == status
        assert len(sandbox.control.request_log()) == 1

    def test_an_id_that_is_a_number(self, sandbox: Sandbox, client: CustodyClient) -> None:
        sandbox.control.add_fault("status", status=201, body={"result": {"id": 9007199254740993}})
        assert client.create_whitelist_request(REQUEST) == "9007199254740993"

    def test_no_connection_means_nothing_was_sent(self) -> None:
        with (
            CustodyClient("http://127.0.0.1:9", "t0ken", max_retries=0) as client,
            pytest.raises(CustodyConnectionError, match="nothing was sent"),
        ):
            client.create_whitelist_request(REQUEST)

    @pytest.mark.parametrize("last_bytes", [b"", b"\x15\x03\x03\x00\x02\x02\x50", b"garbage"])
    def test_tls_that_breaks_after_the_request(self, authority: Authority, last_bytes: bytes) -> None:
        # urllib3 repeats this whatever the method, unless told otherwise.
        context = context_of(authority)

        def respond(stream: socket.socket) -> None:
            with socket.socket(fileno=stream.detach()) as bare:
                bare.sendall(last_bytes)

        with (
            raw_server(respond, context) as (url, received),
            CustodyClient(url, "t0ken", verify=authority[1]) as client,
        ):
            with pytest.raises(CustodyOutcomeUnknownError):
                client.create_whitelist_request(REQUEST)
            assert len([each for each in received if each.startswith(b"POST")]) == 1

    def test_an_error_that_is_being_handled_does_not_affect_the_next(
        self, sandbox: Sandbox, client: CustodyClient
    ) -> None:
        sandbox.control.add_fault("drop", times=None)
        for earlier in (ssl.SSLCertVerificationError("of another call"), TimeoutError("of another call")):
            try:
                raise earlier
            except OSError:
                with pytest.raises(CustodyOutcomeUnknownError, match="closed the connection without a response"):
                    client.create_whitelist_request(REQUEST)

    def test_both_lists_pass_with_a_warning(
        self, sandbox: Sandbox, client: CustodyClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        both: dict[str, Any] = {"linked_wallet_ids": ["1"], "linked_internal_address_ids": [2]}
        client.create_whitelist_request(REQUEST.model_copy(update={"linked_wallet_ids": ["1"]}))
        assert "not documented" not in caplog.text
        client.create_whitelist_request(WhitelistRequest(label="a", address=REQUEST.address, currency="eth", **both))
        assert "not documented" in caplog.text
        assert sandbox.control.request_log()[1]["body"] == {
            "label": "a",
            "address": REQUEST.address,
            "currency": "eth",
            "linkedWalletIds": ["1"],
            "linkedInternalAddressIds": ["2"],
        }


class TestRepeats:
    @pytest.mark.parametrize(
        "fault",
        [{"kind": "drop"}, *({"kind": "status", "status": status} for status in (429, 502, 503, 504))],
        ids=str,
    )
    def test_calls_that_are_safe_to_repeat_are_repeated(
        self, sandbox: Sandbox, repeating: CustodyClient, fault: dict[str, Any]
    ) -> None:
        webhook = sandbox.control.add_webhook()["id"]
        for call in (
            repeating.list_health_checks,
            lambda: repeating.set_webhook_status(webhook, "disabled"),
            lambda: repeating.delete_webhook(webhook),
        ):
            sandbox.control.add_fault(**fault)
            call()
        assert len(sandbox.control.request_log()) == 6

    def test_a_500_is_not_repeated(self, sandbox: Sandbox, repeating: CustodyClient) -> None:
        sandbox.control.add_fault("status", status=500)
        with pytest.raises(CustodyServerError):
            repeating.list_health_checks()
        assert len(sandbox.control.request_log()) == 1

    def test_retry_after_is_honoured(self, sandbox: Sandbox, repeating: CustodyClient, waits: SkippingTime) -> None:
        sandbox.control.add_fault("rate_limit", retry_after=7)
        repeating.list_health_checks()
        assert waits.skipped == 7

    def test_a_long_retry_after_is_raised_and_carried(self, sandbox: Sandbox, repeating: CustodyClient) -> None:
        sandbox.control.add_fault("rate_limit", retry_after=61, times=None)
        with pytest.raises(CustodyRateLimitError, match="asks to wait 61 s") as caught:
            repeating.list_health_checks()
        assert caught.value.retry_after == 61
        assert caught.value.retryable
        assert len(sandbox.control.request_log()) == 1

    @pytest.mark.parametrize("header", ["soon", "-5", "", "99999999999999999999999", "Mon, 99 Foo 2026"])
    def test_an_unreadable_retry_after_does_not_crash(
        self, sandbox: Sandbox, client: CustodyClient, header: str
    ) -> None:
        sandbox.control.add_fault("rate_limit", retry_after=header)
        with pytest.raises(CustodyRateLimitError):
            client.list_health_checks()


class TestWebhooks:
    @pytest.mark.parametrize("fault", [{"status": 204, "body": ""}, {"status": 200, "body": ""}, {"status": 202}])
    def test_any_2xx_is_success(self, sandbox: Sandbox, client: CustodyClient, fault: dict[str, Any]) -> None:
        webhook = sandbox.control.add_webhook()["id"]
        sandbox.control.add_fault("status", times=2, **fault)
        client.set_webhook_status(webhook, "enabled")
        client.delete_webhook(webhook)

    @pytest.mark.parametrize(
        "bad",
        ["../x", "{00000000-0000-0000-0000-000000000000}", "0" * 32, "00000000-0000-0000-0000-000000000000\n", ""],
    )
    def test_only_a_uuid_gets_into_a_path(self, sandbox: Sandbox, client: CustodyClient, bad: str) -> None:
        with pytest.raises(CustodyRequestError, match="UUID"):
            client.delete_webhook(bad)
        assert sandbox.control.request_log() == []


ECHOES: list[dict[str, Any]] = [
    {"kind": "status", "status": 401, "body": "{token}"},
    {"kind": "status", "status": 500, "body": {"error": "x" * 290, "message": "{token}"}},
    {"kind": "status", "status": 400, "body": {"message": "bad {token}", "error_code": "{token}"}},
    {"kind": "html", "body": "y" * 110 + "{token}"},
    {"kind": "redirect", "location": "https://elsewhere.example/?t={token}"},
    {"kind": "drop"},
    {"kind": "truncate_headers"},
]


class TestSecrets:
    @pytest.mark.parametrize("fault", ECHOES, ids=lambda fault: fault["kind"])
    def test_the_token_never_leaks(
        self, sandbox: Sandbox, client: CustodyClient, fault: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        def fill(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: fill(each) for name, each in value.items()}
            return value.replace("{token}", sandbox.token) if isinstance(value, str) else value

        caplog.set_level(logging.DEBUG)
        for call in (client.list_health_checks, lambda: client.create_whitelist_request(REQUEST)):
            sandbox.control.add_fault(**fill(fault))
            with pytest.raises(CustodyError) as caught:
                call()
            text = "".join(
                [
                    str(caught.value),
                    repr(caught.value),
                    str(vars(caught.value)),
                    str(caught.value.to_json()),
                    caplog.text,
                ]
            )
            assert sandbox.token not in text
            assert sandbox.token[:12] not in text
            assert caught.value.__context__ is None
            assert caught.value.__cause__ is None
            assert len(str(caught.value)) < 1000
            again = pickle.loads(pickle.dumps(caught.value))
            assert str(again) == str(caught.value)
            assert str(CustodyError.from_json(caught.value.to_json())) == str(caught.value)
        assert sandbox.token not in repr(client)

    def test_a_redirect_is_not_followed(self, sandbox: Sandbox, client: CustodyClient) -> None:
        with Sandbox() as other:
            sandbox.control.add_fault("redirect", location=f"{other.url}/api/rest/v1/health")
            with pytest.raises(CustodyResponseError, match=other.url):
                client.list_health_checks()
            assert other.control.request_log() == []

    @pytest.mark.parametrize("token", ["", "shh-a\nb", "shh-a b", "Bearer shh-x", "shh-\u20ac", "shh-\x00"])
    def test_a_token_that_cannot_be_sent_is_refused_and_not_quoted(self, token: str) -> None:
        with pytest.raises(CustodyConfigurationError) as caught:
            CustodyClient("https://custody.example.com", token)
        assert caught.value.setting == "token"
        assert "shh-" not in str(caught.value)

    def test_an_expired_jwt_is_not_sent(self, sandbox: Sandbox) -> None:
        token = sandbox.control.add_token(roles=["TPUser"], jwt=True, expires_in=-60)
        with CustodyClient(sandbox.url, token) as client, pytest.raises(CustodyAuthenticationError, match="expired at"):
            client.list_health_checks()
        assert sandbox.control.request_log() == []

    def test_netrc_does_not_replace_it(
        self, sandbox: Sandbox, client: CustodyClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password mine\n")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert client.list_health_checks()


class TestDestinations:
    @pytest.mark.parametrize(
        "url",
        [
            "",
            "ftp://custody.example.com",
            "custody.example.com",
            "https://",
            "https://user:pass@custody.example.com",
            "https://custody.example.com?x=1",
            "https://custody.example.com#x",
            "https://custody.example.com\\@evil.example",
            "https://custody.example.com /",
            "https://custody.example.com/api/rest/v1",
            "https://custody.example.com/a/../b",
            "http://custody.example.com",
            "http://10.0.0.1",
            "http://127.0.0.1.evil.example",
        ],
    )
    def test_refused(self, url: str) -> None:
        with pytest.raises(CustodyConfigurationError) as caught:
            CustodyClient(url, "t0ken")
        assert caught.value.setting == "base_url"

    @pytest.mark.parametrize(
        "url", ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1", "https://x.example/a/"]
    )
    def test_accepted(self, url: str) -> None:
        CustodyClient(url, "t0ken").close()

    def test_a_proxy_never_sees_the_token_in_clear(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(CustodyConfigurationError, match="proxy"):
            CustodyClient(sandbox.url, "t0ken", proxy="http://127.0.0.1:9")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        with CustodyClient(sandbox.url, sandbox.token) as client:
            assert client.list_health_checks()

    def test_private_ca_and_client_certificate(
        self, authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        _, bundle, certificate = authority
        both = str(Path(bundle).parent / "client.pem")
        with Sandbox(certfile=certificate, keyfile=certificate, client_ca=bundle) as sandbox:
            # A bundle from the environment neither replaces the one that is set nor stands in for it.
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
            with CustodyClient(sandbox.url, sandbox.token, verify=bundle, client_cert=both) as client:
                assert client.list_health_checks()
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
            with (
                CustodyClient(sandbox.url, sandbox.token, client_cert=both) as client,
                pytest.raises(
                    CustodyConnectionError, match=r"certificate .* was not accepted.*nothing was sent"
                ) as caught,
            ):
                client.create_whitelist_request(REQUEST)
            assert not caught.value.retryable

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("timeout", 0),
            ("timeout", "soon"),
            ("timeout", float("nan")),
            ("timeout", True),
            ("max_retries", -1),
            ("max_retries", 1.5),
            ("max_response_bytes", 0),
            ("verify", "/no/such.pem"),
            ("verify", 7),
            ("client_cert", "/no/such.pem"),
            ("client_cert", ["a", "b", "c"]),
            ("proxy", "nonsense"),
        ],
    )
    def test_a_wrong_setting_is_named(self, setting: str, value: Any) -> None:
        with pytest.raises(CustodyConfigurationError) as caught:
            CustodyClient("https://custody.example.com", "t0ken", **{setting: value})
        assert caught.value.setting == setting


def test_one_connection_serves_several_calls(
    sandbox: Sandbox, client: CustodyClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="urllib3")
    for _ in range(3):
        client.list_health_checks()
    assert caplog.text.count("Starting new HTTP connection") == 1
