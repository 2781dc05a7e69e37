"""Fixtures that the tests of whitelisting share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.clocks import SkippingTime
from support.service.people import Person
from support.service.request_signing import SignedInApprover

from airflow_custody.client import (
    CustodyClient,
)
from airflow_custody.sandbox import Sandbox


@pytest.fixture
def approver(sandbox: Sandbox, waits: SkippingTime) -> Iterator[SignedInApprover]:
    person = Person(sandbox, "ann", "approvers")
    with CustodyClient(sandbox.url, person.token, timeout=60, max_retries=0) as client:
        yield SignedInApprover(sandbox, person, client)
