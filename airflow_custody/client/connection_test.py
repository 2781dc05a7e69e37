"""The test of a client: its calls, and their findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from airflow_custody.client.errors import (
    CustodyAuthenticationError,
    CustodyConfigurationError,
    CustodyConnectionError,
    CustodyError,
    CustodyPermissionError,
    CustodyResponseError,
)
from airflow_custody.client.http.operation import missing_roles
from airflow_custody.client.text import ascii_lower, sanitize

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.health.models import HealthListing
    from airflow_custody.client.rules.operations import WireRules
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.verification.verifier import VerifiedRules

T = TypeVar("T")

State = Literal["ok", "failed", "unknown", "not checked"]

#: The role that every read needs.
DEFAULT_ROLE = "TPUser"
#: The roles that the operations need, and for what.
ROLES = {
    DEFAULT_ROLE: "everything",
    "WhitelistedAddressCreator": "creating whitelisting requests",
    "WhitelistedAddressApprover": "signing and rejecting them",
    "Admin": "changing webhooks",
    "Admin or AdminReadOnly": "reading webhooks and their calls",
}
# Status words of a user who may work. No complete list of status words is published.
_MAY_WORK = ("active", "enabled")


@dataclass(frozen=True)
class Finding:
    """
    The result of one part of the test.

    :param state: the state; ``unknown``: the service itself says that it does not offer it, and it was not asked for.
    :param error: the reason why it is not ok. Default None.
    """

    state: State = "not checked"
    error: CustodyError | None = None

    @classmethod
    def of(cls, error: CustodyError | None) -> Finding:
        """
        Return the finding of a call to an operation that the service need not offer.

        :param error: its error; None: it succeeded.
        """
        if error is None:
            return cls("ok")
        return cls("unknown" if error.not_offered and error.from_service else "failed", error)


@dataclass
class ConnectionTest:
    """
    The findings of the test of a client.

    :param reachable: whether it is the service that responds; it fails if another program does.
    :param credentials: whether the service accepts the credentials.
    :param health: the health listing.
    :param who: the identity of the user.
    :param roles: whether the user has the required roles.
    :param signatures: the rules in force, if keys are pinned.
    :param checks: the health checks that are listed; None: the listing could not be read.
    :param user: the user; None: not known.
    :param rules: the rules in force, as they came; None: not known.
    :param verified: the verified rules; None: their signatures were not verified.
    """

    reachable: Finding = Finding("ok")
    credentials: Finding = Finding()
    health: Finding = Finding()
    who: Finding = Finding()
    roles: Finding = Finding()
    signatures: Finding = Finding()
    checks: HealthListing | None = None
    user: WireUser | None = None
    rules: WireRules | None = None
    verified: VerifiedRules | None = None

    @property
    def failures(self) -> list[CustodyError]:
        """The errors, in the order of the calls; none: the client can be used."""
        findings = (self.reachable, self.credentials, self.health, self.who, self.roles, self.signatures)
        errors = [each.error for each in findings if each.state == "failed" and each.error is not None]
        return list({id(each): each for each in errors}.values())


def check_client(client: CustodyClient, roles: Iterable[str] = ()) -> ConnectionTest:
    """
    Make authenticated calls that change nothing, and return their findings.

    :param client: the client.
    :param roles: the roles that its user must have; ``Admin or AdminReadOnly`` is satisfied by either. If given, a
        service that does not show the user's roles fails the test. Default: :data:`DEFAULT_ROLE`, which is judged only
        if the service shows the roles, or responds with a 403 of its own.
    :return: the findings. If the service cannot be reached or rejects the credentials, no further calls are made. If
        another program responds, there are no others.
    """
    found = ConnectionTest()
    found.checks, error = attempt(client.list_health_checks)
    # Every service offers it from version 3.14 on, and every health gate needs it.
    found.health = Finding("failed", error) if error else Finding("ok")
    if isinstance(error, CustodyAuthenticationError):
        found.credentials, found.health = Finding("failed", error), Finding()
        return found
    if isinstance(error, (CustodyConnectionError, CustodyConfigurationError)):
        return found
    found.user, user_error = attempt(client.get_current_user)
    if isinstance(user_error, CustodyAuthenticationError):
        found.credentials = Finding("failed", user_error)
        return found
    if found.user is not None and user_name(found.user) is None and found.user.get("roles") is None:
        # Any server could have sent the rest.
        found.user, user_error = (
            None,
            CustodyResponseError(
                "the service does not say who the user is: the response has no id, no externalUserId and no roles",
                advice="Check that the base URL is the service's own; if it is, ask its administrator.",
            ),
        )
    found.who = Finding.of(user_error)
    _check_user(found, client, list(roles))
    _check_rules(found, client)
    shows_something = found.checks is not None and not found.checks.is_blank
    cause = error or user_error
    if shows_something or found.user is not None or found.verified is not None:
        found.credentials = Finding("ok")
    elif all(map(_is_of_another_program, filter(None, (error, user_error)))):
        return ConnectionTest(reachable=Finding("failed", cause))
    elif found.failures or cause is None:
        # Another failure speaks for itself. A 403 may be about the credentials, whatever it says.
        found.credentials = Finding("unknown", cause)
    else:
        found.credentials = Finding("failed", _not_proved(cause))
    return found


def _check_user(found: ConnectionTest, client: CustodyClient, asked: list[str]) -> None:
    """Check the status of the user, and its roles."""
    error, user = found.who.error, found.user
    if user is None and found.who.state != "unknown":
        return
    shown = user.get("roles") if user else None
    if isinstance(error, CustodyPermissionError):
        # Every read takes this role, and this one takes no other.
        found.roles = Finding("failed", error)
    elif shown is None:
        found.roles = Finding("failed", _not_shown(client, error)) if asked else Finding("unknown")
    else:
        lacking = missing_roles(asked or [DEFAULT_ROLE], shown)
        found.roles = Finding("failed", _lacks(client, lacking)) if lacking else Finding("ok")
    if user and (status := user.get("status")) and not may_work(status):
        found.who = Finding("unknown")


def _check_rules(found: ConnectionTest, client: CustodyClient) -> None:
    """Check whether the rules in force are signed by the pinned keys."""
    verifier = client.verifier
    if verifier is None:
        return
    rules, error = attempt(client.get_rules)
    found.rules, found.signatures = rules, Finding.of(error)
    if rules is not None:
        found.verified, error = attempt(lambda: verifier.verify_rules(rules))
        found.signatures = Finding.of(error)


def user_name(user: WireUser) -> str | None:
    """
    Return the id of a user, or else the external id; None if neither has a visible character.

    :param user: the user.
    """
    return next((each for each in (user.get("id"), user.get("externalUserId")) if each and sanitize(each)), None)


def may_work(status: str) -> bool:
    """
    Tell whether a user's status is known to mean that the user may work.

    :param status: the status.
    """
    return ascii_lower(status) in _MAY_WORK


def describe_roles(roles: Collection[str], redact: Callable[[str, int], str]) -> str:
    """
    Name a user's roles, and those that operations need and the user lacks, with what they are for.

    :param roles: the roles.
    :param redact: removes secrets from a text of the service.
    """
    words = f"the roles: {redact(', '.join(roles), 1000) or 'none'}"
    missing = [f"{role} ({ROLES[role]})" for role in missing_roles(ROLES, roles)]
    return f"{words}. Missing: {', '.join(missing)}" if missing else words


def attempt(call: Callable[[], T]) -> tuple[T | None, CustodyError | None]:
    """
    Make a call, and return its value or its error.

    :param call: the call.
    """
    try:
        return call(), None
    except CustodyError as error:
        return None, error


def _is_of_another_program(error: CustodyError) -> bool:
    """Tell whether what responded is not the service; with a 403, it may be a gateway before the service."""
    return error.code == "response-unusable" and not error.retryable and error.status != 403


def _lacks(client: CustodyClient, roles: list[str]) -> CustodyError:
    named = " and ".join(client.auth.redact(each, 60) for each in roles)
    return CustodyPermissionError(
        f"{client.settings.user_text.replace('The', 'the', 1)} lacks {named}",
        advice=f"Give the user {named}, or use another user.",
        required_roles=roles,
        code="role-missing",
    )


def _not_proved(cause: CustodyError) -> CustodyError:
    return CustodyResponseError(
        "nothing shows that the service accepts the credentials: the health listing is {}, which any server may send, "
        f"and {cause.reason}",
        advice="Check that the base URL is the service's own; if it is, ask its administrator for health checks, or to "
        "let this user read GET /users/me.",
        code=cause.code,
    )


def _not_shown(client: CustodyClient, error: CustodyError | None = None) -> CustodyError:
    why = "the service does not say which roles the user has" if error is None else error.reason
    return CustodyResponseError(
        f"whether the user has the role that is asked for is not known: {why}",
        advice="Ask an administrator of the service which roles the user has; without --role this is no failure.",
        code="role-missing",
    )
