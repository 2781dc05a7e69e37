"""The command that tries a connection step by step, and says what each step shows."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO, Command, option
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client
from airflow_custody.cli.output import Output
from airflow_custody.cli.trust import NOTHING_PINNED, date_text, how_to_pin, pins_text, short_hashes, some_text
from airflow_custody.client.connection_test import DEFAULT_ROLE, ConnectionTest, Finding, State, attempt, check_client
from airflow_custody.client.errors import CustodyError
from airflow_custody.client.http.operation import missing_roles
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.text_table import format_table
from airflow_custody.client.timestamps import parse_timestamp

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, VerificationPins
    from airflow_custody.client.http.observation import Observation
    from airflow_custody.client.http.operation import Operation
    from airflow_custody.client.rules.models import WireRules
    from airflow_custody.client.verification.verifier import VerifiedRules

#: What is checked, in this order.
CHECKS = (
    "settings",
    "reachable",
    "tls",
    "credentials",
    "user",
    "roles",
    "health listing",
    "signatures",
    "version",
    "clock",
)
# Clocks that are kept by NTP differ by less.
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=60)
_SOON = timedelta(days=14)
# More than all parts of one: each part that comes from the service is short.
_MAX_DETAIL = 3000


@dataclass
class Report:
    """
    What was found, by the name of the check.

    :param found: state, detail, advice and error code of each check that was made.
    :param redact: takes secrets out of what the service says, and makes it as short as the number says.
    """

    redact: Callable[[str, int], str] = sanitize
    found: dict[str, tuple[State, str, str, str]] = field(default_factory=dict)

    def add(self, name: str, state: State, detail: str, advice: str = "", code: str = "") -> None:
        """Note what a check found."""
        self.found[name] = (state, sanitize(detail, _MAX_DETAIL), sanitize(advice, 600), code)

    def add_error(self, name: str, state: State, error: CustodyError) -> None:
        """Note the error that a check ended with."""
        self.add(name, state, self.redact(error.reason, 600), error.advice or "", error.code)

    def add_finding(self, name: str, finding: Finding, detail: str, advice: str = "") -> None:
        """Note a finding, and why it is not ok; or else the detail and the advice."""
        if finding.error is not None:
            self.add_error(name, finding.state, finding.error)
        elif finding.state != "not checked":
            self.add(name, finding.state, detail, advice)

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(state == "failed" for state, *_ in self.found.values())

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        rows = [(name, *self.found.get(name, ("not checked", "", "", ""))) for name in CHECKS]
        return {
            "ok": not self.failed,
            "checks": [
                {"check": name, "state": state, "detail": detail, "advice": advice, "code": code}
                for name, state, detail, advice, code in rows
            ],
        }


def check(args: Namespace, output: Output) -> int:
    """
    Try a connection step by step: whether its settings can be used, the service can be reached,
    TLS, the credentials, who the user is, which roles the user lacks and what for, the health
    listing, what is pinned to verify signatures with and whether the service's rules are signed so,
    what can be known of the service's version, and whether the clocks agree. It changes nothing.

    What is not a response of the service has failed, and so have roles that --role asks for and the
    service does not show. Unknown is what the service itself says that it does not offer. The
    button Test Connection judges the responses in the same way, but does not compare the clocks.

    Exit codes: 0 nothing failed (something may be unknown), 1 something failed.

    JSON: {"ok", "checks": [{"check", "state", "detail", "advice", "code"}]}, always all of
    settings, reachable, tls, credentials, user, roles, health listing, signatures, version, clock;
    states are ok, failed, unknown, not checked. The code is an error code, as custody errors lists
    them, or empty.
    """
    report = Report()
    try:
        with open_client(args) as client:
            unknown = getattr(args, "custody_unknown_extras", "")
            _Checker(client, report, list(chain.from_iterable(args.roles or ())), unknown).run()
    except CustodyError as error:
        if "settings" in report.found:
            raise
        report.add_error("settings", "failed", error)
    data = report.to_json()
    output.data(data, _lines(data["checks"]))
    return ERROR if report.failed else NOTHING_TO_DO


def _lines(checks: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield a table of what was checked, and a line that names what was not."""
    rows = []
    for each in checks:
        if each["detail"]:
            code = f"[custody/{each['code']}]" if each["code"] else ""
            detail = short_hashes(f"{each['detail'].rstrip('.')}.")
            rows.append((each["check"], each["state"], " ".join(filter(None, (detail, each["advice"], code)))))
    yield format_table(("CHECK", "STATE", "DETAIL"), rows, max_width=4000)
    if skipped := [each["check"] for each in checks if not each["detail"]]:
        yield f"Not checked: {', '.join(skipped)}."


