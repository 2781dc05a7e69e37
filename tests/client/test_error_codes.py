"""What the text of an error ends with, and what becomes of its code on its way."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from airflow_custody.client import (
    CustodyAuthenticationError,
    CustodyClient,
    CustodyConfigurationError,
    CustodyError,
    CustodyNotFoundError,
    CustodyServerError,
    WhitelistFileError,
    errors,
)
from airflow_custody.client.error_codes import ErrorCode
from airflow_custody.sandbox import Sandbox
from airflow_custody.triggers._base import wrap_unexpected

ROOT = Path(__file__).parents[2]
_CODE = re.compile(r"\[custody/([a-z-]+)\]")


def codes_in(text: str) -> list[str]:
    return _CODE.findall(text)


def failure(url: str, token: str, **settings: Any) -> CustodyError:
    with pytest.raises(CustodyError) as caught, CustodyClient(url, token, max_retries=0, **settings) as client:
        client.list_health_checks()
    return caught.value


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"kind": "status", "status": 400}, "request-refused"),
        ({"kind": "status", "status": 401}, "credentials-refused"),
        ({"kind": "status", "status": 403}, "role-missing"),
        ({"kind": "status", "status": 404}, "not-found"),
        ({"kind": "status", "status": 409}, "request-refused"),
        ({"kind": "status", "status": 429}, "rate-limited"),
        ({"kind": "status", "status": 500}, "service-failed"),
        ({"kind": "drop"}, "no-response"),
        ({"kind": "redirect", "location": "https://custody.example.com/login"}, "response-unusable"),
        ({"kind": "truncate_body"}, "response-unusable"),
        ({"kind": "html"}, "response-unusable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_failure_at_the_service_ends_with_its_code(sandbox: Sandbox, fault: dict[str, Any], code: str) -> None:
    sandbox.control.add_fault(**fault)
    error = failure(sandbox.url, sandbox.token)
    assert error.code == code
    assert str(error).endswith(f" [custody/{code}]")
    assert codes_in(str(error)) == [code]
    assert error.text == str(error).removesuffix(f" [custody/{code}]")


def test_what_is_not_offered_has_another_code_than_what_is_not_there(sandbox: Sandbox) -> None:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        with pytest.raises(CustodyNotFoundError) as caught:
            client.get_whitelist_request("999")
        assert caught.value.code == "not-found"
        sandbox.control.add_fault("status", path="/webhooks", status=404)
        with pytest.raises(CustodyNotFoundError) as caught:
            list(client.list_webhooks())
        assert caught.value.code == "not-offered"


@pytest.mark.parametrize(
    ("url", "token", "settings", "code"),
    [
        ("custody.example.com", "t", {}, "setting-wrong"),
        ("http://custody.example.com", "t", {}, "setting-wrong"),
        ("https://custody.example.com", "Bearer t", {}, "credentials-missing"),
        ("https://custody.example.com", "", {}, "credentials-missing"),
        ("https://custody.example.com", "t", {"verify": "/no/such.pem"}, "setting-wrong"),
        ("https://custody.example.com", "t", {"client_cert": "/no/such.pem"}, "setting-wrong"),
        ("https://custody.example.com", "t", {"proxy": "x"}, "setting-wrong"),
        ("https://custody.example.com", "t", {"timeout": 0}, "setting-wrong"),
        ("https://custody.example.com", "t", {"superadmin_minimum": 1}, "setting-wrong"),
        ("http://127.0.0.1:9", "t", {}, "unreachable"),
    ],
)
def test_a_failure_on_this_side_ends_with_its_code(url: str, token: str, settings: dict[str, Any], code: str) -> None:
    assert codes_in(str(failure(url, token, **settings))) == [code]


def test_a_server_without_tls_has_a_code_of_its_own(sandbox: Sandbox) -> None:
    assert failure(sandbox.url.replace("http:", "https:"), sandbox.token).code == "unreachable"


def test_the_services_own_code_is_another(sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", status=403)
    error = failure(sandbox.url, sandbox.token)
    assert (error.code, error.error_code) == ("role-missing", "E900-403")


def test_a_code_crosses_a_process_border() -> None:
    error = CustodyAuthenticationError("it is over", code="token-expired", advice="Get another.")
    again = CustodyError.from_json(error.to_json())
    assert (type(again), again.code, str(again)) == (type(error), "token-expired", str(error))


@pytest.mark.parametrize("code", [None, "", "from-a-later-version", 7, ["token-expired"], {}])
def test_a_code_that_is_unknown_or_missing_becomes_that_of_the_type(code: Any) -> None:
    data = {**CustodyAuthenticationError("no", code="token-expired").to_json(), "code": code}
    assert CustodyError.from_json(data).code == "credentials-refused"
    del data["code"]
    assert CustodyError.from_json(data).code == "credentials-refused"


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_has_the_code(clone: Any) -> None:
    again = clone(CustodyServerError("busy", code="not-offered"))
    assert (again.code, str(again)) == ("not-offered", "busy [custody/not-offered]")


def test_a_code_does_not_change_the_type() -> None:
    CustodyConfigurationError("no", code="setting-wrong")
    assert CustodyConfigurationError.code == "setting-wrong"


def test_each_type_has_a_code() -> None:
    types = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CustodyError)]
    assert len({each.code for each in types}) == len(types) == 15


def test_what_wraps_an_error_has_one_code() -> None:
    inner = CustodyServerError("busy", advice="Wait.", code="service-failed")
    assert str(wrap_unexpected(inner, "poll")) == ("poll failed: CustodyServerError: busy. Wait. [custody/unexpected]")


def test_the_code_is_kept_where_the_text_is_cut() -> None:
    error = WhitelistFileError("x" * 500 + "\nline 7: wrong")
    assert error.shorten(100).endswith("… [custody/file-wrong]")
    assert len(error.shorten(100)) == 100 + len(" [custody/file-wrong]")
    assert "\n" not in error.shorten(1000)


def test_each_code_has_one_entry_in_the_documentation() -> None:
    page = (ROOT / "docs" / "error-codes.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\(custody-(.+)\)=\n### (.+)$", page, re.MULTILINE)
    assert [target for target, _ in entries] == [title for _, title in entries]
    assert sorted(title for _, title in entries) == sorted(get_args(ErrorCode))
    assert len(re.findall(r"^(?:\(custody-|### )", page, re.MULTILINE)) == 2 * len(entries)


def test_each_code_is_in_use() -> None:
    package = ROOT / "airflow_custody"
    sources = [each for each in package.rglob("*.py") if each.name != "error_codes.py" and "sandbox" not in each.parts]
    text = "".join(each.read_text(encoding="utf-8") for each in sources)
    assert [code for code in get_args(ErrorCode) if f'"{code}"' not in text and f"'{code}'" not in text] == []
