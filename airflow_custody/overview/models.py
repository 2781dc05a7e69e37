"""What an overview shows: plain values, without a word of markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from airflow_custody.client.approvals.models import PendingApprovals
    from airflow_custody.client.verification.trust import RequestState, TrustState

T = TypeVar("T")


@dataclass(frozen=True)
class Section(Generic[T]):
    """
    One part of an overview. That one cannot be read is no reason to hide the others.

    :param value: what it shows; None if it cannot be read.
    :param problem: why it cannot be read, and what to do; empty if it was.
    :param not_offered: whether the service itself says that it does not offer it, or not to this user.
        :func:`~airflow_custody.overview.verdict.judge_overview` tells for which sections that is no error.
    :param not_permitted: whether it is not offered to this user: a role is missing.
    """

    value: T | None = None
    problem: str = ""
    not_offered: bool = False
    not_permitted: bool = False


@dataclass(frozen=True)
class CheckRow:
    """
    A health check.

    :param group: its group.
    :param component: the component that it is about.
    :param check: its name.
    :param healthy: whether it is healthy, by the criteria of the health gate.
    :param status: its status, in the service's words.
    :param problem: why it is not healthy; empty if it is.
    :param updated_at: when it last ran; None: not given.
    """

    group: str
    component: str
    check: str
    healthy: bool
    status: str
    problem: str
    updated_at: datetime | None


@dataclass(frozen=True)
class GroupHealth:
    """How many checks a group has, and how many of them are not healthy."""

    group: str
    total: int
    unhealthy: int


@dataclass(frozen=True)
class HealthView:
    """
    The service's health.

    :param healthy: whether the health gate would pass.
    :param summary: one line that says so.
    :param checks: the checks, what is wrong first.
    :param groups: their groups, those with something wrong first.
    :param problems: what is wrong with the listing as a whole, such as that it is empty.
    :param total: how many checks there are.
    :param unhealthy: how many of them are not healthy.
    :param oldest_at: when the one that is oldest last ran; None: not given.
    """

    healthy: bool
    summary: str
    checks: tuple[CheckRow, ...]
    groups: tuple[GroupHealth, ...] = ()
    problems: tuple[str, ...] = ()
    total: int = 0
    unhealthy: int = 0
    oldest_at: datetime | None = None


@dataclass(frozen=True)
class GroupSignatures:
    """
    How many signatures of a group there are, and how many are needed.

    :param present: how many there are, and no more than are needed: valid ones where keys are pinned, otherwise in the
        service's word. None: not known, as the service does not show which groups a user is in.
    """

    group: str
    present: int | None
    needed: int


@dataclass(frozen=True)
class RequestRow:
    """
    A whitelisting request.

    :param id: its id.
    :param status: its status, in the service's words.
    :param chain: its chain, and its network if it has one. Where keys are pinned, a network that the signed text does
        not name is marked.
    :param address: the address.
    :param label: the label. Other people's text.
    :param created_at: when its first trail entry was made; None: not given.
    :param changed_at: when its last trail entry was made; None: not given.
    :param paths: the ways to approve it, any of which is enough; each with all of its groups.
    :param trust: what its signatures prove with pinned keys.
    :param problem: why it is unverified, or cannot be read, or how its status contradicts where it is listed; empty
        otherwise.
    :param state: how far it has come.
    :param signatures: how many users have signed it, in the service's word.
    :param action: what approving it does, in the service's words; empty if it makes the address whitelisted, as almost
        always. A request that is pending may be about the deletion of the address.
    :param legacy: that its signatures cover a legacy form of its text, and what they do not cover; empty: they do not.
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
    paths: tuple[tuple[GroupSignatures, ...], ...] = ()
    trust: TrustState = "not checked"
    problem: str = ""
    state: RequestState = "unknown"
    signatures: int = 0
    action: str = ""
    legacy: str = ""
    deletion_pending: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether it cannot be verified with the pinned keys, or not be read, or contradicts itself."""
        return self.trust == "unverified" or bool(self.problem)


@dataclass(frozen=True)
class RequestsView:
    """
    Some whitelisting requests.

    :param rows: the requests.
    :param total: how many there are in all; None: not known.
    :param note: what is missing from the rows, and why; empty: nothing but what is above their maximum number.
    :param more_faulty: how many that are not among the rows cannot be verified or read, or contradict themselves.
    :param oldest_at: when the oldest of all was created; None: not known, as one of them does not say, or none.
    """

    rows: tuple[RequestRow, ...]
    total: int | None = None
    note: str = ""
    more_faulty: int = 0
    oldest_at: datetime | None = None

    @property
    def faulty(self) -> int:
        """How many cannot be verified or read, or contradict themselves, shown or not."""
        return sum(row.is_faulty for row in self.rows) + self.more_faulty


@dataclass(frozen=True)
class TrailRow:
    """
    An entry of a request's history, in the service's words.

    :param at: when; None: not given, or not readable.
    :param user: who: the external id, or the id.
    :param action: what was done.
    :param comment: the comment. Other people's text.
    """

    at: datetime | None
    user: str
    action: str
    comment: str


@dataclass(frozen=True)
class SignatureRow:
    """
    A signature of a request.

    :param user: whose it is, in the service's word.
    :param comment: the comment. Other people's text.
    :param valid: whether it is valid; None: not checked, as no keys are pinned, or as the rules cannot be used.
    :param problem: why it is not valid; empty otherwise.
    """

    user: str
    comment: str
    valid: bool | None = None
    problem: str = ""


@dataclass(frozen=True)
class RequestView:
    """
    One whitelisting request, with all that there is to see of it.

    :param row: what a listing shows of it.
    :param fields: keys and values of the text that is signed, in its order; empty if the text cannot be used.
    :param network: the network, outside of what is signed; empty if there is none.
    :param action: what approving it does, in the service's word; empty if it does not say.
    :param tenant_id: the tenant, likewise.
    :param hash: the hash of the text that is signed, likewise.
    :param visibility_group: the group of users who see the address, likewise.
    :param trails: its history, in the service's order.
    :param signatures: its signatures.
    :param verification: in words, what is proved of it, or why nothing is.
    """

    row: RequestRow
    fields: tuple[tuple[str, str], ...] = ()
    network: str = ""
    action: str = ""
    tenant_id: str = ""
    hash: str = ""
    visibility_group: str = ""
    trails: tuple[TrailRow, ...] = ()
    signatures: tuple[SignatureRow, ...] = ()
    verification: str = ""


@dataclass(frozen=True)
class WebhookRow:
    """
    A webhook.

    :param url: where it delivers to, without what may be a secret in it.
    :param problem: what is wrong with it (disabled, cooling down until ...); empty: nothing.
    :param disabled: whether it is disabled, which somebody may have meant.
    """

    id: str
    type: str
    url: str
    status: str
    timeout_until: datetime | None = None
    problem: str = ""
    disabled: bool = False

    @property
    def is_faulty(self) -> bool:
        """Whether it gets no calls, or may get none, although nobody disabled it."""
        return bool(self.problem) and not self.disabled


@dataclass(frozen=True)
class JournalView:
    """
    The newest of the journal of webhook calls.

    :param newest_at: when the newest call was created; None: there is none.
    :param newest_id: its id.
    """

    newest_at: datetime | None = None
    newest_id: str = ""


@dataclass(frozen=True)
class Overview:
    """
    What a person sees of a custody service at a glance.

    :param read_at: when it was read, by this machine's clock.
    :param base_url: where the service is.
    :param health: its health.
    :param pending: the whitelisting requests that are pending approval, those that cannot be verified or read first,
        then the oldest; of many, the first 200.
    :param recent: those that took effect last, likewise first what cannot be verified or read, then the newest: at most
        20. All are verified if keys are pinned, not only those that are shown.
    :param unknown: those that are not pending, and whose status does not say whether they are in effect, likewise.
    :param rejected: how many were rejected, in the service's word; None: not known.
    :param approvals: what of all kinds is pending approval by the client's user.
    :param webhooks: the webhooks, what is wrong first, then those that are disabled; of many, the first 200.
    :param journal: the newest of the journal of webhook calls.
    :param more_webhooks: how many webhooks are not among ``webhooks``.
    :param more_faulty_webhooks: how many of these get no calls although nobody disabled them.
    """

    read_at: datetime
    base_url: str
    health: Section[HealthView] = field(default_factory=Section)
    pending: Section[RequestsView] = field(default_factory=Section)
    recent: Section[RequestsView] = field(default_factory=Section)
    unknown: Section[RequestsView] = field(default_factory=Section)
    rejected: int | None = None
    approvals: Section[PendingApprovals] = field(default_factory=Section)
    webhooks: Section[tuple[WebhookRow, ...]] = field(default_factory=Section)
    journal: Section[JournalView] = field(default_factory=Section)
    more_webhooks: int = 0
    more_faulty_webhooks: int = 0
