"""What is said where signatures prove nothing."""

from __future__ import annotations

import pytest

from airflow_custody.client.verification.trust import what_to_do


def test_the_verifiers_own_advice_comes_first() -> None:
    assert what_to_do(["3712"], "Pin 'networks'.") == (
        "Pin 'networks'. Do not use it before somebody has found out who put it there; "
        "`custody whitelist verify --id 3712` shows what is proved."
    )
    assert what_to_do(["3712", "3713"]) == (
        "Do not use them before somebody has found out who put them there; "
        "`custody whitelist verify --id 3712` shows what is proved."
    )


@pytest.mark.parametrize("odd", ["", "7; rm -r x", "`x`", "9" * 41, "\uff17"])
def test_a_command_has_no_odd_id(odd: str) -> None:
    assert "`custody whitelist verify` shows" in what_to_do([odd])
