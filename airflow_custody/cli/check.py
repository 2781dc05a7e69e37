"""The command that tries a connection step by step, and says what each step shows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO, Command, option
from airflow_custody.cli.connection import CONNECTION_OPTIONS, open_client
from airflow_custody.cli.output import Output
from airflow_custody.cli.trust import NOTHING_PINNED, date_text, how_to_pin, pins_text, some_text
from airflow_custody.client.errors import CustodyAuthenticationError, CustodyConnectionError, CustodyError
from airflow_custody.client.text import ascii_lower, count, sanitize
from airflow_custody.client.text_table import format_table
from airflow_custody.client.timestamps import parse_timestamp

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, VerificationPins
    from airflow_custody.client.http.observation import Observation
    from airflow_custody.client.http.operation import Operation
    from airflow_custody.client.rules.models import WireRules
    from airflow_custody.client.users.models import WireUser
    from airflow_custody.client.whitelist.verification import VerifiedRules

State = Literal["ok", "failed", "unknown", "not checked"]

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
#: The role that every read takes.
DEFAULT_ROLE = "TPUser"
# Clocks that are kept by NTP differ by less.
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=60)
_SOON = timedelta(days=14)
# More than all parts of one: each part that comes from the service is short.
_MAX_DETAIL = 3000


@dataclass
class Report:
    """
    What was found, by the name of the check.

    :param found: state, detail and advice of each check that was made.
    """

    found: dict[str, tuple[State, str, str]] = field(default_factory=dict)

    def add(self, name: str, state: State, detail: str, advice: str = "") -> None:
        """Note what a check found."""
        self.found[name] = (state, sanitize(detail, _MAX_DETAIL), sanitize(advice, 600))

    def add_error(self, name: str, state: State, error: CustodyError) -> None:
        """Note the error that a check ended with."""
        self.add(name, state, sanitize(error.reason, 600), error.advice or "")

    @property
    def failed(self) -> bool:
        """Whether a check failed."""
        return any(state == "failed" for state, _, _ in self.found.values())

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        rows = [(name, *self.found.get(name, ("not checked", "", ""))) for name in CHECKS]
        return {
            "ok": not self.failed,
            "checks": [
                {"check": name, "state": state, "detail": detail, "advice": advice}
                for name, state, detail, advice in rows
            ],
        }


def check(args: Namespace, output: Output) -> int:
    """
    Try a connection step by step: whether its settings can be used, the service can be reached,
    TLS, the credentials, who the user is, which roles the user lacks and what for, the health
    listing, what is pinned to verify signatures with and whether the service's rules are signed so,
    what can be known of the service's version, and whether the clocks agree. It changes nothing.

    Exit codes: 0 nothing failed (something may be unknown), 1 something failed.

    JSON: {"ok", "checks": [{"check", "state", "detail", "advice"}]}, always all of settings,
    reachable, tls, credentials, user, roles, health listing, signatures, version, clock; states
    are ok, failed, unknown, not checked.
    """
    report = Report()
    try:
        with open_client(args) as client:
            _Checker(client, report, args.roles or [DEFAULT_ROLE]).run()
    except CustodyError as error:
        if "settings" in report.found:
            raise
        report.add_error("settings", "failed", error)
    data = report.to_json()
    rows = [
        (each["check"], each["state"], " ".join(filter(None, (f"{each['detail'].rstrip('.')}.", each["advice"]))))
        if each["detail"]
        else (each["check"], each["state"], "")
        for each in data["checks"]
    ]
    output.data(data, [format_table(("CHECK", "STATE", "DETAIL"), rows, max_width=4000)])
    return ERROR if report.failed else NOTHING_TO_DO


class _Checker:
    """Makes the checks of a client."""

    def __init__(self, client: CustodyClient, report: Report, roles: Sequence[str]) -> None:
        self._client = client
        self._report = report
        self._roles = roles
        self._seen: list[Observation] = []
        client.observe(self._observe)

    def _observe(self, seen: Observation) -> None:
        if seen.status is not None:
            self._seen.append(seen)

    def run(self) -> None:
        settings = self._client.settings
        auth = self._client.auth
        self._report.add("settings", "ok", f"{settings.base_url}, {type(auth).__name__} from {auth.source}")
        user, user_error = _try(self._client.get_current_user)
        if self._is_away(user_error):
            return
        checks, health_error = _try(self._client.list_health_checks)
        if self._is_away(health_error):
            return
        if self._seen:
            self._report.add("reachable", "ok", f"the service responds (status {self._seen[-1].status})")
            self._check_tls()
            self._check_clock()
        self._check_credentials(user_error, health_error)
        self._check_user(user, user_error)
        self._check_health(checks, health_error)
        self._check_signatures()

    def _is_away(self, error: CustodyError | None) -> bool:
        """Note that there is no response at all; nothing else can be checked then."""
        if not isinstance(error, CustodyConnectionError) or self._seen:
            return False
        self._report.add_error("reachable", "failed", error)
        return True

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

    def _check_credentials(self, *errors: CustodyError | None) -> None:
        expires = getattr(self._client.auth, "expires", None)
        until = f"; the token expires at {expires:%Y-%m-%d %H:%M:%S} UTC" if expires else ""
        refused = next((each for each in errors if isinstance(each, CustodyAuthenticationError)), None)
        if refused is not None:
            self._report.add_error("credentials", "failed", refused)
        elif None in errors or any(each and each.from_service and each.status == 403 for each in errors):
            self._report.add("credentials", "ok", f"the service accepts them{until}")
        else:
            error = next(each for each in errors if each is not None)
            self._report.add_error("credentials", "unknown", error)

    def _check_user(self, user: WireUser | None, error: CustodyError | None) -> None:
        if user is None:
            if error is not None and not isinstance(error, CustodyAuthenticationError):
                self._report.add_error("user", "unknown", error)
                self._report.add("roles", "unknown", "the service does not say who the user is")
            return
        names = {"id": "id", "externalUserId": "external id", "tenantId": "tenant", "status": "status"}
        found = [(name, user.get(key)) for key, name in names.items()]
        known = [f"{name} {sanitize(value, 80)}" for name, value in found if value]
        self._report.add("user", "ok" if known else "unknown", ", ".join(known) or "the service does not say who it is")
        roles = user.get("roles")
        if roles is None:
            self._report.add("roles", "unknown", "the service does not say which roles the user has")
            return
        own = {ascii_lower(each) for each in roles}
        lacking = [each for each in self._roles if ascii_lower(each) not in own]
        detail = f"has {some_text(roles, 60) or 'none'}"
        if denied := _denied(own):
            detail += f"; not for this user: {denied}"
        advice = f"Give the user {' and '.join(lacking)}, or use another user." if lacking else ""
        self._report.add("roles", "failed" if lacking else "ok", detail, advice)

    def _check_health(self, checks: Sequence[Any] | None, error: CustodyError | None) -> None:
        unknown = "the service does not tell its version"
        if checks is not None:
            self._report.add("health listing", "ok", f"{count(len(checks), 'check')}; custody health judges them")
            self._report.add("version", "unknown", f"{unknown}; it is 3.14 or later, which have the health listing")
        elif error is not None and not isinstance(error, CustodyAuthenticationError):
            self._report.add_error("health listing", "failed", error)
            is_old = error.status == 404 and error.from_service
            older = "; it seems to be before 3.14, as there is no health listing" if is_old else ""
            self._report.add("version", "unknown", unknown + older)

    def _check_signatures(self) -> None:
        """Say what is pinned, and whether the rules in force are signed so."""
        pins = self._client.settings.pins
        if pins is None:
            self._report.add("signatures", "not checked", NOTHING_PINNED, how_to_pin(self._client.settings.source))
            return
        pinned = pins_text(pins)
        rules, error = _try(self._client.get_rules)
        if error is not None:
            what = "the service does not offer its rules" if error.not_offered else sanitize(error.reason, 600)
            self._report.add("signatures", "unknown", f"{pinned}. {what}", "Each address is verified with its own.")
            return
        verified, refusal = _try(lambda: self._client.verifier.verify_rules(rules))  # type: ignore[union-attr]
        if refusal is not None:
            advice = refusal.advice or "Nothing is verified under them: are the pins right? Do not take keys from it."
            self._report.add("signatures", "failed", f"{pinned}. {sanitize(refusal.reason, 600)}", advice)
            return
        detail = f"{pinned}. {describe_rules(pins, verified, rules)}"
        self._report.add("signatures", "ok", detail)


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


def _try(call: Callable[[], Any]) -> tuple[Any, CustodyError | None]:
    try:
        return call(), None
    except CustodyError as error:
        return None, error


def _signers(pins: VerificationPins, rules: WireRules) -> set[str]:
    """Return the fingerprints of all pinned keys that have signed rules: verifying them needs no more than enough."""
    from airflow_custody.client.whitelist.verification import VerificationPins, Verifier

    found = set()
    for key, fingerprint in zip(pins.superadmin_keys, pins.fingerprints, strict=True):
        _, refusal = _try(partial(Verifier(VerificationPins(key, 1)).verify_rules, rules))
        if refusal is None:
            found.add(fingerprint)
    return found


def _clock_difference(seen: Sequence[Observation]) -> timedelta | None:
    """Return by how much the service's clock is ahead, at least; None if no response says it."""
    found = []
    for each in seen:
        if each.date is not None:
            # The header has whole seconds: it was sent at some time within this one.
            early, late = each.date - each.received_at, each.date + timedelta(seconds=1) - each.received_at
            found.append(early if early > timedelta() else min(late, timedelta()))
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


def _denied(roles: set[str]) -> str:
    """Return in words for which operations a user with these roles, in lower case, lacks one."""
    by_role: dict[str, list[str]] = {}
    for operation in _operations():
        if missing := operation.missing_roles(roles):
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
            help=f"role that the user must have; may be repeated. Default: {DEFAULT_ROLE}",
        ),
        *CONNECTION_OPTIONS,
    ),
)
