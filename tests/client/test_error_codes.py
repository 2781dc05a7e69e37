"""An error does not change, and is the same in another process; its text ends with a code."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from support.service.refusals import role_refusal

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConnectionError,
    CustodyError,
    CustodyPermissionError,
    WhitelistFileError,
)
from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.sandbox import Sandbox

ROOT = Path(__file__).parents[2]


def test_the_services_own_code_is_not_the_code(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.add_fault("status", status=403, body={**role_refusal("tpuser"), "error_code": "E900-403"})
    with pytest.raises(CustodyPermissionError) as caught:
        client.list_health_checks()
    assert caught.value.code == "role-missing"
    assert caught.value.error_code == "E900-403"
    reason, advice, code = str(caught.value).split("\n")
    assert reason == caught.value.reason
    assert advice == caught.value.advice
    assert code == "[custody/role-missing]"
    assert caught.value.text == f"{reason}. {advice}"


def test_an_error_does_not_change() -> None:
    error = CustodyConnectionError("busy", advice="Wait.", retryable=False)
    for name in ("message", "advice", "retryable", "code", "why"):
        with pytest.raises(AttributeError, match=name):
            setattr(error, name, "other")
    cause = ValueError("cause")
    try:
        raise error from cause
    except CustodyConnectionError as raised:
        copied = raised.with_facts(message="still busy", advice=None, retryable=True)
    assert str(copied) == "still busy\n[custody/unreachable]"
    assert copied.args == ("still busy",)
    assert type(copied) is type(error)
    assert copied.retryable
    assert copied.__cause__ is cause
    assert copied.__traceback__ is error.__traceback__
    assert str(error) == "busy\nWait.\n[custody/unreachable]"
    assert not error.retryable


def test_an_error_is_the_same_in_another_process() -> None:
    facts: dict[str, Any] = {"advice": "Wait.", "operation": "poll", "retry_after": 5, "why": "no time"}
    error = CustodyConnectionError("busy", code="no-response", **facts)
    ways: list[Any] = [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
    for again in [*(way(error) for way in ways), CustodyError.from_json(error.to_json())]:
        assert type(again) is type(error)
        assert again.code == "no-response"
        assert again.retry_after == 5
        assert again.why == "no time"
        assert str(again) == str(error)


@pytest.mark.parametrize("code", [None, "from-a-later-version", ["token-expired"]])
def test_an_unknown_code_becomes_that_of_the_type(code: Any) -> None:
    data = {**CustodyAuthenticationError("no", code="token-expired").to_json(), "code": code}
    assert CustodyError.from_json(data).code == "credentials-refused"
    del data["code"]
    assert CustodyError.from_json(data).code == "credentials-refused"


def test_the_code_is_kept_where_the_text_is_cut() -> None:
    error = WhitelistFileError("x" * 500 + "\nline 7: wrong")
    assert error.shorten(100).endswith("… [custody/file-wrong]")
    assert len(error.shorten(100)) == 100 + len(" [custody/file-wrong]")
    assert "\n" not in error.shorten()
    assert "\n" not in error.text


def test_each_code_is_in_use_and_has_one_entry_in_the_documentation() -> None:
    page = (ROOT / "docs" / "error-codes.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^#{2,4} `?([a-z-]+)`?$", page, re.MULTILINE)) == sorted(get_args(ErrorCode))
    package = ROOT / "airflow_custody"
    sources = [each for each in package.rglob("*.py") if each.name != "error_codes.py" and "sandbox" not in each.parts]
    text = "".join(each.read_text(encoding="utf-8") for each in sources)
    assert [code for code in get_args(ErrorCode) if f'"{code}"' not in text and f"'{code}'" not in text] == []
