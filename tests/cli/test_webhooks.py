from __future__ import annotations

import json

import pytest
from cli_runs import Run

from airflow_custody.client.webhooks.models import without_secrets
from airflow_custody.sandbox import Sandbox


def test_webhooks_are_listed(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("webhooks", "list")
    assert (ran.code, ran.out) == (0, "none\n")
    assert json.loads(custody("webhooks", "list", "-o", "json").out) == []
    sandbox.control.add_webhook(url="https://hooks.example.test/custody?key=s3cret")
    ran = custody("webhooks", "list")
    assert ran.code == 0
    assert "https://hooks.example.test/***" in ran.out
    assert "s3cret" not in ran.out
    (row,) = json.loads(custody("webhooks", "list", "-o", "json").out)
    assert list(row) == ["id", "type", "status", "url", "timeout_until", "created_at", "updated_at"]
    assert row["status"] == "enabled"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("", None),
        ("https://x.test", "https://x.test"),
        ("https://x.test:8443/", "https://x.test:8443"),
        ("HTTPS://[2001:db8::1]:8443/", "HTTPS://[2001:db8::1]:8443"),
        ("https://x.test:8443/s3cret/b", "https://x.test:8443/***"),
        ("https://x.test;token=s3cret", "***"),
        ("https://x.test/;token=s3cret", "https://x.test/***"),
        ("https://x.test?s3cret", "https://x.test/***"),
        ("https://x.test#s3cret", "https://x.test/***"),
        ("https://x.test\\s3cret", "***"),
        ("https://x.test:s3cret/", "***"),
        ("https://x.test\n/s3cret", "***"),
        ("https://ann:s3cret@x.test/a?b=s3cret#s3cret", "https://***@x.test/***"),
        ("https://ann:s3cret@s3cret@x.test", "https://***@x.test"),
        ("https://ann:s3cret@s3cret/s3cret@x.test/", "***"),
        ("https://s3cret?@x.test/", "***"),
        ("https:s3cret@x.test", "***"),
        ("s3cret@x.test", "***"),
        ("javascript:s3cret", "***"),
        ("http://[s3cret", "***"),
    ],
)
def test_what_may_be_a_secret_in_a_url_is_not_shown(url: str | None, shown: str | None) -> None:
    assert without_secrets(url) == shown


def test_a_user_who_may_not_list_them(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"]))
    ran = custody("webhooks", "list")
    assert (ran.code, ran.out) == (1, "")
    assert "Admin or AdminReadOnly" in ran.err
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["AdminReadOnly"]))
    assert custody("webhooks", "list").code == 0
