"""What a connection says is trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from pinned_keys import pinned, private_pem, public_pem
from task_log import TaskLog

from airflow_custody.client import CustodyConfigurationError, VerificationPins
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.sandbox import Sandbox

Define = Callable[[Any], CustodyHook]
BASE = {"conn_type": "custody", "host": "https://custody.example.com", "password": "a-token"}
ONE, TWO = public_pem(1), public_pem(2)


def pins_of(hook: CustodyHook) -> VerificationPins:
    with hook.get_conn() as client:
        assert client.verifier is not None
        return client.verifier.pins


def refusal(hook: CustodyHook) -> CustodyConfigurationError:
    with pytest.raises(CustodyConfigurationError) as caught:
        hook.get_conn()
    for secret in ("a-token", "a-value", private_pem(1).splitlines()[1][:20]):
        assert secret not in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize("keys", [[ONE, TWO], (ONE + TWO).replace("\n", " ")], ids=["list", "one line"])
def test_all_that_a_connection_can_say(define: Define, task_log: TaskLog, keys: Any) -> None:
    extra = {
        "superadmin_keys": keys,
        "superadmin_minimum": "2",
        "networks": "mainnet, testnet",
        "allow_legacy_signatures": "true",
        "rules_not_before": "2026-01-01",
    }
    expected = VerificationPins([ONE, TWO], 2, ["mainnet", "testnet"], True, 1767225600)
    assert pins_of(define({**BASE, "extra": extra})) == expected
    if isinstance(keys, str):
        assert pins_of(define(f"custody://:a-token@custody.example.com/https?{urlencode(extra)}")) == expected
    assert "not known" not in task_log.text


def test_keys_are_no_secrets(monkeypatch: pytest.MonkeyPatch, define: Define) -> None:
    masked: list[str] = []
    monkeypatch.setattr("airflow_custody.hooks._connection.mask", masked.append)
    pins_of(define({**BASE, "extra": {**pinned(1), "networks": "mainnet"}}))
    assert masked == ["a-token"]


@pytest.mark.parametrize("others", [{}, pinned(1)], ids=["alone", "with pins"])
def test_a_misspelt_name_is_not_ignored(define: Define, others: dict[str, Any]) -> None:
    for name, meant in {
        "superadmin-keys": "superadmin_keys",
        "superadmin_kyes": "superadmin_keys",
        "superAdminKeys": "superadmin_keys",
        "Superadmin_Minimum": "superadmin_minimum",
        "superadministrators": "superadmin_keys",
        "keys_superadmin": "superadmin_keys",
        "public_keys": "superadmin_keys",
        "netwroks": "networks",
        "rules_notbefore": "rules_not_before",
        "allow_legacy": "allow_legacy_signatures",
    }.items():
        error = refusal(define({**BASE, "extra": {**others, name: "a-value"}}))
        assert f"'custody_default', {name}: is not a setting, and looks like '{meant}'" in str(error)


# With all that a connection knows: none is close to another.
@pytest.mark.parametrize("name", ["timeuot", "allow_htp", "verfiy", "api_key", "region", "max_retry", "keys"])
def test_other_unknown_names_are_only_named_in_the_log(define: Define, task_log: TaskLog, name: str) -> None:
    with define({**BASE, "extra": {name: "a-value", "timeout": 5}}).get_conn() as client:
        assert client.verifier is None
    assert f"the extra {name!r} is not known and has no effect" in task_log.text
    assert "a-value" not in task_log.text


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"superadmin_keys": ONE}, "superadmin_minimum"),
        ({"superadmin_keys": private_pem(1), "superadmin_minimum": 1}, "superadmin_keys"),
        # Zero and false are given, too.
        ({"superadmin_minimum": 0}, "superadmin_minimum"),
        ({"networks": False}, "networks"),
        ({"rules_not_before": 0}, "rules_not_before"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_and_nothing_is_verified_with_less(
    define: Define, extra: dict[str, Any], named: str
) -> None:
    error = refusal(define({**BASE, "extra": extra}))
    assert error.setting == named
    assert f"({named}): " in str(error)


@pytest.mark.parametrize("keys", ["keys.pem", ["keys.pem"], [ONE, "./keys.pem"], "~/keys.pem", "keys"])
def test_a_relative_path_is_refused(monkeypatch: pytest.MonkeyPatch, define: Define, tmp_path: Path, keys: Any) -> None:
    (tmp_path / "keys.pem").write_text(TWO)
    monkeypatch.chdir(tmp_path)
    error = refusal(define({**BASE, "extra": {"superadmin_keys": keys, "superadmin_minimum": 1}}))
    assert (
        "Super-administrators' public keys (superadmin_keys): must be public keys in PEM, or the absolute path of a "
        "file with them"
    ) in str(error)


# --- the test of a connection -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pins", "status", "good", "text"),
    [
        ("own", 200, True, "Its present rules are signed with the pinned keys."),
        ("own", 403, True, "Whether its rules are signed with the pinned keys is not known: it does not offer them"),
        ("own", 404, True, "Whether its rules are signed with the pinned keys is not known: it does not offer them"),
        ("others", 200, False, "the service's rules are not verified: its rules are signed by no pinned key"),
        ("none", 200, True, "The service accepted the connection"),
    ],
)
def test_the_rules_are_verified(
    sandbox: Sandbox, define: Define, pins: str, status: int, good: bool, text: str
) -> None:
    connection = json.loads(sandbox.connection(pins=pins == "own"))
    if pins == "others":
        connection["extra"] = {**connection.get("extra", {}), **pinned(1)}
    if status != 200:
        sandbox.control.add_fault("status", path="/rules", status=status)
    found, words = define(connection).test_connection()
    assert found is good
    assert text in words
    assert pins != "none" or "rules" not in words
