"""The command that tries a connection step by step, and says what each step shows."""

from __future__ import annotations

import json
import platform
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_custody import __version__
from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO, add_command
from airflow_custody.cli.connection import add_connection_options, open_client, usage_error
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.pins import (
    NOTHING_PINNED,
    describe_pins,
    describe_rules,
    shorten_hashes,
)
from airflow_custody.client.connection_test import (
    DEFAULT_ROLE,
    ROLES,
    ConnectionTest,
    Finding,
    check_client,
    describe_roles,
)
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError
from airflow_custody.client.http.operation import missing_roles
from airflow_custody.client.text import count, sanitize, sentences

if TYPE_CHECKING:
    from airflow_custody.cli.commands import Commands
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.assumptions import Assumption
    from airflow_custody.client.http.responses import Observation

#: The checks, in their order.
CHECKS = (
    "settings",
    "reachable",
    "tls",
    "credentials",
    "user",
    "roles",
    "health listing",
    "signatures",
    "clock",
)
# Clocks that are kept by NTP differ by less.
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=60)
# More than all parts of one: each part that comes from the service is short.
_MAX_DETAIL = 3000

#: What a check shows, as JSON has it.
_Row: TypeAlias = dict[str, str]


def check(args: Namespace, output: Output) -> int:
    """
    Try a connection step by step: whether its settings can be used, the service can be reached,
    TLS, the credentials, who the user is, which roles the user lacks and what for, the health
    listing, what is pinned to verify signatures with and whether the service's rules are signed so,
    and whether the clocks agree. It changes nothing.

    What is not a response of the service has failed, and so have roles that --role asks for and the
    service does not show. Unknown is what the service itself says that it does not offer. The
    button Test Connection judges the responses in the same way, but does not compare the clocks.

    With --assumptions it also tries, with reads only, what this package assumes about the service
    because it is not published: at most 1,000 requests and 500 webhook calls. An assumption holds
    only if something was seen that shows it. --report writes the result without any value, label,
    address, id or host, fit to be sent to others.

    Exit codes: 0 nothing failed (something may be unknown), 1 something failed, or an assumption
    does not hold.

    JSON: {"ok", "checks": [{"check", "state", "detail", "advice", "code"}], "assumptions":
    [{"assumption", "state", "seen", "advice", "error"}]}, always all of settings, reachable, tls,
    credentials, user, roles, health listing, signatures, clock; states are ok, failed, unknown, not
    checked. The code is an error code of the documentation, or empty. Assumptions are null without
    --assumptions, and where the credentials are not accepted; their states are holds, does not
    hold, cannot tell.
    """
    if args.report and not args.assumptions:
        raise usage_error("--report: only with --assumptions", "Give both.")
    for each in args.roles or ():
        _check_role(each)
    assumptions: list[Assumption] = []
    found = {name: _row(name, Finding()) for name in CHECKS}
    try:
        with open_client(args) as client:
            for row in _rows(client, args):
                found[row["check"]] = row
            if args.assumptions and found["credentials"]["state"] == "ok":
                from airflow_custody.client.assumptions import check_assumptions

                assumptions = check_assumptions(client)
    except CustodyError as error:
        if found["settings"]["state"] != "not checked":
            raise
        found["settings"] = _row("settings", Finding("failed", error))
    states = {*(row["state"] for row in found.values()), *(each.state for each in assumptions)}
    failed = bool(states & {"failed", "does not hold"})
    checked = [
        {
            "check": row["check"],
            "state": row["state"],
            "detail": shorten_hashes(sentences(row["detail"], row["advice"])),
            "code": row["code"] and f"[custody/{row['code']}]",
        }
        for row in found.values()
        if row["detail"]
    ]
    skipped = [name for name, row in found.items() if not row["detail"]]
    rows = [*map(asdict, assumptions)]
    output.data(
        {"ok": not failed, "checks": [*found.values()], "assumptions": rows or None},
        {
            "checks": checked,
            "not checked": ", ".join(skipped),
            "assumptions": [
                {name: row[name] for name in ("assumption", "state")}
                | {"seen": sentences(_in_words(row["seen"]), row["error"], row["advice"])}
                for row in rows
            ],
        },
    )
    if args.assumptions and not rows:
        message("Assumptions were not tried: that needs credentials that are accepted.")
    if args.report:
        _write_report(args.report, found, rows)
    return ERROR if failed else NOTHING_TO_DO


