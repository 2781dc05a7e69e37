"""Arguments of the operators that plan and apply: limits, and the hash of a plan."""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_custody.client.arguments import check_text, describe
from airflow_custody.client.errors import CustodyRequestError


def check_limits(**limits: float | None) -> None:
    """Raise a ValueError if a limit is neither None nor a number that is not negative."""
    for name, value in limits.items():
        whole = not name.endswith("percent")
        is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value < float("inf")):
            kind = "a whole number" if whole else "a number"
            raise ValueError(f"{name} must be None or {kind} that is not negative, not {value!r}")


def check_hash(value: object) -> str:
    """Return a plan's hash; raise if it is anything else, a part of one above all."""
    if isinstance(value, Mapping):
        raise CustodyRequestError(
            "plan_hash must be the hash alone; nothing was sent",
            advice='Write plan_hash=plan.output["plan_hash"].',
            code="plan-changed",
        )
    text = check_text("plan_hash", value)
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise CustodyRequestError(
            f"plan_hash must be all 64 hexadecimal digits of a plan's hash, not {describe(text)}; nothing was sent",
            code="plan-changed",
        )
    return text
