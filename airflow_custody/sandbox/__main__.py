"""The sandbox's command line."""

from __future__ import annotations

import argparse
import ipaddress
import json
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType

import airflow_custody.sandbox as package

_SIGNERS = ("alice", "bob")
# Printed after the connections. It is a comment, because the whole output must be valid shell code.
_NEXT = """
# Paste these lines into the shell that will run Airflow, or source them from a file. Then, in a clone of the project:
#   custody check               # check the pinned keys, and the signatures of the service's rules
#   AIRFLOW__CORE__DAGS_FOLDER="$PWD/example_dags" airflow standalone   # then trigger custody_whitelist_complete
#   custody whitelist verify    # list the verified addresses and their signers"""


def main(arguments: list[str] | None = None) -> int:
    """Run the sandbox until it is interrupted, and return the exit code."""
    options = make_parser().parse_args(arguments)
    interrupted = threading.Event()

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        interrupted.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    try:
        with package.Sandbox(
            host=options.host,
            port=options.port,
            token=options.token,
            state=options.state,
            allowed_hosts=options.allow_host,
        ) as sandbox:
            _print_instructions(sandbox, options)
            interrupted.wait()
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
    except package.SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
    else:
        return 0
    return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m airflow_custody.sandbox",
        description="A stand-in for the custody service, for tests and demos. It holds no assets.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="further name of this machine that clients may use, besides localhost and --host; may be repeated",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free port)")
    parser.add_argument("--token", help="token with all roles; never use a real token (default: a random token)")
    parser.add_argument(
        "--state", metavar="FILE", help="file for the state, accessible only to you (default: in memory)"
    )
    parser.add_argument(
        "--with-signers",
        action="store_true",
        help=f"require that {_SIGNERS[0]} and then {_SIGNERS[1]} sign each whitelisting request; print their "
        "connections and keys, and the keys to pin",
    )
    return parser


def _print_instructions(sandbox: package.Sandbox, options: argparse.Namespace) -> None:
    lines = [
        "# This is the custody sandbox, a stand-in for tests. It is not the real service.",
        _comment(f"URL:      {sandbox.url}"),
        _comment(f"Control:  {sandbox.url}/sandbox (no authentication)"),
        "",
    ]
    if options.with_signers:
        lines += _instructions_to_sign(sandbox)
    else:
        lines += _exports(package.connection_variables(sandbox.connection()))
    print("\n".join(lines), flush=True)
    if not _is_loopback(options.host):
        print(
            f"warning: {options.host} is not a loopback address, and the control routes have no authentication",
            file=sys.stderr,
            flush=True,
        )


def _instructions_to_sign(sandbox: package.Sandbox) -> list[str]:
    signers = sandbox.control.add_signers(_SIGNERS)
    pins = sandbox.control.pins()
    superadmin_keys = "".join(pins["superadmin_keys"])
    first, second = (f"{each['name']} ({each['external_id']}, group {each['group']})" for each in signers)
    return [
        _comment(f"Two users must sign each whitelisting request: first {first}, then {second}."),
        *_exports(package.connection_variables(sandbox.connection(pins=True), signers)),
        "",
        "# The pinned keys: as extras of a connection (already set above), and as public keys only.",
        *_exports({"CUSTODY_PINS": json.dumps(pins), "CUSTODY_SUPERADMIN_KEYS": superadmin_keys}),
        _NEXT,
    ]


def _comment(text: str) -> str:
    """Return text as a shell comment on one line."""
    return "# " + "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def _exports(variables: Mapping[str, str]) -> list[str]:
    """
    Return shell lines that export variables.

    :raises SandboxError: if a name is not valid in a shell. This is checked because names may come from the state.
    """
    for name in variables:
        if not (name.isascii() and name.isidentifier()):
            raise package.SandboxError(
                f"cannot print the variable {name!r}: only letters, digits and '_' are allowed in a shell"
            )
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


if __name__ == "__main__":
    sys.exit(main())
