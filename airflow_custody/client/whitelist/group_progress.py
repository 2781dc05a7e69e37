"""Progress of several whitelisting requests, poll after poll. No I/O."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_custody.client.errors import CustodyConflictError, CustodyError, CustodyVerificationError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.text import count, count_of
from airflow_custody.client.verification.trust import what_to_do
from airflow_custody.client.whitelist.batches import MAX_NAMED_IDS, name_some, same_texts
from airflow_custody.client.whitelist.progress import (
    DEFAULT_UNVERIFIED_AFTER,
    GracePeriod,
    ListedRequest,
    Progress,
    judge_progress,
    status_word,
)

# A result names so many words, the commonest.
_MAX_STATUSES = 20
_OTHERS = "(others)"

# In the order of the summary.
_NOT_YET = {
    "pending": "pending approval",
    "missing": "not listed",
    "unverified": "not verified",
    "unknown": "with a status that is not known",
    "": "not looked up yet",
}


class GroupProgress:
    """
    The progress of the requests of one wait.

    A request that was found in effect is not looked up again while others are not. Once all have been found so, but
    not in one poll, they are confirmed: all are looked up once more, as one may have been deleted in between. One that
    stays unverified until it is verified.

    :param ids: the requests' ids, each once.
    :param effective_statuses: as for :func:`~airflow_custody.client.whitelist.progress.judge_progress`.
    :param rejected_statuses: likewise.
    :param gone_after: seconds that a request must be missing, in a row, to be gone. Default 30.
    :param unverified_after: seconds that a request must be unverified, in a row, to be so for good. Default 5.
    :param clock: a monotonic clock in seconds; tests turn it. Default: :func:`time.monotonic`.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        effective_statuses: Iterable[str] | None,
        rejected_statuses: Iterable[str],
        gone_after: float = DEFAULT_LOOKUP_WAIT,
        unverified_after: float = DEFAULT_UNVERIFIED_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ids = tuple(ids)
        self._effective_statuses = effective_statuses
        self._rejected_statuses = rejected_statuses
        self._gone_after = gone_after
        self._unverified_after = unverified_after
        self._clock = clock
        self._progress: dict[str, Progress] = {}
        # Of what is verified, the hash of its text: thousands of texts may be large.
        self._hashes: dict[str, str] = {}
        self._grace_periods: dict[str, GracePeriod] = {}
        self._named: set[str | None] = set()
        self._polls = 0
        # The poll that found a request in effect, by its id.
        self._found_in: dict[str, int] = {}

    @property
    def to_poll(self) -> list[str]:
        """The ids to look up in the next poll."""
        return [each for each in self.ids if self._state(each) != "effective"]

    @property
    def lagging(self) -> list[str]:
        """The ids that the last look-up did not find or could not verify, which a lag may explain."""
        return [each for each in self.ids if self._state(each) in ("missing", "unverified") and not self._ended(each)]

    @property
    def progress(self) -> Iterable[Progress]:
        """The progress of the requests that were looked up."""
        return self._progress.values()

    @property
    def patience(self) -> float:
        """Seconds for which a lag may still explain all of that."""
        return min((self._progress[each].patience for each in self.lagging), default=0.0)

    @property
    def unverified_ids(self) -> list[str]:
        """The ids that were shown as in effect and not verified, and not verified since, however they are listed."""
        return [each for each in self.ids if self._unverified_of(each) is not None and not self._ended(each)]

    @property
    def unverified_patience(self) -> float:
        """Seconds for which a lag may still explain each of them."""
        return min((self._grace_periods[each].unverified_patience for each in self.unverified_ids), default=0.0)

    def confirm_unverified(self) -> None:
        """Confirm as unverified those that a lag does not explain any more."""
        for each in self.unverified_ids:
            if self._grace_periods[each].unverified_patience <= 0:
                self._confirm_unverified(each)

    def unverified_error(self) -> CustodyError | None:
        """Return the error for a wait that ends while requests are unverified, lag or not; None: none is."""
        for each in self.unverified_ids:
            self._confirm_unverified(each)
        return self.failure()

    def unverified(self) -> dict[str, Progress]:
        """Return the polls that showed requests as in effect, and not verified, by the requests' ids."""
        found = {each: self._unverified_of(each) for each in self.unverified_ids}
        return {each: progress for each, progress in found.items() if progress is not None}

    def take_over(self, unverified: Mapping[str, Progress]) -> None:
        """Take over the result of :meth:`unverified` in another process."""
        for each, progress in unverified.items():
            self._grace_period_of(each).take_over(progress)

    def _unverified_of(self, request_id: str) -> Progress | None:
        judge = self._grace_periods.get(request_id)
        return None if judge is None else judge.unverified

    def _confirm_unverified(self, request_id: str) -> None:
        if (progress := self._unverified_of(request_id)) is not None:
            self._progress[request_id] = replace(progress, confirmed=True)

    def _grace_period_of(self, request_id: str) -> GracePeriod:
        limits = self._gone_after, self._unverified_after
        return self._grace_periods.setdefault(request_id, GracePeriod(*limits, clock=self._clock))

    @property
    def is_done(self) -> bool:
        """Whether all were found in effect by one poll."""
        return not self.to_poll and len(set(self._found_in.values())) <= 1

    def begin_poll(self) -> None:
        """Begin a poll, which looks up each of some requests once."""
        self._polls += 1

    def judge(self, listed: ListedRequest) -> Progress:
        """Return the progress of a request. Changes nothing, so a thread may call it."""
        return judge_progress(
            listed, effective_statuses=self._effective_statuses, rejected_statuses=self._rejected_statuses
        )

    def update(self, judged: Mapping[str, Progress]) -> None:
        """Update the progress of some requests."""
        for each, progress in judged.items():
            self._hashes.pop(each, None)
            if progress.state in ("missing", "unverified") or each in self._grace_periods:
                progress = self._grace_period_of(each).judge(progress)
            if progress.state not in ("missing", "unverified") and self._unverified_of(each) is None:
                self._grace_periods.pop(each, None)
            if progress.state == "effective":
                self._found_in[each] = self._polls
            if progress.verified is not None:
                self._hashes[each] = progress.verified.hash
            self._progress[each] = replace(progress, verified=None)

    def forget_lagging(self, ids: Iterable[str] | None = None) -> None:
        """Forget how long requests have been missing: what a failed poll would have shown is unknown."""
        for each in list(self._grace_periods) if ids is None else ids:
            if each in self._grace_periods:
                self._grace_periods[each].reset()

    def confirm(self) -> bool:
        """Return whether all must be looked up once more; then the next poll does."""
        if self.to_poll or self.is_done:
            return False
        self._progress.clear()
        self._hashes.clear()
        self._found_in.clear()
        return True

    def failure(self) -> CustodyError | None:
        """Return the error that names which requests will not take effect or do not verify; None if all still may."""
        ended = [each for each in self.ids if self._ended(each)]
        if not ended:
            return None
        unverified = [each for each in ended if self._state(each) == "unverified"]
        others = [each for each in ended if self._state(each) != "unverified"]
        words = []
        if unverified:
            words.append(f"{count_of(len(unverified), len(self.ids), 'whitelisting request')} not verified: ")
            words[-1] += self._name_ended(unverified)
        if others:
            words.append(f"{len(others)} of {count(len(self.ids), 'whitelisting request')} will not take effect: ")
            words[-1] += self._name_ended(others)
        if not unverified:
            return CustodyConflictError("; ".join(words), code=self._progress[others[0]].failure_code)
        refusal = self._progress[unverified[0]].unverified
        advice = what_to_do(unverified, refusal.advice if refusal is not None else None)
        return CustodyVerificationError(
            "; ".join(words), advice=advice, code=self._progress[unverified[0]].failure_code
        )

    def _name_ended(self, ids: Sequence[str]) -> str:
        words = [self._progress[each].summary(each) for each in ids[:MAX_NAMED_IDS]]
        if len(ids) > MAX_NAMED_IDS:
            words.append(f"and {len(ids) - MAX_NAMED_IDS} more")
        return "; ".join(words)

    def same_texts(self) -> Iterator[str]:
        """Yield a warning for each signed text that several requests have: one may be shown under two ids."""
        for ids in same_texts(self._hashes):
            yield (
                f"whitelisting requests {ids} have the same signed text: signatures do not show that each of them "
                "exists"
            )

    def unknown_statuses(self) -> Iterator[str]:
        """Yield a warning for each status that is not known, once."""
        for each in self.ids:
            progress = self._progress.get(each)
            if progress is not None and progress.state == "unknown" and progress.status not in self._named:
                self._named.add(progress.status)
                yield progress.summary(each)

    def summary(self) -> str:
        """Return the progress in words."""
        open_ids = self.to_poll
        in_effect = len(self.ids) - len(open_ids)
        text = f"{count_of(in_effect, len(self.ids), 'whitelisting request')} in effect"
        if self._hashes:
            text += f", {len(self._hashes)} verified"
        if not open_ids:
            return text
        states = Counter(self._state(each) for each in open_ids)
        counts = ", ".join(f"{states[state]} {words}" for state, words in _NOT_YET.items() if states[state])
        return f"{text} ({counts}); not yet: {name_some(open_ids)}"

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON data, of the same size for any number of requests."""
        statuses = Counter(status_word(each.status) for each in self._progress.values())
        if more := sum(number for _, number in statuses.most_common()[_MAX_STATUSES:]):
            statuses = Counter({**dict(statuses.most_common(_MAX_STATUSES)), _OTHERS: more})
        return {
            "state": "effective",
            "count": len(self.ids),
            "statuses": dict(sorted(statuses.items())),
            "verified": len(self._hashes),
        }

    def _state(self, request_id: str) -> str:
        progress = self._progress.get(request_id)
        return "" if progress is None else progress.state

    def _ended(self, request_id: str) -> bool:
        return request_id in self._progress and self._progress[request_id].ended
