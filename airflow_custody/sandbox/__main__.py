"""Run the sandbox from the command line."""

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
    """Run until interrupted, and return the exit code."""
    options = _options(arguments)
    ended = threading.Event()

    def end(signal_number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        sandbox = package.Sandbox(host=options.host, port=options.port, token=options.token, state=options.state)
        sandbox.start()
    except ModuleNotFoundError as missing:
        print(missing, file=sys.stderr)
        return 1
    except package.SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        _introduce(sandbox, options.host)
        ended.wait()
    finally:
        sandbox.stop()
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m airflow_custody.sandbox",
        description="A stand-in for the custody service: it keeps nothing safe and moves nothing.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--token", help="token that has every role, never a real one (default: made up)")
    parser.add_argument("--state", metavar="FILE", help="keep the state in this file (default: in memory)")
    return parser.parse_args(arguments)


def _introduce(sandbox: package.Sandbox, host: str) -> None:
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