def _in_words(seen: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {_value_in_words(value)}" for name, value in seen.items())


def _value_in_words(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{number} {word}" for word, number in value.items()]
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _write_report(path: str, found: dict[str, _Row], rows: list[dict[str, Any]]) -> None:
    """Write what was found without a word that could tell whose service it is: no detail, advice or error text."""
    report = {
        "airflow-provider-custody": __version__,
        "python": platform.python_version(),
        "checks": {name: {"state": row["state"], "code": row["code"]} for name, row in found.items()},
        "assumptions": [{name: row[name] for name in ("assumption", "state", "seen")} for row in rows],
    }
    try:
        # A new file: another one under this name may be somebody's keys.
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"{json.dumps(report, indent=2)}\n")
    except OSError as error:
        raise CustodyConfigurationError(
            f"--report: {sanitize(path, 200)} cannot be written: {error.strerror}",
            advice="Give the path of a new file.",
            code="parameter-wrong",
        ) from None
    message(f"{path} has states, words, counts and codes only. Read its words before you send it along with an issue.")


def _row(
    name: str, finding: Finding, detail: str = "", advice: str = "", *, redact: Callable[[str, int], str] = sanitize
) -> _Row:
    """Return what a check shows: of an error its reason and advice, unless something else is given."""
    error = finding.error
    if error is not None:
        detail, advice = detail or redact(error.reason, 600), advice or error.advice or ""
    texts = {"detail": sanitize(detail, _MAX_DETAIL), "advice": sanitize(advice, 600)}
    return {"check": name, "state": finding.state, **texts, "code": error.code if error else ""}


def _rows(client: CustodyClient, args: Namespace) -> Iterator[_Row]:
    """Yield what each check shows; those that could not be made are left out."""
    seen: list[Observation] = []
    client.observe(lambda each: seen.append(each) if each.status is not None else None)
    settings, auth = client.settings, client.auth
    row = partial(_row, redact=auth.redact)
    where = f"{settings.base_url}, {type(auth).__name__} from {auth.source}"
    yield row("settings", Finding("ok"), where)
    found = check_client(client, args.roles or ())
    if not seen and found.health.error is not None:
        yield row("reachable", found.health)
        return
    if seen:
        another = found.reachable.error
        words = f"the service responds (status {seen[-1].status})"
        if another:
            words = auth.redact(f"another program responds, not the custody service: {another.reason}", 800)
        yield row("reachable", found.reachable, words)
        yield _tls(client, seen[-1])
        yield _clock(seen[-1])
        if another:
            return
    expires = getattr(auth, "expires", None)
    until = f"; the token expires at {expires:%Y-%m-%d %H:%M:%S} UTC" if expires else ""
    yield row("credentials", found.credentials, "" if found.credentials.error else f"the service accepts them{until}")
    # Each by itself: a long one pushes no other out.
    user = found.user or {}
    shown = [f"{name} {auth.redact(str(value), 80)}" for name, value in user.items() if name != "roles" and value]
    advice = "What this status means is not published: may this user work?" if found.who.state == "unknown" else ""
    yield row("user", found.who, ", ".join(shown), "" if found.who.error else advice)
    if found.roles.state != "not checked":
        roles = user.get("roles")
        unknown = "" if found.roles.error else "the service does not say which roles the user has"
        yield row("roles", found.roles, unknown if roles is None else f"has {describe_roles(roles, auth.redact)}")
    checks = found.checks
    yield row(
        "health listing",
        found.health,
        f"{count(len(checks), 'check')}; custody health judges them" if checks is not None else "",
    )
    yield _signatures(client, found)


def _tls(client: CustodyClient, seen: Observation) -> _Row:
    if client.settings.base_url.startswith("http:"):
        return _row("tls", Finding("unknown"), "plain HTTP: whoever is in between reads the token", "Use https://.")
    if client.settings.verify is False:
        advice = "Give the path of the CA bundle in 'verify' instead of false."
        return _row("tls", Finding("unknown"), f"{seen.tls_version}; the certificate is not verified", advice)
    ends = seen.certificate_ends
    end = f"ends on {ends:%Y-%m-%d %H:%M} UTC" if ends else "its end is not known"
    return _row("tls", Finding("ok"), f"{seen.tls_version or 'TLS'}; the certificate is accepted, and {end}")


def _clock(seen: Observation) -> _Row:
    if seen.date is None:
        return _row("clock", Finding("unknown"), "the responses have no date")
    difference = seen.date - seen.received_at
    seconds = round(difference.total_seconds())
    detail = f"this machine's clock is {abs(seconds)} s {'behind' if seconds > 0 else 'ahead of'} the service's"
    if abs(difference) <= _MAX_CLOCK_DIFFERENCE:
        return _row("clock", Finding("ok"), detail)
    advice = "Set both by NTP: API keys sign the time, and tokens and health checks expire."
    return _row("clock", Finding("failed"), detail, advice)


def _signatures(client: CustodyClient, found: ConnectionTest) -> _Row:
    """Say what is pinned, and whether the rules in force are signed so."""
    pins, finding = client.settings.pins, found.signatures
    if pins is None:
        return _row("signatures", finding, NOTHING_PINNED, client.settings.how_to_pin)
    if finding.state == "not checked":
        return _row("signatures", finding)
    advice = ""
    if found.rules is not None and found.verified is not None:
        detail = describe_rules(pins, found.verified, found.rules)
    elif finding.state == "unknown" or finding.error is None:
        detail, advice = "the service does not offer its rules", "Each address is verified with its own."
    else:
        detail = client.auth.redact(finding.error.reason, 600)
        if found.rules is not None:
            advice = "Nothing is verified under them: are the pins right? Do not take keys from it."
    return _row("signatures", finding, f"{describe_pins(pins)}. {detail}", advice)


def _check_role(given: str) -> None:
    """Refuse roles that no operation needs: a mistyped one would look as if the user lacked it."""
    known = sorted({role for needed in ROLES for role in needed.split(" or ")})
    for role in re.split(" or ", given, flags=re.IGNORECASE):
        if missing_roles([role], known):
            raise usage_error(f"--role: there is no role {sanitize(role, 60)!r}", f"There are: {', '.join(known)}.")


def add_to(commands: Commands) -> None:
    """Add the command to the parser of all."""
    parser = add_command(commands, "check", "Try a connection step by step", check)
    text = f"role that the user must have, or 'A or B' if one of two is enough. Default: {DEFAULT_ROLE}"
    parser.add_argument("--role", dest="roles", metavar="ROLE", action="append", help=text)
    text = "also try what is assumed about the service, with reads only"
    parser.add_argument("--assumptions", action="store_true", help=text)
    text = "write the result to a new file, without any value; with --assumptions"
    parser.add_argument("--report", metavar="FILE", help=text)
    add_connection_options(parser)
