"""
A network that goes away while requests are sent, and comes back after their time-outs.

Run in a network namespace of its own. Prints, as JSON, whether the server got the body from a client that gives up,
from one that is killed, from one that is frozen, and from one that is fine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.client.http import fence

TIMEOUT = 2.0
REQUEST = WhitelistRequest(label="a", address="0x" + "ab" * 20, blockchain="ETH")


def network(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


def wait() -> None:
    """Report that the connection is open, and wait for the network to be cut."""
    print("connected", flush=True)
    sys.stdin.readline()


def send(url: str) -> None:
    # The outage lasts longer than the time-outs.
    fence.FENCE = 600.0
    with suppress(CustodyError):
        CustodyClient(url, "t0ken", timeout=TIMEOUT).create_whitelist_request(REQUEST, before_send=wait)
    # The connection is alive, so it ends only if the client gives up.
    time.sleep(600)


def serve(listener: socket.socket, received: list[str]) -> None:
    connection, _ = listener.accept()
    with suppress(OSError):
        while data := connection.recv(65536):
            received.append(data.decode("latin-1"))


def main() -> None:
    network("up")
    received: dict[str, list[str]] = {name: [] for name in ("gives up", "killed", "frozen", "fine")}
    clients = {}
    for name, got in received.items():
        listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=serve, args=(listener, got), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        pipe = subprocess.PIPE
        clients[name] = subprocess.Popen([sys.executable, __file__, url], stdin=pipe, stdout=pipe)
        clients[name].stdout.readline()  # type: ignore[union-attr]
    network("down")
    for name, client in clients.items():
        if name != "fine":
            os.write(client.stdin.fileno(), b"go\n")  # type: ignore[union-attr]
    time.sleep(0.4)
    clients["killed"].kill()
    clients["frozen"].send_signal(signal.SIGSTOP)
    time.sleep(2 * TIMEOUT)
    network("up")
    os.write(clients["fine"].stdin.fileno(), b"go\n")  # type: ignore[union-attr]
    # Wait until the pauses between the system's attempts have become long.
    time.sleep(5)
    while REQUEST.address not in "".join(received["fine"]):
        time.sleep(0.1)
    for client in clients.values():
        client.kill()
        client.communicate()
    print(json.dumps({name: REQUEST.address in "".join(got) for name, got in received.items()}))


if __name__ == "__main__":
    send(sys.argv[1]) if len(sys.argv) > 1 else main()
