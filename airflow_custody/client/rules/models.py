"""Rules, as the service sends them."""

from __future__ import annotations

from typing import Any

from airflow_custody.client.wire import LENIENT, TypedDict


class WireRules(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    # Of any type: whoever verifies them says what is wrong with them.
    rulesContainer: Any
    rulesSignatures: Any
    locked: bool | None
    creationDate: str | None
    updateDate: str | None


class WireRulesResponse(TypedDict, total=False):
    result: WireRules | None
