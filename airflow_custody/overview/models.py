"""The models of an overview: plain values without markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from airflow_custody.client.approvals.operations import PendingApprovals
    from airflow_custody.client.health.verdict import HealthVerdict
    from airflow_custody.client.verification.trust import ReportedState, TrustState
    from airflow_custody.client.whitelist.request import RequestState

T = TypeVar("T")

#: The words for the states of requests, for people.
STATES: dict[RequestState, str] = {
    "effective": "in effect",
    "pending": "pending approval",
    "rejected": "rejected",
    "unknown": "state unknown",
    "unverified": "not verified",
    "unreadable": "not readable",
    "missing": "not listed",
}
#: The words for the results of verifying requests, for people.
TRUSTS: dict[TrustState, str] = {
    "verified": "verified",
    "unsigned": "no signatures yet",
    "unverified": "not verified",
    "not checked": "not checked",
}


@dataclass(frozen=True)
class Section(Generic[T]):
    """
    One part of an overview, read independently of the other parts.

    :param value: the section's contents; None if the section could not be read.
    :param problem: why the section could not be read, and what to do; empty if it was read.
    :param not_offered: whether the service itself responded that it does not offer this section. For some sections,
        this is not an error; see :func:`~airflow_custody.overview.verdict.judge_overview`.
    :param role_missing: whether the service itself responded that the user lacks a role for this section. For some
        sections, this is not an error either.
    """

    value: T | None = None
    problem: str = ""
    not_offered: bool = False
    role_missing: bool = False

    @property
    def is_left_out(self) -> bool:
        """Whether this section was not read because the service does not offer it, or the user lacks a role for it."""
        return self.not_offered or self.role_missing


@dataclass(frozen=True)
class UserView:
    """
    The client's user, as reported by the service.

    :param name: the external id, or else the id; empty if neither is reported.
    :param tenant_id: the id of the tenant; empty if it is not reported.
    :param roles: the roles.
    """

    name: str
    tenant_id: str
    roles: tuple[str, ...]


@dataclass(frozen=True)
class SignatureCounts:
    """
    The number of valid and of required signatures of a group.

    :param group: the group.
    :param present: number of valid signatures, at most ``needed``.
    :param needed: number of required signatures.
    """

    group: str
    present: int
    needed: int


@dataclass(frozen=True)
class RequestRow:
    """
    A whitelisting request.

    :param id: its id.
    :param status: its status, as the service sent it.
    :param chain: its chain, and its network if it has one. If keys are pinned, a network that is missing in the signed
        text is marked.
    :param address: the address.
    :param label: the label, which other users of the service wrote.
    :param created_at: date of its first trail entry; None if it is not given.
    :param changed_at: date of its last trail entry; None if it is not given.
    :param paths: the alternative ways to sign it under the signed rules, each with all groups that must sign. Empty if
        no keys are pinned, because only the verified rules tell which users are in a group.
    :param trust: result of verifying its signatures with the pinned keys.
    :param problem: why it is unverified, why it cannot be read, or why its state is unknown; empty otherwise.
    :param state: its state, as the service reports it.
    :param judged: its state after its content and signatures were checked, too.
    :param signatures: number of users who have signed it, as reported by the service.
    :param action: effect of signing it, as the service sent it; empty for the usual effect, which is to whitelist the
        address. For example, the effect of signing a pending request may be to delete the address.
    :param legacy: notice that its signatures cover only a legacy form of its text, with the keys that they omit; empty
        if they cover the whole text.
    :param deletion_pending: whether it is in effect, and its deletion is pending approval by the client's user. Such a
        request is listed twice: as in effect, and as pending.
    """

    id: str
    status: str
    chain: str = ""
    address: str = ""
    label: str = ""
    created_at: datetime | None = None
    changed_at: datetime | None = None
    paths: tuple[tuple[SignatureCounts, ...], ...] = ()
    trust: TrustState = "not checked"
    problem: str = ""
    state: ReportedState = "unknown"
    judged: RequestState = "unknown"
    signatures: int = 0
    action: str = ""
    legacy: str = ""
    deletion_pending: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether it is unverified, cannot be read, or has an unknown state."""
        return self.trust == "unverified" or bool(self.problem)


