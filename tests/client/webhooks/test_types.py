from __future__ import annotations

import pytest

from airflow_custody.client.webhooks.types import PUBLISHED_TYPES, type_hint


@pytest.mark.parametrize("name", [*PUBLISHED_TYPES, "REQUESTSTATUS.updated", "no.such", "", "x" * 100_000])
def test_a_published_type_and_one_that_is_like_none_need_no_hint(name: str) -> None:
    assert type_hint(name) == ""


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("requestStatus.updatd", "requestStatus.updated"),
        ("RequestStatusUpdated", "requestStatus.updated"),
        ("request.updated", "requestStatus.updated"),
        ("transactionExternal.recieved", "transactionExternal.received"),
        ("transactionInternal", "transactionInternal.received"),
        ("currencyStatus.update\x1b", "currencyStatus.updated"),
    ],
)
def test_what_may_be_meant_is_named(name: str, meant: str) -> None:
    hint = type_hint(name)
    assert hint.endswith(f" is no published type; do you mean {meant!r}?")
    assert hint.isprintable()
