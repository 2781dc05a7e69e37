"""The models of an overview: plain values without markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from airflow_custody.client.approvals.operations import PendingApprovals
    from airflow_custody.client.health.verdict import HealthVerdict
    from airflow_custody.client.verification.trust import ReportedState, TrustState

T = TypeVar("T")


@dataclass(frozen=True)
class Section(Generic[T]):
    """
    One part of an overview. Each can be unreadable without hiding the others.

    :param value: its contents; None if it cannot be read.
    :param problem: why it cannot be read, and what to do; empty if it was.
    :param not_offered: whether the service itself says that it does not offer it, or not to this user.
        :func:`~airflow_custody.overview.verdict.judge_overview` tells for which sections that is no error.
    """

    value: T | None = None
    problem: str = ""
    not_offered: bool = False


@dataclass(frozen=True)
class UserView:
    """
    The client's user, as the service shows it.

    :param name: the external id, or else the id; empty: not shown.
    :param tenant_id: the id of the tenant; empty: not shown.
    :param roles: the roles.
    """

    name: str
    tenant_id: str
    roles: tuple[str, ...]


@dataclass(frozen=True)
class SignatureCounts:
    """
    The number of a group's signatures, and the number that is needed.

    :param present: number of valid signatures, no more than are needed.
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
    :param chain: its chain, and its network if it has one. Where keys are pinned, a network that the signed text does
        not name is marked.
    :param address: the address.
    :param label: the label. Other people's text.
    :param created_at: when its first trail entry was made; None: not given.
    :param changed_at: when its last trail entry was made; None: not given.
    :param paths: the ways to sign it by the signed rules, any of which is enough; each with all of its groups.
        Empty where no keys are pinned: the service does not show which groups a user is in.
    :param trust: result of verifying its signatures with the pinned keys.
    :param problem: why it is unverified, cannot be read, or is in a state that the service does not say; empty
        otherwise.
    :param state: its state.
    :param signatures: number of users who have signed it, as the service reports it.
    :param action: effect of signing it, as the service sent it; empty if it makes the address whitelisted, as almost
        always. A request that is pending may be about the deletion of the address.
    :param legacy: notice that its signatures cover only a legacy form of its text, with the keys that they leave out;
        empty: they do not.
    :param deletion_pending: whether it is in effect, and its deletion is pending approval by the client's user. Such
        requests are among those in effect, and among those that are pending.
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
    signatures: int = 0
    action: str = ""
    legacy: str = ""
    deletion_pending: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether it cannot be verified with the pinned keys, cannot be read, or its state is not known."""
        return self.trust == "unverified" or bool(self.problem)


@dataclass(frozen=True)
class RequestsView:
    """
    Some whitelisting requests.

    :param rows: the requests.
    :param total: number of all of them.
    :param faulty: number of the faulty ones among all of them.
    :param oldest_at: when the oldest of all was created; None: not known, as one of them does not say, or none.
    """

    rows: tuple[RequestRow, ...]
    total: int
    faulty: int = 0
    oldest_at: datetime | None = None


@dataclass(frozen=True)
class Requests:
    """
    The whitelisting requests of a service. All are verified if keys are pinned, not only those that are shown.

    :param pending: those that are pending approval, those that cannot be verified or read first, then the oldest; of
        many, the first 200.
    :param recent: those that took effect last, at most 20, in the same order but the newest first.
    :param unknown: those that are not pending, and whose status does not say whether they are in effect, likewise.
    :param in_effect_twice: the ids of requests that are in effect for the same destination, in groups.
    """

    pending: RequestsView
    recent: RequestsView
    unknown: RequestsView
    in_effect_twice: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class RequestView:
    """
    One whitelisting request with all details.

    :param row: its row in a listing.
    :param verification: description of the proof, or why there is none.
    :param payload: keys and values of the text that is signed, in its order; empty if the text cannot be used.
    :param around: names and values of what the service says beside that text; empty values: it does not say.
    :param signatures: its signatures, each with ``user`` and ``comment``, as the service reports them, ``valid`` (None:
        not checked, as no keys are pinned, or as the rules cannot be used), and ``problem``, why it is not valid.
    :param trail: its history, in the service's order, each entry with ``at`` (None: not given, or not readable),
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
    :param problem: its problem (disabled, cooling down until ...); empty: none.
    :param disabled: whether it is disabled, which somebody may have meant.
    """

    id: str
    type: str
    url: str
    status: str
    problem: str = ""
    disabled: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether it gets no calls, or may get none, although nobody disabled it."""
        return bool(self.problem) and not self.disabled


@dataclass(frozen=True)
class JournalView:
    """
    The newest entry of the journal of webhook calls.

    :param newest_at: when the newest call was created; None: there is none.
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
    :param pinned: whether keys are pinned, so that requests are verified.
    :param user: the client's user.
    :param health: its health, by the criteria of the health gate.
    :param requests: its whitelisting requests.
    :param approvals: counts of everything that is pending approval by the client's user.
    :param webhooks: the webhooks, faulty ones first, then those that are disabled.
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