class _Checker:
    """
    Makes the checks of a client.

    :param roles: the roles that its user must have; none: what every read takes.
    :param unknown: what to tell of extras that its connection has and that are not known; empty: all are known.
    """

    def __init__(self, client: CustodyClient, report: Report, roles: Sequence[str], unknown: str) -> None:
        self._client = client
        self._report = report
        report.redact = client.auth.redact
        self._roles = roles
        self._unknown = unknown
        self._seen: list[Observation] = []
        client.observe(self._observe)

    def _observe(self, seen: Observation) -> None:
        if seen.status is not None:
            self._seen.append(seen)

    def run(self) -> None:
        settings = self._client.settings
        auth = self._client.auth
        detail = f"{settings.base_url}, {type(auth).__name__} from {auth.source}"
        state: State = "failed" if self._unknown else "ok"
        self._report.add("settings", state, detail, self._unknown, "setting-wrong" if self._unknown else "")
        found = check_client(self._client, self._roles)
        if not self._seen and found.health.error is not None:
            # There is no response at all, so nothing else can be checked.
            self._report.add_error("reachable", "failed", found.health.error)
            return
        if self._seen:
            self._report.add("reachable", "ok", f"the service responds (status {self._seen[-1].status})")
            self._check_tls()
            self._check_clock()
        expires = getattr(auth, "expires", None)
        until = f"; the token expires at {expires:%Y-%m-%d %H:%M:%S} UTC" if expires else ""
        self._report.add_finding("credentials", found.credentials, f"the service accepts them{until}")
        self._add_user(found)
        self._add_health(found)
        self._add_signatures(found)

    def _check_tls(self) -> None:
        settings = self._client.settings
        seen = self._seen[-1]
        ends = seen.certificate_ends
        if settings.base_url.startswith("http:"):
            self._report.add("tls", "unknown", "plain HTTP: whoever is in between reads the token", "Use https://.")
        elif settings.verify is False:
            advice = "Give the path of the CA bundle in 'verify' instead of false."
            self._report.add("tls", "unknown", f"{seen.tls_version}; the certificate is not verified", advice)
        elif ends is None:
            self._report.add("tls", "ok", f"{seen.tls_version or 'verified'}; when the certificate ends is not known")
        else:
            left = ends - datetime.now(timezone.utc)
            advice = f"It ends in {count(max(0, left.days), 'day')}: it must be replaced." if left < _SOON else ""
            detail = f"{seen.tls_version}; the certificate is accepted, and ends on {ends:%Y-%m-%d %H:%M} UTC"
            self._report.add("tls", "ok", detail, advice)

    def _check_clock(self) -> None:
        difference = _clock_difference(self._seen)
        if difference is None:
            self._report.add("clock", "unknown", "the responses have no date")
            return
        seconds = round(difference.total_seconds())
        if abs(difference) <= timedelta(seconds=2):
            self._report.add("clock", "ok", "the clocks agree, to two seconds")
            return
        detail = f"this machine's clock is {abs(seconds)} s {'behind' if seconds > 0 else 'ahead of'} the service's"
        too_far = abs(difference) > _MAX_CLOCK_DIFFERENCE
        advice = "Set both by NTP: API keys sign the time, and tokens and health checks expire." if too_far else ""
        self._report.add("clock", "failed" if too_far else "ok", detail, advice)

    def _add_user(self, found: ConnectionTest) -> None:
        user = found.user or {}
        names = {"id": "id", "externalUserId": "external id", "tenantId": "tenant", "status": "status"}
        # Each by itself: a long one pushes no other out.
        shown = [(name, self._report.redact(str(user.get(key) or ""), 80)) for key, name in names.items()]
        known = ", ".join(f"{name} {value}" for name, value in shown if value)
        advice = "What this status means is not published: may this user work?" if found.who.state == "unknown" else ""
        self._report.add_finding("user", found.who, known or "the service does not say who it is", advice)
        roles = user.get("roles")
        if roles is None:
            self._report.add_finding("roles", found.roles, "the service does not say which roles the user has")
            return
        detail = f"has {some_text([self._report.redact(each, 60) for each in roles], 60) or 'none'}"
        if denied := _denied(roles):
            detail += f"; not for this user: {denied}"
        error = found.roles.error
        state, advice = found.roles.state, str(error.advice) if error else ""
        self._report.add("roles", state, detail, advice, error.code if error else "")

    def _add_health(self, found: ConnectionTest) -> None:
        unknown = "the service does not tell its version"
        error = found.health.error
        number = len(found.checks or ())
        self._report.add_finding(
            "health listing", found.health, f"{count(number, 'check')}; custody health judges them"
        )
        if found.checks is not None:
            self._report.add("version", "unknown", f"{unknown}; it is at least 3.14, because it has the health listing")
        elif error is not None:
            is_old = error.status == 404 and error.from_service
            older = "; it seems to be before 3.14, as there is no health listing" if is_old else ""
            self._report.add("version", "unknown", unknown + older)

    def _add_signatures(self, found: ConnectionTest) -> None:
        """Say what is pinned, and whether the rules in force are signed so."""
        pins, finding = self._client.settings.pins, found.signatures
        if pins is None:
            self._report.add("signatures", "not checked", NOTHING_PINNED, how_to_pin(self._client.settings.source))
            return
        if finding.state == "not checked":
            return
        if found.rules is not None and found.verified is not None:
            detail, advice = describe_rules(pins, found.verified, found.rules), ""
        elif found.rules is not None:
            detail, advice = "", "Nothing is verified under them: are the pins right? Do not take keys from it."
        else:
            detail, advice = "the service does not offer its rules", "Each address is verified with its own."
        if (error := finding.error) is not None and finding.state == "failed":
            detail, advice = self._report.redact(error.reason, 600), error.advice or advice
        code = error.code if error is not None else ""
        self._report.add("signatures", finding.state, f"{pins_text(pins)}. {detail}", advice, code)


