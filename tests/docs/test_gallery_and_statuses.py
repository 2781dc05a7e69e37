"""What the generated pages say in short: the titles of the examples, and the codes by HTTP status."""

from __future__ import annotations

import pytest
from custody_docs import catalogue

from airflow_custody.client import CustodyClient, CustodyError
from airflow_custody.sandbox import Sandbox


def test_each_example_has_a_title_of_its_own_that_is_its_job() -> None:
    assert list(catalogue.TITLES) == [each.stem for each in catalogue.examples()]
    titles = list(catalogue.TITLES.values())
    assert len(set(titles)) == len(titles)
    assert all(len(title) <= 50 and len(title.split()) >= 3 for title in titles)


#: The page of error codes says the same.
STATUSES = [("302", "response-unusable"), ("400", "request-refused"), ("401", "credentials-refused")]
STATUSES += [("403", "role-missing"), ("404", "not-found"), ("408", "no-response"), ("409", "request-refused")]
STATUSES += [("422", "request-refused"), ("429", "rate-limited"), ("500", "service-failed"), ("503", "service-failed")]


@pytest.mark.parametrize(("status", "code"), STATUSES)
def test_the_code_of_each_status_is_true(sandbox: Sandbox, status: str, code: str) -> None:
    if code == "response-unusable":
        sandbox.control.add_fault("redirect", location="https://custody.example.com/", status=int(status))
    else:
        sandbox.control.add_fault("status", status=int(status))
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client, pytest.raises(CustodyError) as caught:
        client.list_health_checks()
    assert (caught.value.status, caught.value.code) == (int(status), code)
