"""
The checks of a connection, for ``custody check`` and the button *Test Connection*.

:func:`check_connection` first makes all calls, and then evaluates their results. Each check is one function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from airflow_custody.client.describe import NOTHING_PINNED, describe_pins, describe_rules, how_to_pin
from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyPermissionError,
    CustodyResponseError,
)
from airflow_custody.client.http.operation import missing_roles
from airflow_custody.client.text import ascii_lower, count, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.health.models import HealthListing
    from airflow_custody.client.http.responses import Observation
    from airflow_custody.client.rules.operations import WireRules
    from airflow_custody.client.tenant.models import Currency, TenantConfig
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.verification.verifier import VerifiedRules

T = TypeVar("T")

CheckState = Literal["ok", "failed", "unknown", "not checked"]

#: The role that every read needs.
DEFAULT_ROLE = "TPUser"
#: The roles that the operations need, and their purposes.
ROLES = {
    DEFAULT_ROLE: "everything",
    "WhitelistedAddressCreator": "creating whitelisting requests",
    "WhitelistedAddressApprover": "signing and rejecting whitelisting requests",
    "Admin": "changing webhooks",
    "Admin or AdminReadOnly": "reading webhooks and their calls",
}
_APPROVER = "WhitelistedAddressApprover"
# Status words that allow a user to work. No complete list of status words is published.
_MAY_WORK = ("active", "enabled")
# Maximum difference between two clocks. Clocks that are synchronized by NTP differ by less.
_MAX_CLOCK_DIFFERENCE = timedelta(seconds=60)
# Maximum length of a detail in characters. It is never reached, because each text from the service is truncated first.
_MAX_DETAIL = 3000
_UI = CustodyResponseError(
    "the base URL leads to the service's web pages, because it ends in /ui",
    advice="Remove /ui from the base URL.",
    code="response-unusable",
)


@dataclass(frozen=True)
class Check:
    """
    The result of one check.

    :param state: the state. ``unknown``: the check is neither ok nor a failure, for example because the service does
        not offer the operation.
    :param detail: the finding; empty: there is nothing to report.
    :param advice: advice about the finding. Default empty.
    :param error: the reason why the check is not ok. Default None.
    """

    state: CheckState = "not checked"
    detail: str = ""
    advice: str = ""
    error: CustodyError | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", sanitize(self.detail, _MAX_DETAIL))
        object.__setattr__(self, "advice", sanitize(self.advice, 600))

    @property
    def code(self) -> str:
        """The code of its error; empty without an error."""
        return self.error.code if self.error else ""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """
    The result of a call.

    :param value: the call's value; None: it has returned none.
    :param error: the call's error; None: it has raised none. If the call was not made, both are None.
    """

    value: T | None = None
    error: CustodyError | None = None


@dataclass(frozen=True)
class _Facts:
    """
    The results of the calls.

    No further calls are made once the service cannot be reached, or rejects the credentials.

    :param client: the client.
    :param roles: the roles that its user must have.
    :param responses: the observation of each response.
    :param unreachable: the error of the first call, if there was no response. Default None.
    :param sign_in_error: the error with which the service rejects the credentials. Default None.
    :param other_program: the error that proves that another program responds. All results except ``responses`` are then
        left out. Default None.
    :param listing: the health listing.
    :param user: the user.
    :param rules: the rules in force; they are read only if keys are pinned.
    :param verified: the verified rules, or the error because of which they are unknown or not verified.
    :param tenant: the tenant's configuration; neither a value nor an error if the service does not offer it.
    :param signer: the user, as compared with the rules in force by the service. It is only read for a user with the
        approver's role; neither a value nor an error if the service does not offer the comparison.
    :param currencies: the currencies; neither a value nor an error if the service does not offer them.
    """

    client: CustodyClient
    roles: list[str]
    responses: list[Observation]
    unreachable: CustodyError | None = None
    sign_in_error: CustodyError | None = None
    other_program: CustodyError | None = None
    listing: Answer[HealthListing] = Answer()
    user: Answer[WireUser] = Answer()
    rules: Answer[WireRules] = Answer()
    verified: Answer[VerifiedRules] = Answer()
    tenant: Answer[TenantConfig] = Answer()
    signer: Answer[WireUser] = Answer()
    currencies: Answer[list[Currency]] = Answer()

    @property
    def is_proved(self) -> bool:
        """
        Whether a response proves that the service accepts the credentials.

        A health listing that is not empty, the user, or verified rules prove this. Any other response may come from
        another server.
        """
        listing = self.listing.value
        has_listing = listing is not None and not listing.is_blank
        return has_listing or self.user.value is not None or self.verified.value is not None

    def not_ok(self, error: CustodyError, state: CheckState = "failed", detail: str = "", advice: str = "") -> Check:
        """
        Return the result of a check that is not ok.

        ``detail`` and ``advice`` default to the error's own texts.
        """
        return Check(state, detail or self.client.auth.redact(error.reason, 600), advice or error.advice or "", error)


@dataclass(frozen=True)
class ConnectionReport:
    """
    The checks of a connection.

    :param checks: the results by the checks' names, in the order of :data:`CHECKS`. After ``signatures``, there may be
        three further checks: ``tenant``, ``signer`` (only for a user with the approver's role) and ``chains``. Each of
        these is only made if the service offers the operations that it needs.
    :param listing: the health listing; None: it could not be read.
    :param user: the user; None: the user is not known.
    """

    checks: dict[str, Check]
    listing: HealthListing | None
    user: WireUser | None

    @property
    def failures(self) -> list[CustodyError]:
        """
        The errors of failed checks, in the order of the calls. If there are no errors, the client can be used.
        """
        checks = [self.checks[name] for name in _FAILURES if name in self.checks]
        errors = [each.error for each in checks if each.state == "failed" and each.error is not None]
        return list({id(each): each for each in errors}.values())


def check_connection(client: CustodyClient, roles: Iterable[str] = ()) -> ConnectionReport:
    """
    Make read-only authenticated calls, and return the results of the checks.

    :param client: the client.
    :param roles: the roles that the client's user must have; ``Admin or AdminReadOnly`` is satisfied by either. If
        roles are passed, and the service does not return the user's roles, the check fails. Default:
        :data:`DEFAULT_ROLE`. It is checked only if the service returns the roles, or if the service itself (not a
        gateway) responds with a 403.
    """
    facts = _read_facts(client, list(roles))
    results = {name: check(facts) for name, check in _CHECKS.items()}
    found = {name: each for name, each in results.items() if each is not None}
    return ConnectionReport(found, facts.listing.value, facts.user.value)


# --- the calls -----------------------------------------------------------------------------------------------


def _read_facts(client: CustodyClient, roles: list[str]) -> _Facts:
    responses: list[Observation] = []
    client.observe(lambda each: responses.append(each) if each.status is not None else None)
    facts = _Facts(client, roles, responses)
    listing = attempt(client.list_health_checks)
    if isinstance(listing.error, CustodyAuthenticationError):
        return replace(facts, sign_in_error=listing.error)
    if listing.error is not None and not responses:
        return replace(facts, unreachable=listing.error)
    facts = replace(facts, listing=listing)
    if isinstance(listing.error, (CustodyConnectionError, CustodyConfigurationError)):
        return facts
    user = attempt(lambda: _read_user(client))
    if isinstance(user.error, CustodyAuthenticationError):
        return replace(facts, sign_in_error=user.error)
    facts = _with_rules(replace(facts, user=user))
    if facts.is_proved:
        return _with_optional(facts)
    errors = [each for each in (listing.error, user.error) if each is not None]
    if client.settings.base_url.endswith("/ui") and all(map(_is_of_pages, errors)):
        return _Facts(client, roles, responses, other_program=_UI)
    if all(map(_is_of_another_program, errors)):
        return _Facts(client, roles, responses, other_program=errors[0])
    return facts


def _read_user(client: CustodyClient) -> WireUser:
    user = client.get_current_user()
    if user_name(user) is None and user.get("roles") is None:
        # Require an id or roles, because any server could have sent the other fields.
        raise CustodyResponseError(
            "the response does not identify the user: it has no id, no externalUserId and no roles",
            advice="Check the base URL. If it is the service's own, ask its administrator.",
        )
    return user


def _with_rules(facts: _Facts) -> _Facts:
    """Read and verify the rules in force, if keys are pinned."""
    verifier = facts.client.verifier
    if verifier is None:
        return facts
    rules = attempt(facts.client.get_rules)
    found = rules.value
    if found is None:
        return replace(facts, verified=Answer(error=rules.error))
    return replace(facts, rules=rules, verified=attempt(lambda: verifier.verify_rules(found)))


def _with_optional(facts: _Facts) -> _Facts:
    """Make the optional calls. If the service does not offer one, its result has neither a value nor an error."""
    client, user = facts.client, facts.user.value
    signer: Answer[WireUser] = Answer()
    # Keep only the responses so far, because the checks of network, TLS and clock must not depend on optional calls.
    responses = [*facts.responses]
    tenant = _attempt_optional(client.get_tenant_config)
    if user is not None and not missing_roles([_APPROVER], user.get("roles") or ()):
        # Use a separate call, so that a service that rejects the parameter still returns the user in the other call.
        signer = _attempt_optional(lambda: client.get_current_user(check_enforced=True))
    currencies = _attempt_optional(client.list_currencies)
    return replace(facts, responses=responses, tenant=tenant, signer=signer, currencies=currencies)


def _attempt_optional(call: Callable[[], T]) -> Answer[T]:
    answer = attempt(call)
    return Answer() if answer.error is not None and answer.error.not_offered_by_service else answer


# --- the checks ----------------------------------------------------------------------------------------------


def _check_settings(facts: _Facts) -> Check:
    auth = facts.client.auth
    return Check("ok", f"{facts.client.settings.base_url}, {type(auth).__name__} from {auth.source}")


def _check_reachable(facts: _Facts) -> Check:
    if facts.unreachable:
        return facts.not_ok(facts.unreachable)
    if facts.other_program is _UI:
        return facts.not_ok(_UI)
    if facts.other_program:
        why = f"another program responds, not the custody service: {facts.other_program.reason}"
        return facts.not_ok(facts.other_program, detail=facts.client.auth.redact(why, 800))
    if not facts.responses:
        return Check()
    # Say "a server" if the response may come from another program, because the base URL may be wrong.
    who = "the service" if facts.is_proved else "a server"
    return Check("ok", f"{who} responds (status {facts.responses[-1].status})")


def _check_tls(facts: _Facts) -> Check:
    if not facts.responses:
        return Check()
    settings, seen = facts.client.settings, facts.responses[-1]
    if settings.base_url.startswith("http:"):
        return Check("unknown", "plain HTTP: the token can be read in transit", "Use https://.")
    if settings.verify is False:
        advice = "Set 'verify' to the path of the CA bundle instead of false."
        return Check("unknown", f"{seen.tls_version}; the certificate is not verified", advice)
    ends = seen.certificate_ends
    end = f"expires on {ends:%Y-%m-%d %H:%M} UTC" if ends else "its expiry date is not known"
    return Check("ok", f"{seen.tls_version or 'TLS'}; the certificate is accepted, and {end}")


def _check_credentials(facts: _Facts) -> Check:
    if facts.sign_in_error:
        return facts.not_ok(facts.sign_in_error)
    if facts.is_proved:
        expires = getattr(facts.client.auth, "expires", None)
        until = f"; the token expires at {expires:%Y-%m-%d %H:%M:%S} UTC" if expires else ""
        return Check("ok", f"the service accepts the credentials{until}")
    if facts.user.error is None:
        return Check()
    cause = facts.listing.error or facts.user.error
    others = (_check_health, _check_user, _check_roles, _check_signatures)
    if any(check(facts).state == "failed" for check in others):
        # Another check reports the failure. Whether the credentials are accepted is unknown then, because a 403 may be
        # about the credentials, whatever its text.
        return facts.not_ok(cause, "unknown")
    return facts.not_ok(_not_proved(cause))


def _check_user(facts: _Facts) -> Check:
    if facts.user.error:
        # A missing role is reported by the check of the roles, so it is not a failure here.
        state = "unknown" if facts.user.error.is_missing_role else _state_of(facts.user.error)
        return facts.not_ok(facts.user.error, state)
    if facts.user.value is None:
        return Check()
    # Truncate each value separately, so that a long one does not crowd out the others.
    values = {name: value for name, value in facts.user.value.items() if name != "roles" and value}
    detail = ", ".join(f"{name} {facts.client.auth.redact(str(value), 80)}" for name, value in values.items())
    status = facts.user.value.get("status")
    if status and not may_work(status):
        return Check("unknown", detail, "The meaning of this status is not published. Check that the user is active.")
    return Check("ok", detail)


def _check_roles(facts: _Facts) -> Check:
    error, user = facts.user.error, facts.user.value
    if error is not None and error.is_missing_role:
        return facts.not_ok(error)
    if user is None and (error is None or _state_of(error) != "unknown"):
        return Check()
    roles = user.get("roles") if user else None
    if roles is None:
        if facts.roles:
            return facts.not_ok(_not_shown(error))
        return Check("unknown", "the service does not return the user's roles")
    detail = f"has {describe_roles(roles, facts.client.auth.redact)}"
    if lacking := missing_roles(facts.roles or [DEFAULT_ROLE], roles):
        return facts.not_ok(_lacks(facts.client, lacking), detail=detail)
    return Check("ok", detail)


def _check_health(facts: _Facts) -> Check:
    # Any error is a failure, because every service from version 3.14 on offers the listing, and health checks in DAGs
    # need it.
    if facts.listing.error:
        return facts.not_ok(facts.listing.error)
    if facts.listing.value is None:
        return Check()
    return Check("ok", f"{count(len(facts.listing.value), 'check')}; run 'custody health' to evaluate them")


def _check_signatures(facts: _Facts) -> Check:
    if facts.unreachable or facts.other_program:
        return Check()
    settings, error = facts.client.settings, facts.verified.error
    if settings.pins is None:
        return Check("not checked", NOTHING_PINNED, how_to_pin(settings.source))
    pins = describe_pins(settings.pins)
    if facts.rules.value is not None and facts.verified.value is not None:
        return Check("ok", f"{pins}. {describe_rules(settings.pins, facts.verified.value, facts.rules.value)}")
    if error is None:
        return Check()
    if _state_of(error) == "unknown":
        detail = "the service does not offer its rules"
        advice = "Each address is verified with the rules that it carries."
        return facts.not_ok(error, "unknown", f"{pins}. {detail}", advice)
    are_read = facts.rules.value is not None
    advice = (
        "No address is verified under these rules. Check the pins; never take keys from the service."
        if are_read
        else ""
    )
    return facts.not_ok(error, detail=f"{pins}. {facts.client.auth.redact(error.reason, 600)}", advice=advice)


def _check_tenant(facts: _Facts) -> Check | None:
    """Compare the tenant's configuration with the user's tenant and with the pins."""
    if facts.tenant.error:
        return facts.not_ok(facts.tenant.error, "unknown")
    if facts.tenant.value is None:
        return None
    redact, tenant, pins = facts.client.auth.redact, facts.tenant.value, facts.client.settings.pins
    detail = f"tenant {redact(tenant.tenant_id, 80)}"
    detail += f", version {redact(tenant.version, 80)}" if tenant.version else ""
    of_user = facts.user.value.get("tenantId") if facts.user.value else None
    if of_user and of_user != tenant.tenant_id:
        detail += f", but the user belongs to tenant {redact(of_user, 80)}"
        two = CustodyResponseError("the service names two tenants", code="response-unusable")
        return facts.not_ok(two, detail=detail, advice="Ask the service's administrator.")
    if pins is None:
        # Do not show the service's minimum, because users would copy it into the pins.
        return Check("ok", detail)
    if tenant.superadmin_minimum is None:
        detail += "; the service does not report how many super-administrators must sign"
        return Check("unknown", detail)
    if tenant.superadmin_minimum != pins.superadmin_minimum:
        found = f"the service requires {count(tenant.superadmin_minimum, 'super-administrator')}"
        detail += f"; {found}, but superadmin_minimum is {pins.superadmin_minimum}"
        advice = "Ask the people who hold the keys which number is right. Never copy it from the service."
        error = CustodyConfigurationError("superadmin_minimum differs from the tenant's", setting="superadmin_minimum")
        return facts.not_ok(error, detail=detail, advice=advice)
    return Check("ok", f"{detail}; it requires as many super-administrators as superadmin_minimum")


def _check_signer(facts: _Facts) -> Check | None:
    """Check whether the user and the user's key are in the rules in force, according to the service."""
    if facts.signer.error:
        return facts.not_ok(facts.signer.error, "unknown")
    user = facts.signer.value or {}
    known = {"user": user.get("enforcedInRules"), "public key": user.get("publicKeyEnforcedInRules")}
    words = {name: "in" if value else "not in" for name, value in known.items() if value is not None}
    if not words:
        return None
    detail = " and ".join(f"the {name} is {word} the rules in force" for name, word in words.items())
    if set(words.values()) == {"in"}:
        return Check("ok", detail)
    advice = "This user's signatures do not count until the super-administrators sign rules with this user and key."
    # Some users with this role only reject requests. With --role, the user must be able to sign.
    if not missing_roles([_APPROVER], facts.roles):
        error = CustodyPermissionError(detail, code="signing-failed")
        return facts.not_ok(error, detail=detail, advice=advice)
    return Check("unknown", detail, advice)


def _check_chains(facts: _Facts) -> Check | None:
    """List the active chains."""
    if facts.currencies.error:
        return facts.not_ok(facts.currencies.error, "unknown")
    if facts.currencies.value is None:
        return None
    chains = [each for each in facts.currencies.value if each.is_chain]
    active = [
        facts.client.auth.redact(f"{each.blockchain or each.symbol}{each.network and f' ({each.network})'}", 60)
        for each in chains
        if each.enabled
    ]
    detail = f"active: {', '.join(dict.fromkeys(active)) or 'none'}"
    if len(active) < len(chains):
        detail += f"; not active: {len(chains) - len(active)}"
    return Check("ok" if active else "unknown", detail)


def _check_clock(facts: _Facts) -> Check:
    if not facts.responses:
        return Check()
    seen = facts.responses[-1]
    if seen.date is None:
        return Check("unknown", "the service's responses have no date, so the clocks cannot be compared")
    difference = seen.date - seen.received_at
    seconds = round(difference.total_seconds())
    detail = f"this machine's clock is {abs(seconds)} s {'behind' if seconds > 0 else 'ahead of'} the service's"
    if abs(difference) <= _MAX_CLOCK_DIFFERENCE:
        return Check("ok", detail)
    return Check(
        "failed", detail, "Use NTP for both clocks: API keys sign the time, and tokens and health checks expire."
    )


_CHECKS: dict[str, Callable[[_Facts], Check | None]] = {
    "settings": _check_settings,
    "reachable": _check_reachable,
    "tls": _check_tls,
    "credentials": _check_credentials,
    "user": _check_user,
    "roles": _check_roles,
    "health listing": _check_health,
    "signatures": _check_signatures,
    "tenant": _check_tenant,
    "signer": _check_signer,
    "chains": _check_chains,
    "clock": _check_clock,
}
#: The names of the checks that always have a result, in their order.
CHECKS = tuple(name for name in _CHECKS if name not in ("tenant", "signer", "chains"))
# The checks whose failure means that the client cannot be used, in the order of the calls.
_FAILURES = ("reachable", "credentials", "health listing", "user", "roles", "signatures", "tenant", "signer")


# --- helpers -------------------------------------------------------------------------------------------------


def _state_of(error: CustodyError) -> CheckState:
    """
    Return the state of a check whose call failed: ``unknown`` if the service itself does not offer the operation.
    """
    return "unknown" if error.not_offered_by_service else "failed"


def user_name(user: WireUser) -> str | None:
    """
    Return a user's id, or else the external id; None if neither has a visible character.

    :param user: the user.
    """
    return next((each for each in (user.get("id"), user.get("externalUserId")) if each and sanitize(each)), None)


def may_work(status: str) -> bool:
    """
    Tell whether a user's status is known to allow work.

    :param status: the status.
    """
    return ascii_lower(status) in _MAY_WORK


def describe_roles(roles: Collection[str], redact: Callable[[str, int], str]) -> str:
    """
    Return a text with a user's roles, and the roles that the user lacks, each with its purpose.

    :param roles: the roles.
    :param redact: removes secrets from a text of the service.
    """
    words = f"the roles: {redact(', '.join(roles), 1000) or 'none'}"
    missing = [f"{role} ({ROLES[role]})" for role in missing_roles(ROLES, roles)]
    return f"{words}. Missing: {', '.join(missing)}" if missing else words


def attempt(call: Callable[[], T]) -> Answer[T]:
    """
    Make a call, and return its value or its error.

    :param call: the call.
    """
    try:
        return Answer(call())
    except CustodyError as error:
        return Answer(error=error)


def _is_of_another_program(error: CustodyError) -> bool:
    """
    Tell whether an error proves that a program other than the service responded.

    A 403 does not prove this, because it may come from a gateway in front of the service.
    """
    return error.code == "response-unusable" and not error.retryable and error.status != 403


def _is_of_pages(error: CustodyError) -> bool:
    """Tell whether an error may be due to a base URL that leads to the service's web pages."""
    return error.status == 404 or _is_of_another_program(error)


def _lacks(client: CustodyClient, roles: list[str]) -> CustodyError:
    named = " and ".join(client.auth.redact(each, 60) for each in roles)
    return CustodyPermissionError(
        f"{client.settings.user_text.replace('The', 'the', 1)} lacks {named}",
        advice=f"Grant the user {named}, or use another user.",
        code="role-missing",
    )


def _not_proved(cause: CustodyError) -> CustodyError:
    return CustodyResponseError(
        "no response proves that the service accepts the credentials: the health listing is {}, which any server may "
        f"send, and {cause.reason}",
        advice="Check the base URL. If it is the service's own, ask its administrator for health checks, or to let "
        "this user read GET /users/me.",
        code=cause.code,
    )


def _not_shown(error: CustodyError | None) -> CustodyError:
    why = "the service does not return the user's roles" if error is None else error.reason
    return CustodyResponseError(
        f"it is unknown whether the user has the required roles: {why}",
        advice="Ask an administrator of the service for the user's roles. Without --role, this check does not fail.",
        code="role-missing",
    )
