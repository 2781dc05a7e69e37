"""The sandbox's command line."""

from __future__ import annotations

import argparse
import ipaddress
import shlex
import signal
import sys
import threading
from types import FrameType

import airflow_custody.sandbox as package


def main(arguments: list[str] | None = None) -> int:
    """Run the sandbox until it is interrupted, and return the exit code."""
    options = _parse(arguments)
    interrupted = threading.Event()

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        sandbox = package.Sandbox(host=options.host, port=options.port, token=options.token, state=options.state)
        sandbox.start()
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    except package.SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        _print_instructions(sandbox, options.host)
        interrupted.wait()
    finally:
        sandbox.stop()
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_custody.sandbox",
        description="A stand-in for the custody service, for tests and demos. It holds no assets.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--token", help="token with every role; never use a real one (default: a random one)")
    parser.add_argument("--state", metavar="FILE", help="file to keep the state in (default: in memory)")
    return parser.parse_args(arguments)


def _print_instructions(sandbox: package.Sandbox, host: str) -> None:
    print("This is the custody sandbox, a stand-in for tests. It is not the real service.")
    print(f"URL:      {sandbox.url}")
    print(f"Control:  {sandbox.url}/sandbox (no authentication)")
    print()
    print(f"export AIRFLOW_CONN_CUSTODY_DEFAULT={shlex.quote(sandbox.connection())}", flush=True)
    if not _is_loopback(host):
        print(
            f"warning: {host} is not a loopback address, and the control routes have no authentication",
            file=sys.stderr,
            flush=True,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
