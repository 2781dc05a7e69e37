"""What a connection says is trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from pinned_keys import pinned, private_pem, public_pem
from task_log import TaskLog

from airflow_custody.client import CustodyConfigurationError, VerificationPins
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox

BASE = {"conn_type": "custody", "host": "https://custody.example.com", "password": "a-token"}
ONE, TWO = public_pem(1), public_pem(2)


def define(monkeypatch: pytest.MonkeyPatch, value: object) -> CustodyHook:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", value if isinstance(value, str) else json.dumps(value))
    return CustodyHook()


def pins_of(hook: CustodyHook) -> VerificationPins:
    with hook.get_conn() as client:
        assert client.verifier is not None
        return client.verifier.pins


def test_the_extras_of_a_sandbox_pin_its_super_administrators(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = sandbox.control.pins()
    found = pins_of(define(monkeypatch, sandbox.connection(pins=True)))
    assert found.fingerprints == VerificationPins(pins["superadmin_keys"], 2).fingerprints
    assert found.superadmin_minimum == pins["superadmin_minimum"]
    with define(monkeypatch, sandbox.connection()).get_conn() as client:
        assert client.verifier is None


# A form's field of one line takes the line ends, and numbers may be text.
@pytest.mark.parametrize("keys", [[ONE, TWO], ONE + TWO, (ONE + TWO).replace("\n", ""), (ONE + TWO).replace("\n", " ")])
def test_all_that_a_connection_can_say(monkeypatch: pytest.MonkeyPatch, keys: Any) -> None:
    extra = {
        "superadmin_keys": keys,
        "superadmin_minimum": "2",
        "networks": "mainnet, testnet",
        "allow_legacy_signatures": "true",
        "rules_not_before": "2026-01-01",
    }
    expected = VerificationPins([ONE, TWO], 2, ["mainnet", "testnet"], True, 1767225600)
    hook = define(monkeypatch, {**BASE, "extra": extra})
    assert pins_of(hook) == expected
    if isinstance(keys, str):
        query = urlencode(extra)
        assert pins_of(define(monkeypatch, f"custody://:a-token@custody.example.com/https?{query}")) == expected


def test_keys_are_no_secrets_and_no_unknown_extras(monkeypatch: pytest.MonkeyPatch, task_log: TaskLog) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_custody.hooks._connection.mask", masked.append)
    extra = {**pinned(1), "networks": "mainnet", "rules_not_before": 1767225600, "zone": "x"}
    pins_of(define(monkeypatch, {**BASE, "extra": extra}))
    log = task_log.text
    assert "the extra 'zone' is not known and has no effect" in log
    known = log.partition("There are: ")[2]
    assert "superadmin_keys, superadmin_minimum, networks, allow_legacy_signatures, rules_not_before" in known
    assert masked == ["a-token"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("superadmin-keys", "superadmin_keys"),
        ("superadmin_key", "superadmin_keys"),
        ("superadmin_kyes", "superadmin_keys"),
        ("superAdminKeys", "superadmin_keys"),
        ("Superadmin_Minimum", "superadmin_minimum"),
        ("superadmin_minimun", "superadmin_minimum"),
        ("superadministrators", "superadmin_keys"),
        ("keys_superadmin", "superadmin_keys"),
        ("public_keys", "superadmin_keys"),
        ("network", "networks"),
        ("netwroks", "networks"),
        ("rules_notbefore", "rules_not_before"),
        ("allow_legacy", "allow_legacy_signatures"),
        ("allow_lagacy_signatures", "allow_legacy_signatures"),
    ],
)
@pytest.mark.parametrize("others", [{}, pinned(1)], ids=["alone", "with pins"])
def test_a_misspelt_name_is_not_ignored(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str, others: dict[str, Any]
) -> None:
    hook = define(monkeypatch, {**BASE, "extra": {**others, name: "a-value"}})
    with pytest.raises(CustodyConfigurationError) as caught:
        hook.get_conn()
    assert f"Airflow connection 'custody_default', {name}: is not a setting, and looks like '{meant}'" in str(
        caught.value
    )
    assert "a-value" not in str(caught.value)


# With all that a connection knows: none is close to another.
@pytest.mark.parametrize(
    "name", ["timeuot", "allow_htp", "verfiy", "api_key", "region", "proxies", "max_retry", "keys"]
)
def test_other_unknown_names_are_only_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, name: str
) -> None:
    with define(monkeypatch, {**BASE, "extra": {name: "x", "timeout": 5}}).get_conn() as client:
        assert client.verifier is None
    assert f"the extra {name!r} is not known and has no effect" in task_log.text


def test_a_file_is_read_when_the_client_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "keys.pem"
    file.write_text(ONE)
    hook = define(monkeypatch, {**BASE, "extra": {"superadmin_keys": str(file), "superadmin_minimum": 1}})
    client = hook.get_conn()
    file.unlink()
    assert hook.get_conn() is client
    hook.close()
    with pytest.raises(CustodyConfigurationError, match=r"\(superadmin_keys\): .*keys\.pem: No such file"):
        hook.get_conn()


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"superadmin_keys": ONE}, "superadmin_minimum"),
        ({"superadmin_keys": ONE, "superadmin_minimum": 2}, "superadmin_minimum"),
        ({"superadmin_keys": ONE, "superadmin_minimum": "all"}, "superadmin_minimum"),
        ({"superadmin_minimum": 2}, "superadmin_minimum"),
        ({"superadmin_keys": private_pem(1), "superadmin_minimum": 1}, "superadmin_keys"),
        ({"superadmin_keys": {"a": 1}, "superadmin_minimum": 1}, "superadmin_keys"),
        ({**pinned(1), "networks": " "}, "networks"),
        ({**pinned(1), "allow_legacy_signatures": "maybe"}, "allow_legacy_signatures"),
        ({**pinned(1), "rules_not_before": "20260101"}, "rules_not_before"),
    ],
    ids=repr,
)
def test_what_is_wrong_is_named_and_nothing_is_verified_with_less(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], named: str
) -> None:
    with pytest.raises(CustodyConfigurationError) as caught:
        define(monkeypatch, {**BASE, "extra": extra}).get_conn()
    assert caught.value.setting == named
    assert f"({named}): " in str(caught.value)
    assert "a-token" not in str(caught.value)
    assert private_pem(1).splitlines()[1][:20] not in str(caught.value)
    assert caught.value.__context__ is None


# --- a file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["keys.pem", ["keys.pem"], [ONE, "./keys.pem"], "~/keys.pem", "keys"])
def test_a_relative_path_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: Any) -> None:
    (tmp_path / "keys.pem").write_text(TWO)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CustodyConfigurationError) as caught:
        define(monkeypatch, {**BASE, "extra": {"superadmin_keys": keys, "superadmin_minimum": 1}}).get_conn()
    assert (
        "Super-administrators' public keys (superadmin_keys): must be public keys in PEM, or the absolute path of a "
        "file with them"
    ) in str(caught.value)


def test_base64_is_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "".join(private_pem(1).splitlines()[1:-1])
    with pytest.raises(CustodyConfigurationError, match="base64 without the lines of PEM") as caught:
        define(monkeypatch, {**BASE, "extra": {"superadmin_keys": body, "superadmin_minimum": 1}}).get_conn()
    assert body[:20] not in str(caught.value)
    with pytest.raises(CustodyConfigurationError, match="absolute path") as caught:
        define(monkeypatch, {**BASE, "extra": {"superadmin_keys": body[5:], "superadmin_minimum": 1}}).get_conn()
    assert body[5:25] not in str(caught.value)


# --- the test of a connection -------------------------------------------------------------------------------


def test_a_connection_whose_pins_fit(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    good, text = define(monkeypatch, sandbox.connection(pins=True)).test_connection()
    assert good
    assert text.endswith("Its present rules are signed with the pinned keys.")
    good, text = define(monkeypatch, sandbox.connection()).test_connection()
    assert (good, "rules" in text) == (True, False)


def test_a_connection_whose_pins_do_not_fit(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = json.loads(sandbox.connection())
    connection["extra"] = {**connection.get("extra", {}), **pinned(1)}
    good, text = define(monkeypatch, connection).test_connection()
    assert not good
    assert (
        "the service's rules are not verified: its rules are signed by no pinned key, and one must have signed them"
        in text
    )


@pytest.mark.parametrize("status", [403, 404])
def test_a_connection_where_rules_are_not_offered(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    sandbox.control.add_fault("status", path="/rules", status=status)
    good, text = define(monkeypatch, sandbox.connection(pins=True)).test_connection()
    assert good
    assert "Whether its rules are signed with the pinned keys is not known: it does not offer them" in text


@pytest.mark.parametrize("extra", [{"superadmin_minimum": 0}, {"networks": False}, {"rules_not_before": 0}], ids=str)
def test_a_pin_that_is_zero_or_false_is_given(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]) -> None:
    connection = {"conn_type": "custody", "host": "https://custody.example.com", "password": "t", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    with pytest.raises(CustodyConfigurationError, match=r"superadmin_keys|must be"):
        CustodyHook().get_conn()


@pytest.mark.parametrize(
    "extra", ['{"superadmin_keys": "/x", "superadmin_keys": null}', '{"verify": true, "verify": false}']
)
def test_an_extra_that_has_a_name_twice_is_refused(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    connection = {"conn_type": "custody", "host": "https://custody.example.com", "password": "t", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    with pytest.raises(CustodyConfigurationError, match="has a name twice"):
        CustodyHook().get_conn()