@dataclass(frozen=True)
class RequestsView:
    """
    Whitelisting requests of one kind, and their totals.

    :param rows: the requests that are listed, up to a maximum.
    :param total: number of all requests of this kind.
    :param faulty: number of faulty requests among all of them.
    :param oldest_at: creation date of the oldest request; None if there are no requests, or if a date is unknown.
    """

    rows: tuple[RequestRow, ...]
    total: int
    faulty: int = 0
    oldest_at: datetime | None = None


@dataclass(frozen=True)
class Requests:
    """
    The whitelisting requests of a service.

    If keys are pinned, all requests are verified, including those that are not in a list because it has a maximum
    length. In each list, unverified requests come first, and then other faulty requests.

    :param pending: requests that are pending approval, the oldest first; at most 200.
    :param recent: requests in effect, the newest first; at most 20.
    :param unknown: requests that are not pending and have an unknown state, the newest first; at most 50.
    :param in_effect_twice: groups of ids; the requests of a group are all in effect for the same destination.
    :param hidden: number of requests that the service counts but does not return.
    :param listed: every request, rejected ones included, the newest first, with texts of at most 600 characters. Empty
        unless the overview was read with ``keep_all``.
    """

    pending: RequestsView
    recent: RequestsView
    unknown: RequestsView
    in_effect_twice: tuple[tuple[str, ...], ...] = ()
    hidden: int = 0
    listed: tuple[RequestRow, ...] = ()


@dataclass(frozen=True)
class RequestView:
    """
    One whitelisting request with all details.

    :param row: its row in a listing.
    :param verification: description of the proof, or the reason why there is none.
    :param payload: keys and values of the signed text, in its order; empty if the text cannot be used.
    :param around: names and values of data outside the signed text; a value is empty if the service does not report it.
    :param signatures: its signatures, each with ``user`` and ``comment`` as the service reports them; ``valid`` (None
        if it was not checked, because no keys are pinned or the rules cannot be used); and ``problem``, the reason why
        it is invalid.
    :param trail: its history, in the service's order, each entry with ``at`` (None if it is missing or unreadable),
        ``user``, ``action`` and ``comment``.
    """

    row: RequestRow
    verification: str
    payload: dict[str, str]
    around: dict[str, str]
    signatures: list[dict[str, Any]]
    trail: list[dict[str, Any]]


@dataclass(frozen=True)
class WebhookRow:
    """
    A webhook.

    :param url: its destination, without parts that may be secret.
    :param problem: its problem, such as being disabled or cooling down; empty if there is none.
    :param disabled: whether it is disabled, possibly on purpose.
    """

    id: str
    type: str
    url: str
    status: str
    problem: str = ""
    disabled: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether it has a problem other than being disabled."""
        return bool(self.problem) and not self.disabled


@dataclass(frozen=True)
class JournalView:
    """
    The newest entry of the journal of webhook calls.

    :param newest_at: creation date of the newest call; None if there are no calls.
    :param newest_id: its id.
    """

    newest_at: datetime | None = None
    newest_id: str = ""


@dataclass(frozen=True)
class Overview:
    """
    An overview of a custody service.

    :param read_at: time of reading, by this machine's clock.
    :param base_url: URL of the service.
    :param pinned: whether keys are pinned, and requests are therefore verified.
    :param user: the client's user.
    :param health: the service's health, by the default criteria of
        :class:`~airflow_custody.operators.health.CustodyHealthCheckOperator`.
    :param requests: the whitelisting requests.
    :param approvals: counts of everything that is pending approval by the client's user.
    :param webhooks: the webhooks: faulty, then disabled, then working ones.
    :param journal: the newest entry of the journal of webhook calls.
    """

    read_at: datetime
    base_url: str
    pinned: bool = False
    user: Section[UserView] = field(default_factory=Section)
    health: Section[HealthVerdict] = field(default_factory=Section)
    requests: Section[Requests] = field(default_factory=Section)
    approvals: Section[PendingApprovals] = field(default_factory=Section)
    webhooks: Section[tuple[WebhookRow, ...]] = field(default_factory=Section)
    journal: Section[JournalView] = field(default_factory=Section)
