"""A limited time for many calls."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from clocks import Clock

from airflow_custody.client import ClientSettings
from airflow_custody.client.errors import CustodyConnectionError, CustodyError
from airflow_custody.overview.budget import Budget, for_people, read_section


def test_a_call_that_begins_too_late_is_refused() -> None:
    clock = Clock()
    budget = Budget(10, clock=clock)
    assert read_section(budget.check).problem == ""
    clock.now = 10
    section = read_section(budget.check)
    assert section.value is None
    assert section.problem.startswith("the 10 s that there are for all of this were over. ")


def test_a_wait_that_would_take_too_long_is_refused() -> None:
    budget = Budget(10, clock=Clock())
    budget.sleep(0)
    with pytest.raises(CustodyConnectionError):
        budget.sleep(10)


@pytest.mark.parametrize("is_own", [True, False])
def test_problems_are_of_one_line_and_say_what_to_do(is_own: bool) -> None:
    def fail() -> None:
        raise CustodyError("a\nb\x1b[2J", advice="Do c.", status=403, from_service=is_own)

    section = read_section(fail)
    assert section.problem == "a b [2J (status 403). Do c. [custody/unexpected]"
    # A gateway's refusal says nothing about the service.
    assert section.not_offered is is_own


def test_a_person_does_not_wait_for_long() -> None:
    given = ClientSettings(base_url="https://custody.example.com", timeout=120, max_retries=9)
    found = for_people(given)
    assert (found.timeout, found.max_retries, found.base_url) == (10, 0, given.base_url)
    assert found.max_response_bytes == 8 * 1024 * 1024
    less = for_people(replace(given, timeout=2, max_response_bytes=1000))
    assert (less.timeout, less.max_response_bytes) == (2, 1000)


def test_what_an_unexpected_error_says_is_neither_shown_nor_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("a secret")

    caplog.set_level(logging.DEBUG)
    section = read_section(fail)
    assert section.problem.startswith("unexpected error: ValueError in fail, line ")
    assert "secret" not in caplog.text + section.problem
    assert "ValueError in fail" in caplog.text
