"""Serves a journal of webhook calls over HTTP, with an adjustable clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from airflow_custody.client import CustodyClient

START = datetime(2026, 1, 2, tzinfo=timezone.utc)


class JournalService:
    """
    A service that lists webhook calls, but no webhooks.

    Calls are listed by offset, the newest first.

    :ivar clock: time on the service's clock, in seconds since :data:`START`.
    :ivar calls: creation times of the calls, in seconds since :data:`START`, by id.
    :ivar between_pages: called before each page of a listing except the first.
    :ivar page: number of calls on a page.
    """

    def __init__(self) -> None:
        self.clock = 0.0
        self.calls: dict[str, float] = {}
        self.between_pages: Callable[[], object] | None = None
        self.page = 3
        self.client: CustodyClient

    def write(self, *created: float) -> list[str]:
        """Add calls with these creation times, and return their ids."""
        first = 1 + max(map(int, self.calls), default=0)
        new = {str(first + index): each for index, each in enumerate(created)}
        self.calls |= new
        return list(new)

    def listed(self, first: int) -> dict[str, object]:
        rows = sorted(self.calls.items(), key=lambda call: (-call[1], -int(call[0])))
        page = [
            {"id": name, "webhookId": "w", "createdAt": (START + timedelta(seconds=at)).isoformat()}
            for name, at in rows[first : first + self.page]
        ]
        cursor = {"currentPage": str(first + self.page), "hasNext": first + self.page < len(rows)}
        return {"calls": page, "cursor": cursor}


@contextmanager
def journal_service() -> Iterator[JournalService]:
    """Serve a journal, with a client in :attr:`JournalService.client`."""
    service = JournalService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            first = int(query.get("cursor.currentPage", ["0"])[0])
            if first and service.between_pages is not None:
                service.between_pages()
            is_listing = query.get("sortOrder") == ["DESC"]
            body = json.dumps(service.listed(first) if is_listing else {"webhooks": []}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(START + timedelta(seconds=int(service.clock)), usegmt=True)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with CustodyClient(f"http://127.0.0.1:{server.server_port}", "token", max_retries=0) as client:
                service.client = client
                yield service
        finally:
            server.shutdown()
            thread.join()