def describe_rules(pins: VerificationPins, verified: VerifiedRules, rules: WireRules) -> str:
    """
    Return in words what is proved of the service's rules, and last what it says of them itself.

    :param pins: what is pinned.
    :param verified: what is proved.
    :param rules: the rules as they came.
    """
    since = date_text(verified.timestamp)
    signers = _signers(pins, rules)
    signed = some_text(each for each in pins.fingerprints if each in signers)
    text = (
        f"The rules that the service says are in force are {f'of {since}' if since else 'without a date'}, "
        f"signed by {signed}; SHA-256 {verified.sha256}"
    )
    if others := [each for each in pins.fingerprints if each not in signers]:
        text += f"; did not sign them: {some_text(others)}"
    shown = rules.get("creationDate")
    date = parse_timestamp(shown) if isinstance(shown, str) else None
    if since is None and date is not None:
        text += f". The service says that they are of {date:%Y-%m-%d}, which nobody has signed"
    return text


def _roles(value: str) -> list[str]:
    """Return the roles that an option names; an empty one may be what an unset variable of a shell leaves."""
    roles = [" ".join(each.split()) for each in value.split(",")]
    if not all(roles):
        raise ArgumentTypeError("is empty, or has a comma without a role before and after it")
    return roles


def _signers(pins: VerificationPins, rules: WireRules) -> set[str]:
    """Return the fingerprints of all pinned keys that have signed rules: verifying them needs no more than enough."""
    from airflow_custody.client.verification.verifier import VerificationPins, Verifier

    found = set()
    for key, fingerprint in zip(pins.superadmin_keys, pins.fingerprints, strict=True):
        _, refusal = attempt(partial(Verifier(VerificationPins(key, 1)).verify_rules, rules))
        if refusal is None:
            found.add(fingerprint)
    return found


def _clock_difference(seen: Sequence[Observation]) -> timedelta | None:
    """Return by how much the service's clock is ahead, at least; None if no response says it."""
    found = []
    for each in seen:
        if each.date is not None:
            # The header has whole seconds: it was sent at some time within this one. The last one of all has no next.
            early = each.date - each.received_at
            found.append(early if early > timedelta() else min(early + timedelta(seconds=1), timedelta()))
    return min(found, key=abs, default=None)


def _operations() -> list[Operation]:
    """Return all operations of the client."""
    from airflow_custody.client.approvals import operations as approvals
    from airflow_custody.client.health import operations as health
    from airflow_custody.client.http.operation import Operation
    from airflow_custody.client.rules import operations as rules
    from airflow_custody.client.users import operations as users
    from airflow_custody.client.webhooks import operations as webhooks
    from airflow_custody.client.whitelist import operations as whitelist

    modules = (health, whitelist, approvals, webhooks, users, rules)
    return [each for module in modules for each in vars(module).values() if isinstance(each, Operation)]


def _denied(roles: Sequence[str]) -> str:
    """Return in words for which operations a user with these roles lacks one."""
    by_role: dict[str, list[str]] = {}
    for operation in _operations():
        if missing := missing_roles(operation.roles, roles):
            by_role.setdefault(" and ".join(missing), []).append(operation.name)
    return "; ".join(f"{', '.join(names)} (lacks {role})" for role, names in by_role.items())


COMMAND = Command(
    "check",
    "Try a connection step by step",
    check,
    (
        option(
            "--role",
            dest="roles",
            metavar="ROLE",
            action="append",
            type=_roles,
            help="role that the user must have, or several, comma-separated, each of which may be 'A or B'; may be "
            f"repeated. Default: {DEFAULT_ROLE}",
        ),
        *CONNECTION_OPTIONS,
    ),
)
