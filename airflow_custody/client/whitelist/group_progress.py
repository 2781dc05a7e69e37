"""How far several whitelisting requests have come, poll after poll. No I/O."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.whitelist.batches import MAX_NAMED_IDS, name_some
from airflow_custody.client.whitelist.progress import GoneJudge, ListedRequest, Progress, judge_progress

# In the order of the summary.
_NOT_YET = {
    "pending": "pending approval",
    "missing": "not listed",
    "unknown": "with a status that is not known",
    "": "not looked up yet",
}


class GroupProgress:
    """
    How far the requests of one wait have come.

    A request that was found in effect is not looked up again while others are not. Once all have been found so, but
    not in one poll, they are confirmed: looked up once more, as one may have been deleted in between.

    :param ids: the requests' ids, each once.
    :param effective_statuses: as for :func:`~airflow_custody.client.whitelist.progress.judge_progress`.
    :param rejected_statuses: likewise.
    :param gone_after: seconds that a request must be missing, in a row, to be gone. Default 30.
    :param clock: a monotonic clock in seconds; tests turn it. Default: :func:`time.monotonic`.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        effective_statuses: Iterable[str] | None,
        rejected_statuses: Iterable[str],
        gone_after: float = DEFAULT_LOOKUP_WAIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ids = tuple(ids)
        self._effective_statuses = effective_statuses
        self._rejected_statuses = rejected_statuses
        self._gone_after = gone_after
        self._clock = clock
        self._progress: dict[str, Progress] = {}
        self._gone: dict[str, GoneJudge] = {}
        self._named: set[str | None] = set()
        self._polls = 0
        self._confirming = False

    @property
    def to_poll(self) -> list[str]:
        """The ids to look up in the next poll."""
        return [each for each in self.ids if self._state(each) != "effective"]

    @property
    def missing(self) -> list[str]:
        """The ids that the last look-up did not find, and that are not gone yet."""
        return [each for each in self.ids if self._state(each) == "missing"]

    @property
    def missing_for(self) -> float:
        """How long one of them has been missing, in seconds."""
        return max((self._progress[each].seconds for each in self.missing), default=0.0)

    @property
    def is_done(self) -> bool:
        """Whether all are in effect, by one poll or confirmed."""
        return not self.to_poll and (self._polls <= 1 or self._confirming)

    def begin_poll(self) -> None:
        """Count a poll."""
        self._polls += 1

    def judge(self, listed: ListedRequest) -> Progress:
        """Return how far a request has come, by where it is listed. It changes nothing: a thread may do it."""
        return judge_progress(
            listed, effective_statuses=self._effective_statuses, rejected_statuses=self._rejected_statuses
        )

    def update(self, judged: Mapping[str, Progress]) -> None:
        """Take in how far some of the requests have come."""
        for each, progress in judged.items():
            if progress.state == "missing":
                judge = self._gone.setdefault(each, GoneJudge(self._gone_after, clock=self._clock))
                self._progress[each] = judge.judge(progress)
            else:
                self._gone.pop(each, None)
                self._progress[each] = progress

    def forget_missing(self, ids: Iterable[str] | None = None) -> None:
        """Forget how long requests have been missing: nobody knows what a poll that failed would have shown."""
        for each in list(self._gone) if ids is None else ids:
            self._gone.pop(each, None)

    def confirm(self) -> bool:
        """Return whether all must be looked up once more; then the next poll does."""
        if self.to_poll or self.is_done:
            return False
        self._progress.clear()
        self._confirming = True
        return True

    def failure(self) -> str | None:
        """Return in words which requests will not take effect; None if all still may."""
        ended = [each for each in self.ids if each in self._progress and self._progress[each].ended]
        if not ended:
            return None
        words = [self._progress[each].summary(each) for each in ended[:MAX_NAMED_IDS]]
        if len(ended) > MAX_NAMED_IDS:
            words.append(f"and {len(ended) - MAX_NAMED_IDS} more")
        return f"{len(ended)} of {len(self.ids)} whitelisting requests will not take effect: {'; '.join(words)}"

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
        text = f"{len(self.ids) - len(open_ids)} of {len(self.ids)} whitelisting requests are in effect"
        if not open_ids:
            return text
        states = Counter(self._state(each) for each in open_ids)
        counts = ", ".join(f"{states[state]} {words}" for state, words in _NOT_YET.items() if states[state])
        return f"{text} ({counts}); not yet: {name_some(open_ids)}"

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON data, of the same size for any number of requests."""
        statuses = Counter(each.status or "" for each in self._progress.values())
        return {"state": "effective", "count": len(self.ids), "statuses": dict(sorted(statuses.items()))}

    def _state(self, request_id: str) -> str:
        progress = self._progress.get(request_id)
        return "" if progress is None else progress.state
