"""The test of a client: the calls that it makes, and what each of them shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    from airflow_custody.client.rules.models import WireRules
    from airflow_custody.client.users.models import WireUser
    from airflow_custody.client.verification.verifier import VerifiedRules

T = TypeVar("T")

State = Literal["ok", "failed", "unknown", "not checked"]

#: The role that every read takes.
DEFAULT_ROLE = "TPUser"
#: Words for the status of a user who may work. Which others there are is not published.
_MAY_WORK = ("active", "enabled")


@dataclass(frozen=True)
class Finding:
    """
    The result of one part of the test.

    :param state: the state; ``unknown`` is what the service itself says that it does not offer, and nobody asked for.
    :param error: why it is not ok. Default None.
    """

    state: State = "not checked"
    error: CustodyError | None = None

    @classmethod
    def of(cls, error: CustodyError | None) -> Finding:
        """
        Judge how a call ended that the service need not offer.

        :param error: its error; None: it succeeded.
        """
        if error is None:
            return cls("ok")
        return cls("unknown" if error.not_offered and error.from_service else "failed", error)


@dataclass
class ConnectionTest:
    """
    The findings of the test of a client.

    :param credentials: whether the service accepts the credentials.
    :param health: the health listing.
    :param who: who the user is.
    :param roles: whether the user has the roles that are asked for.
    :param signatures: the rules in force, if keys are pinned.
    :param checks: the health checks that are listed; None: the listing could not be read.
    :param user: the user; None: not known.
    :param rules: the rules in force, as they came; None: not known.
    :param verified: what is proved of them; None: nothing.
    """

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
        """Why it fails, in the order of the calls; none: the client can be used."""
        findings = (self.credentials, self.health, self.who, self.roles, self.signatures)
        errors = [each.error for each in findings if each.state == "failed" and each.error is not None]
        return list({id(each): each for each in errors}.values())


def check_client(client: CustodyClient, roles: Iterable[str] = ()) -> ConnectionTest:
    """
    Make authenticated calls that change nothing, and return what they show.

    :param client: the client.
    :param roles: the roles that its user must have; ``Admin or AdminReadOnly`` is one that either of these will do
        for. What shows no roles fails then. Default: :data:`DEFAULT_ROLE`, if
        the service says which roles the user has, or by a 403 of its own that it lacks the one to ask.
    :return: what they show. Once the service cannot be reached, or refuses the credentials, nothing else is asked.
    """
    found = ConnectionTest()
    found.checks, error = attempt(client.list_health_checks)
    # Every service has it from version 3.14 on, and every health gate needs it.
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
        # Any server may send the rest.
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
    elif found.failures or cause is None:
        # Another failure says it all. A 403 may be about the credentials, whatever it says.
        found.credentials = Finding("unknown", cause)
    else:
        found.credentials = Finding("failed", _not_proved(cause))
    return found


def _check_user(found: ConnectionTest, client: CustodyClient, asked: list[str]) -> None:
    """Judge the status of the user, and its roles."""
    if found.user is None:
        refusal = found.who.error
        if isinstance(refusal, CustodyPermissionError) and found.who.state == "unknown":
            # Every read takes this role, and this one takes no other.
            found.roles = Finding("failed", refusal)
        elif asked and found.who.state == "unknown" and refusal is not None:
            found.roles = Finding("failed", _not_shown(client, refusal))
        elif found.who.state == "unknown":
            found.roles = Finding("unknown")
        return
    status = found.user.get("status")
    if status and not may_work(status):
        found.who = Finding("unknown")
    shown = found.user.get("roles")
    if shown is None:
        found.roles = Finding("failed", _not_shown(client)) if asked else Finding("unknown")
        return
    lacking = missing_roles(asked or [DEFAULT_ROLE], shown)
    found.roles = Finding("failed", _lacks(client, lacking)) if lacking else Finding("ok")


def _check_rules(found: ConnectionTest, client: CustodyClient) -> None:
    """Judge whether the rules in force are signed as pinned."""
    verifier = client.verifier
    if verifier is None:
        return
    rules, error = attempt(client.get_rules)
    found.rules, found.signatures = rules, Finding.of(error)
    if rules is not None:
        found.verified, refusal = attempt(lambda: verifier.verify_rules(rules))
        found.signatures = Finding.of(refusal)


def user_name(user: WireUser) -> str | None:
    """
    Return the id of a user, or else the external one; None if neither has anything that can be seen.

    :param user: the user.
    """
    return next((each for each in (user.get("id"), user.get("externalUserId")) if each and sanitize(each)), None)


def may_work(status: str) -> bool:
    """
    Tell whether a word for the status of a user is known to stand for one who may work.

    :param status: the word.
    """
    return ascii_lower(status) in _MAY_WORK


def attempt(call: Callable[[], T]) -> tuple[T | None, CustodyError | None]:
    """
    Make a call, and return its value or its error.

    :param call: the call.
    """
    try:
        return call(), None
    except CustodyError as error:
        return None, error


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


def _not_shown(client: CustodyClient, refusal: CustodyError | None = None) -> CustodyError:
    why = "the service does not say which roles the user has" if refusal is None else refusal.reason
    return CustodyResponseError(
        f"whether the user has the role that is asked for is not known: {why}",
        advice="Ask an administrator of the service which roles the user has; without --role this is no failure.",
        code="role-missing",
    )
