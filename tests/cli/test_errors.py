"""``custody errors``."""

from __future__ import annotations

import json

import pytest
from cli_runs import Run

from airflow_custody.client.error_codes.catalogue import ENTRIES


@pytest.mark.parametrize("given", ["token-expired", "custody/token-expired", "[custody/token-expired]"])
def test_a_code_says_what_to_do(plain: Run, given: str) -> None:
    ran = plain("errors", given)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("The API token has expired (custody/token-expired)\n")
    assert ENTRIES["token-expired"].cure in " ".join(ran.out.split())
    assert max(map(len, ran.out.splitlines())) < 100


def test_without_a_code_all_are_listed(plain: Run) -> None:
    ran = plain("errors")
    assert ran.code == 0
    assert all(f"  {code} " in ran.out for code in ENTRIES)
    assert [each["code"] for each in json.loads(plain("errors", "-o", "json").out)] == list(ENTRIES)


def test_an_unknown_code_names_those_that_are_close(plain: Run) -> None:
    ran = plain("errors", "token-expird")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no code 'token-expird'; perhaps token-expired" in ran.err
    assert "without a code, all are listed" in plain("errors", "xyzzy").err


def test_a_message_on_standard_error_ends_with_the_code(plain: Run) -> None:
    assert plain("health", "--base-url", "https://custody.example.com").err.endswith("[custody/credentials-missing]\n")


def test_a_failed_check_has_the_code(custody: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_TOKEN", "not-it")
    checks = {each["check"]: each["code"] for each in json.loads(custody("check", "-o", "json").out)["checks"]}
    assert checks["credentials"] == "credentials-refused"
    assert checks["settings"] == ""
    assert "[custody/credentials-refused]" in custody("check").out
