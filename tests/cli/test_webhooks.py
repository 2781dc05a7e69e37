from __future__ import annotations

import json

import pytest
from cli_runs import Run

from airflow_custody.cli.webhooks import _without_secrets
from airflow_custody.sandbox import Sandbox


def test_webhooks_are_listed(custody: Run, sandbox: Sandbox) -> None:
    ran = custody("webhooks", "list")
    assert (ran.code, ran.out) == (0, "ID  TYPE  STATUS  UPDATED_AT  URL\n")
    assert json.loads(custody("webhooks", "list", "-o", "json").out) == []
    sandbox.control.add_webhook(url="https://hooks.example.test/custody?key=s3cret")
    ran = custody("webhooks", "list")
    assert ran.code == 0
    assert "https://hooks.example.test/custody?***" in ran.out
    (row,) = json.loads(custody("webhooks", "list", "-o", "json").out)
    assert list(row) == ["id", "type", "status", "url", "timeout_until", "created_at", "updated_at"]
    assert row["status"] == "enabled"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("", None),
        ("https://x.test:8443/a/b", "https://x.test:8443/a/b"),
        ("https://ann:s3cret@x.test/a?b=s3cret#s3cret", "https://***@x.test/a?***"),
        ("http://[s3cret", "***"),
    ],
)
def test_what_may_be_a_secret_in_a_url_is_not_shown(url: str | None, shown: str | None) -> None:
    assert _without_secrets(url) == shown


def test_a_user_who_may_not_list_them(custody: Run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", sandbox.control.add_token(["TPUser"]))
    ran = custody("webhooks", "list")
    assert (ran.code, ran.out) == (1, "")
    assert "Admin" in ran.err
