"""What pages say of what is late, at odds with itself, or not shown."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow_runs import AIRFLOW

if AIRFLOW < (3, 3):
    pytest.skip("this Airflow has no pages of plugins", allow_module_level=True)

from airflow_custody.client.verification.trust import RequestState, TrustState
from airflow_custody.overview.models import (
    RequestRow,
    RequestView,
)
from airflow_custody.plugin import rendering, request_page

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
COMMON = {"root": "/custody", "airflow": "", "standalone": True, "now": NOW, "refresh": "/r"}


def text(markup: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", markup).split())


def request(**values: Any) -> str:
    """Return the text of a request's page."""
    given = {
        **COMMON,
        "conn_id": "c",
        "request_id": "7",
        **dict.fromkeys(("problem", "awaited", "view", "command"), ""),
    }
    given |= values
    return text(rendering._environment().get_template("request.html").render(given))


@pytest.mark.parametrize(
    ("state", "trust", "problem", "verdict"),
    [
        ("effective", "not checked", "its payload does not fit its hash", ("warning", "In effect, with a problem")),
        ("effective", "verified", "its status is odd", ("warning", "In effect, with a problem")),
        ("effective", "unverified", "not signed", ("bad", "In effect, not verified")),
        ("effective", "not checked", "", ("good", "In effect")),
        ("pending", "not checked", "its status is odd", ("warning", "Pending approval")),
        ("rejected", "not checked", "its status is odd", ("bad", "Rejected")),
    ],
)
def test_what_has_a_problem_is_not_green(
    state: RequestState, trust: TrustState, problem: str, verdict: tuple[str, str]
) -> None:
    row = RequestRow("7", "approved", trust=trust, problem=problem, state=state)
    assert request_page._verdict(row) == verdict
    assert verdict[1] in request(view=RequestView(row), verdict=verdict)
