"""Check the package's assumptions about the service, using only reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice, pairwise
from statistics import median_high
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from airflow_custody.client.checks import attempt
from airflow_custody.client.errors import CustodyError, CustodyNotFoundError, CustodyResponseError
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_text import LINK_KEYS, TEXT_KEYS, read_signed_text
from airflow_custody.client.whitelist.envelopes import user_ids
from airflow_custody.client.whitelist.hidden import HIDDEN_ADVICE
from airflow_custody.client.whitelist.snapshot import Snapshot, read_snapshot

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.http.responses import Observation
    from airflow_custody.client.rules.operations import WireRules
    from airflow_custody.client.users.operations import WireUser
    from airflow_custody.client.webhooks.models import WebhookCall
    from airflow_custody.client.whitelist.envelopes import UserIds, WhitelistEnvelope

T = TypeVar("T")

AssumptionState = Literal["holds", "does not hold", "cannot tell"]
#: The result: the state, the evidence, and advice.
_Verdict = tuple[AssumptionState, dict[str, Any], str]

#: Maximum numbers of requests and of webhook calls to read.
MAX_REQUESTS, MAX_CALLS = 1000, 500
# Number of rows per page, and number of rows to read. Pages overlap by one row, so these are ten pages.
_PAGE_SIZE, _MAX_PAGED = 3, 20
# An id that no service has assigned.
_NO_REQUEST = str(2**62)
# Maximum number of seconds that the service's clock may be behind. A response's Date has no fractions of a second, so
# the clock may seem to be up to one second behind.
_MAX_BEHIND = 2.0
_WORD = re.compile("[A-Za-z][A-Za-z_-]{0,29}")
_MAX_WORDS = 20
#: Replaces a text that is not a word, so that no value is ever reported.
OTHER_TEXT = "(other text)"
_TRY_AGAIN = "If requests have changed meanwhile, run this again."


@dataclass(frozen=True)
class Assumption:
    """
    An assumption about the service, and the evidence from reads.

    :param assumption: its name.
    :param state: ``holds`` (only with evidence), ``does not hold`` or ``cannot tell``.
    :param seen: the evidence: words that the service uses, names of operations, counts, times, yes or no, and codes of
        errors and statuses. It contains no label, address, id, host or other value of a request, so that it can be
        published.
    :param advice: advice about the result. Default empty.
    :param error: the text of the error that prevented a judgement. Default empty.
    """

    assumption: str
    state: AssumptionState
    seen: dict[str, Any]
    advice: str = ""
    error: str = ""


@dataclass
class _Found:
    """
    The results of the reads. If a read failed, its error is in ``errors``, under the operation's name.
    """

    client: CustodyClient
    snapshot: Snapshot
    errors: dict[str, CustodyError] = field(default_factory=dict)
    offered: dict[str, None] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    user: WireUser | None = None
    rules: WireRules | None = None
    listed: list[WhitelistEnvelope] = field(default_factory=list)
    calls: list[WebhookCall] = field(default_factory=list)

    def read(self, name: str, call: Callable[[], T], default: T) -> T:
        try:
            value = call()
        except CustodyError as error:
            self.errors.setdefault(name, error)
            return default
        self.offered[name] = None
        return value

    @property
    def pending(self) -> list[WhitelistEnvelope]:
        """The requests that are pending approval."""
        return [each.shown for each in self.snapshot if each.reported == "pending" and each.state != "missing"]

    @property
    def decided(self) -> list[WhitelistEnvelope]:
        """The requests that are not pending."""
        return [each.shown for each in self.snapshot if each.reported != "pending" and each.state != "missing"]

    @property
    def own_ids(self) -> UserIds:
        user = self.user or {}
        return user_ids(user.get("id"), user.get("externalUserId"))


def check_assumptions(client: CustodyClient) -> list[Assumption]:
    """
    Check the package's assumptions about the service. Nothing is written.

    At most 1,000 requests and 500 webhook calls are read. An assumption only holds if there is evidence for it. If the
    service lists nothing, the state is ``cannot tell``.

    :param client: the client. If it has pinned keys, signatures are verified.
    :return: the assumptions, in the order of the documentation.
    """
    found = _Found(client, Snapshot({}, client.settings))
    client.observe(found.observations.append)
    read = found.read
    read("list health checks", client.list_health_checks, None)
    found.user = read("get current user", client.get_current_user, None)
    found.listed = read(_FIND, lambda: list(islice(client.find_whitelist_requests(), MAX_REQUESTS)), [])
    ids = [each.id for each in found.listed]
    found.snapshot = read(_FIND, lambda: read_snapshot(client, ids), found.snapshot)
    for_approval = client.find_whitelist_requests_for_approval(include_already_signed=True)
    read("find whitelisting requests for approval", lambda: next(for_approval, None), None)
    if ids:
        read("get whitelisting request", lambda: client.get_whitelist_request(ids[0]), None)
    read("get pending approvals", client.get_pending_approvals, None)
    found.rules = read("get rules", client.get_rules, None)
    read("list webhooks", lambda: next(client.list_webhooks(), None), None)
    found.calls = read("list webhook calls", lambda: list(islice(client.list_webhook_calls(), MAX_CALLS)), [])
    return [*_judge(found)]


def _judge(found: _Found) -> Iterator[Assumption]:
    for name, (judge, *needed) in _ASSUMPTIONS.items():
        error = next((found.errors[each] for each in needed if each in found.errors), None)
        if error is None:
            try:
                yield Assumption(name, *judge(found))
                continue
            except CustodyError as failure:
                error = failure
        yield Assumption(name, "cannot tell", _failure(error), error=sanitize(error.reason, 600))


def _failure(error: CustodyError) -> dict[str, Any]:
    return {"error": error.code, "status": error.status or "no response", "from the service": error.from_service}


def _words(texts: Iterable[str | None]) -> dict[str, int]:
    """
    Count words, the most frequent first.

    A text that is not a word is counted, but not quoted.
    """
    counts = Counter("(none)" if not each else each if _WORD.fullmatch(each) else OTHER_TEXT for each in texts)
    shown = dict(counts.most_common(_MAX_WORDS))
    if rest := counts.total() - sum(shown.values()):
        shown[OTHER_TEXT] = shown.get(OTHER_TEXT, 0) + rest
    return shown


# --- the assumptions ---------------------------------------------------------------------------------------


def _operations(found: _Found) -> _Verdict:
    seen: dict[str, Any] = {"offered": [name for name in found.offered if name not in found.errors]}
    absent = "not offered"
    for name, error in found.errors.items():
        seen.setdefault(absent if error.not_offered_by_service else error.code, []).append(name)
    state: AssumptionState = "does not hold" if absent in seen else "cannot tell" if found.errors else "holds"
    return state, seen, "Writes were not tried."


def _refusals(found: _Found) -> _Verdict:
    error = attempt(lambda: found.client.get_whitelist_request(_NO_REQUEST)).error
    if not isinstance(error, CustodyNotFoundError):
        raise error or CustodyResponseError("the service returns a request for an id that does not exist")
    if error.from_service:
        return "holds", {"status": 404, "body": "the service's own"}, ""
    return "does not hold", {"status": 404, "body": "another program's"}, "A gateway may have rejected the request."


def _statuses(found: _Found) -> _Verdict:
    words = [each.status for each in found.decided]
    seen = {
        "status, not pending": _words(words),
        "status, pending": _words(each.status for each in found.pending),
        "action, not pending": _words(each.action for each in found.decided),
        "action, pending": _words(each.action for each in found.pending),
    }
    settings = found.client.settings
    meanings = [settings.status_words.meaning(each) for each in words]
    unknown = [word for word, meaning in zip(words, meanings, strict=True) if meaning == "unknown"]
    if unknown:
        return (
            "does not hold",
            {"unknown words": _words(unknown), **seen},
            f"Add each unknown word to {settings.name('effective_statuses', 'rejected_statuses')}. A setting that is "
            "filled in replaces its default.",
        )
    if "effective" in meanings:
        return "holds", seen, ""
    return "cannot tell", seen, "No request in effect is listed."


def _own_pending(found: _Found) -> _Verdict:
    own = [each for each in found.pending if each.created_by & found.own_ids]
    seen = {"pending": len(found.pending), "pending, made by this user": len(own)}
    if own:
        return "holds", seen, ""
    return "cannot tell", seen, "Create a request as this user, and run this before it is signed."


def _makers(found: _Found) -> _Verdict:
    made = [each.created_by for each in found.listed]
    own = sum(bool(each & found.own_ids) for each in made)
    seen = {
        "requests": len(made),
        "with a creator": sum(map(bool, made)),
        "made by this user": own,
        "kinds of this user's ids": sorted(kind for kind, _ in found.own_ids),
    }
    if not found.own_ids or not all(made):
        advice = "If a response is lost, the request is not sent again, and a user must find out whether it exists."
        return "does not hold", seen, advice
    return "holds" if own else "cannot tell", seen, ""


def _pages(found: _Found) -> _Verdict:
    client = found.client
    try:
        if _FIND in found.errors:
            raise found.errors[_FIND]
        total = client.count_whitelist_requests()
        calls = len(found.observations)
        again = [each.id for each in islice(client.find_whitelist_requests(page_size=_PAGE_SIZE), _MAX_PAGED)]
    except CustodyError as error:
        if error.code == "listing-changed":
            return "does not hold", _failure(error), _TRY_AGAIN
        raise
    ids = [each.id for each in found.listed]
    pages = len(found.observations) - calls
    seen = {
        "listed": len(ids),
        "total": "not given" if total is None else total,
        "read again in pages of three": len(again),
        "pages read": pages,
    }
    is_whole = len(ids) < MAX_REQUESTS
    if is_whole and total is not None and total > len(ids):
        seen["hidden"] = total - len(ids)
        return "does not hold", seen, f"{HIDDEN_ADVICE} {_TRY_AGAIN}"
    if again != ids[:_MAX_PAGED] or (total is not None and (total != len(ids) if is_whole else total < len(ids))):
        return "does not hold", seen, _TRY_AGAIN
    return "holds" if total is not None and pages > 1 else "cannot tell", seen, ""


def _texts(found: _Found) -> _Verdict:
    keys: Counter[str] = Counter()
    unusable, unknown = 0, set[str]()
    for each in found.listed:
        try:
            fields = read_signed_text(each.text or "", each.hash or "").fields
        except RefusalError:
            unusable += 1
            continue
        links = {key for value in fields.values() if isinstance(value, list) for link in value for key in link}
        keys.update({*fields, *links})
        unknown |= (fields.keys() - {*TEXT_KEYS}) | (links - {*LINK_KEYS})
    seen = {
        "requests": len(found.listed),
        "without a published text that matches the hash": unusable,
        "keys": _words(keys.elements()),
        "unknown keys": len(unknown),
    }
    if unusable or unknown:
        return "does not hold", seen, "A request is not signed if its text has unknown keys or another hash."
    return "holds" if keys else "cannot tell", seen, ""


def _signatures(found: _Found) -> _Verdict:
    verifier, rules = found.snapshot.verifier, found.rules
    if verifier is None:
        return "cannot tell", {"pinned keys": 0}, "Pin the super-administrators' keys."
    error = attempt(lambda: verifier.verify_rules(rules)).error if rules else None
    proved: dict[str, Counter[str]] = {"in effect": Counter(), "pending": Counter()}
    for each in found.snapshot:
        if each.envelope is not None and each.reported != "rejected":
            name = "pending" if each.reported == "pending" else "in effect"
            proved[name][each.trust.state] += 1
    in_force = found.errors.get("get rules") or error
    seen = {"rules in force": in_force.code if in_force else "verified", **{k: dict(v) for k, v in proved.items()}}
    if error is not None or any(each["unverified"] for each in proved.values()):
        return "does not hold", seen, "See 'custody check' and 'custody whitelist verify' for the reasons."
    return "holds" if proved["in effect"] else "cannot tell", seen, ""


def _clock(found: _Found) -> _Verdict:
    # Skip error responses, because a gateway dates its own error pages by its own clock.
    dated = [(each.received_at - each.date) for each in found.observations if each.date and (each.status or 500) < 400]
    if not dated:
        return "cannot tell", {"responses with a date": 0}, ""
    # Use the median, because some responses may be slow, and replicas of the service may have different clocks.
    behind = median_high(dated).total_seconds()
    seen = {"seconds that the service is behind": round(behind)}
    if behind > _MAX_BEHIND:
        return "does not hold", seen, "Synchronize both clocks with NTP."
    return "holds", seen, ""


def _journal(found: _Found) -> _Verdict:
    newest = attempt(found.client.get_newest_webhook_call)
    calls = [*found.calls, *([newest.value] if newest.value else [])]
    dates = [each.created_at for each in calls if each.created_at is not None]
    seen: dict[str, Any] = {"calls": len(found.calls), "without a time": len(calls) - len(dates)}
    is_ordered = all(first <= second for first, second in pairwise(dates))
    if newest.error is not None and is_ordered:
        raise newest.error
    if not dates:
        return "cannot tell", seen, "No call with a time stamp is listed."
    seen |= {"oldest, in hours": _hours(min(dates)), "newest, in hours": _hours(max(dates)), "by time": is_ordered}
    # Accept dates some minutes in the future, because clocks may differ.
    if not is_ordered or len(dates) < len(calls) or _hours(max(dates)) < -0.1:
        return "does not hold", seen, "New calls cannot be read, because they are found by their time stamps."
    return "holds" if len(set(dates)) > 1 else "cannot tell", seen, ""


def _hours(date: datetime) -> float:
    return round((datetime.now(timezone.utc) - date).total_seconds() / 3600, 1)


_FIND, _USER = "find whitelisting requests", "get current user"
_ASSUMPTIONS: dict[str, tuple[Any, ...]] = {
    "operations": (_operations,),
    "refusals": (_refusals,),
    "status words": (_statuses, _FIND),
    "own pending requests": (_own_pending, _FIND, _USER),
    "who made requests": (_makers, _FIND, _USER),
    "listing by offset": (_pages,),
    "texts": (_texts, _FIND),
    "signatures": (_signatures, _FIND),
    "clock": (_clock,),
    "webhook calls": (_journal, "list webhook calls"),
}
