"""What can be seen of a response from outside, whatever the peer sends."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import CustodyClient
from airflow_custody.client.http.observation import Observation, _end
from airflow_custody.sandbox import Sandbox


def seen(date: str | None) -> Observation:
    response = requests.Response()
    response.status_code = 200
    if date is not None:
        response.headers["Date"] = date
    return Observation.of(response)


@pytest.mark.parametrize("date", [None, "", "now", "2026-07-01T12:00:00Z", "Wed, 01 Jul 2026 12:00:00"])
def test_a_date_that_cannot_be_read_is_none(date: str | None) -> None:
    assert seen(date).date is None


def test_a_date_is_read() -> None:
    assert seen("Wed, 01 Jul 2026 12:00:00 GMT").date == datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


@given(st.text(max_size=60) | st.from_regex(r"[A-Z][a-z]{2}, \d{1,9} [A-Z][a-z]{2} \d{1,9} [\d:]{1,12} [+-]?\d{1,9}"))
def test_no_date_breaks_anything(date: str) -> None:
    found = seen(date).date
    assert found is None or found.tzinfo is not None


@pytest.mark.parametrize("certificate", [None, {}, {"notAfter": "never"}, {"notAfter": None}])
def test_a_certificate_whose_end_cannot_be_seen(certificate: Any) -> None:
    assert _end(certificate) is None


def test_every_response_is_seen_also_one_that_is_tried_again(sandbox: Sandbox) -> None:
    found: list[Observation] = []
    sandbox.control.add_fault("status", status=503, method="GET", path="/health")
    with CustodyClient(sandbox.url, sandbox.token, max_retries=1) as client:
        client.observe(found.append)
        client.list_health_checks()
    assert [each.status for each in found] == [503, 200]
    assert {each.tls_version for each in found} == {""}
