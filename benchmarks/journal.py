"""Measures reading new calls from a long journal of webhook calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from side_by_side import report, service


def journal(rounds: int, calls: int = 100_000, new: int = 10) -> None:
    """Compare reading a few new calls with reading all, and count the requests."""
    from airflow_custody.client import CustodyClient

    with service() as (control, url, token), CustodyClient(url, token) as client:
        # One call every ten seconds, so that each read repeats about thirty calls, those of the last five minutes.
        control.add_webhook_calls(calls - new, age=10 * calls, spacing=10, webhookId="w", payload='{"requestId": "1"}')
        known = {each.id for each in client.list_webhook_calls()}
        cursor = client.read_webhook_calls(None).cursor
        control.add_webhook_calls(new, webhookId="w", payload='{"requestId": "2"}')

        def read_new() -> int:
            return len(client.read_webhook_calls(cursor).calls)

        def read_all() -> int:
            return sum(each.id not in known for each in client.list_webhook_calls())

        def measure(read: Callable[[], int]) -> tuple[float, int]:
            control.clear_request_log()
            started = time.perf_counter()
            assert read() == new
            return time.perf_counter() - started, len(control.request_log(path="/webhooks/calls"))

        measure(read_new)  # warm up
        print(f"\n{new} new webhook calls of {calls:,}", flush=True)
        times_all, requests_all = measure(read_all)
        measured = [measure(read_new) for _ in range(rounds)]
        times_new, requests_new = statistics.median(each for each, _ in measured), measured[0][1]
        print(f"  from the cursor {times_new * 1000:9.1f} ms, {requests_new} requests")
        print(f"  reading all     {times_all * 1000:9.1f} ms, {requests_all} requests")
        report("requests for what is new", requests_new, 1)
        report("times as fast as reading all", times_all / times_new, 100, least=True)
        print(f"  size of the cursor {len(str(cursor.to_json())):,} characters")
