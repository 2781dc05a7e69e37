"""Servers that record messages: one like Slack's, and one for e-mail."""

from __future__ import annotations

import contextlib
import email
import email.policy
import json
import socketserver
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _SlackHandler(BaseHTTPRequestHandler):
    """Record a message, and respond as Slack's web API and its incoming webhooks do."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append(body)  # type: ignore[attr-defined]
        is_api = self.path.endswith("chat.postMessage")
        answer = b'{"ok": true}' if is_api else b"ok"
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_api else "text/plain")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


class _SmtpHandler(socketserver.StreamRequestHandler):
    """Record an e-mail. This is as much of RFC 5321 as Python's ``smtplib`` uses."""

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline():
            word = line.split()[0].upper()
            if word == b"DATA":
                self._say("354 go on")
                self.server.received.append(self._read_message())  # type: ignore[attr-defined]
            self._say("221 bye" if word == b"QUIT" else "250 ok")

    def _read_message(self) -> EmailMessage:
        lines = [*iter(self.rfile.readline, b".\r\n")]
        # A line that begins with a period is sent with a second one.
        text = b"".join(line[1:] if line.startswith(b"..") else line for line in lines)
        return email.message_from_bytes(text, policy=email.policy.default)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextlib.contextmanager
def slack_server() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Serve like Slack; yield the port, and the list of received messages: JSON objects."""
    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), _SlackHandler)) as served:
        yield served


@contextlib.contextmanager
def smtp_server() -> Iterator[tuple[int, list[EmailMessage]]]:
    """Accept e-mails without TLS or a password; yield the port, and the list of received e-mails."""
    with _serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), _SmtpHandler)) as served:
        yield served


@contextlib.contextmanager
def _serving(server: socketserver.TCPServer) -> Iterator[tuple[int, list[Any]]]:
    received: list[Any] = []
    server.received = received  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], received
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()
