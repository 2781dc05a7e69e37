from __future__ import annotations

import pytest
from webhook_reads import write_calls

from airflow_custody.client import CustodyClient
from airflow_custody.client.webhooks.base_url_change import name_service, read_after_base_url_change
from airflow_custody.client.webhooks.journal import CallCursor
from airflow_custody.sandbox import Sandbox


@pytest.mark.parametrize("other", ["https://h:443", "https://H", "https://h/", "https://h:443/"])
def test_a_service_has_one_name_however_its_base_url_is_written(other: str) -> None:
    assert name_service("https://h") == name_service(CustodyClient(other, "token").settings.base_url)
    assert name_service("https://h") == name_service(other)


def test_other_base_urls_have_other_names() -> None:
    urls = ["https://h", "http://h", "https://h:80", "http://h:443", "https://h/a", "https://h/A", "https://[::443]"]
    assert len({name_service(each) for each in urls}) == len(urls)


def test_a_cursor_that_has_met_no_call_leaves_nothing_out_and_says_what_may_be_lost(sandbox: Sandbox) -> None:
    webhook = sandbox.control.add_webhook()["id"]
    write_calls(sandbox, webhook, 1, 2)
    with CustodyClient(sandbox.url, sandbox.token) as client:
        new = read_after_base_url_change(client, CallCursor(0, {}, read_at=1, complete_at=1), limit=10)
        assert [call.id for call in new.calls] == ["1", "2"]
        assert "no call was known that could show whether it is the same journal" in new.gap
        # It is said once: from here on it is a journal like any other.
        assert client.read_webhook_calls(new.cursor).gap == ""


def test_a_known_call_shows_the_same_journal_also_behind_many_new_ones(sandbox: Sandbox) -> None:
    webhook = sandbox.control.add_webhook()["id"]
    with CustodyClient(sandbox.url, sandbox.token) as client:
        write_calls(sandbox, webhook, 1)
        cursor = client.read_webhook_calls(None).cursor
        write_calls(sandbox, webhook, *range(2, 252))
        new = read_after_base_url_change(client, cursor, limit=100)
        assert ([call.id for call in new.calls], new.more, new.gap) == ([str(n) for n in range(2, 102)], True, "")
        # The call that is known by its id must be there, and not only one that is older.
        sandbox.control.reset()
        write_calls(sandbox, webhook, -9000, 5)
        new = read_after_base_url_change(client, cursor, limit=100)
        assert [call.id for call in new.calls] == ["5"]
        assert "the connection has another base URL now" in new.gap
