"""The verdict on health checks: pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from typing import Any

from airflow_custody.client.errors import CustodyUnhealthyError
from airflow_custody.client.health.criteria import HealthCriteria
from airflow_custody.client.health.models import HealthCheck
from airflow_custody.client.text import ascii_lower, count, count_of, sanitize
from airflow_custody.client.timestamps import parse_timestamp

#: Maximum number of unhealthy checks, and of groups, in a verdict's JSON; it stays small whatever is listed.
MAX_PROBLEMS = 20
MAX_GROUPS = 50
_MAX_PROBLEMS_IN_SUMMARY = 3
# How many of the names that exist a reason names, and how long it may become with them.
_MAX_EXISTING_NAMES = 10
MAX_REASON = 800
_UNREADABLE = "the group could not be read: it has no 'healthChecks'"


@dataclass(frozen=True)
class MissingName:
    """
    A name that the criteria ask for and that the listing does not have.

    :param setting: the criterion that names it.
    :param name: the name.
    """

    setting: str
    name: str


@dataclass(frozen=True)
class Problem:
    """
    A reason why the service does not count as healthy.

    :param reason: the reason, in words.
    :param check: the check that it is about; None: the listing as a whole.
    :param missing: the name that is missing, if that is the reason.
    """

    reason: str
    check: HealthCheck | None = None
    missing: MissingName | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the problem as small, plain JSON data."""
        check = self.check
        if check is None:
            return {"reason": sanitize(self.reason, MAX_REASON)}
        named = {
            "group": check.listed_under,
            "component": check.component_name,
            "check": check.health_check,
            "tenant_id": check.tenant_id,
            "status": check.status,
            "reason": self.reason,
        }
        return {name: None if value is None else sanitize(value, 200) for name, value in named.items()}

    def __str__(self) -> str:
        if self.check is None:
            return sanitize(self.reason, MAX_REASON)
        check = self.check
        place = " / ".join(
            sanitize(part, 60) for part in (check.listed_under, check.component_name, check.health_check) if part
        )
        tenant = f" (tenant {sanitize(check.tenant_id, 20)})" if check.tenant_id else ""
        return f"{place}{tenant}: {sanitize(self.reason)}"


@dataclass
class GroupCount:
    """The number of checks of one group."""

    total: int = 0
    unhealthy: int = 0


@dataclass
class HealthVerdict:
    """
    The verdict on the service's health, with reasons.

    :param fetched_at: time of fetching the listing.
    :param total: the number of checks that were judged.
    :param unhealthy: the number of those that are not healthy.
    :param groups: the same for each group.
    :param problems: all that is wrong.
    :param oldest_update: time of the least recent run among the checks; None: not known, as one of them does not say
        readably, or there is none.
    """

    fetched_at: datetime
    total: int = 0
    unhealthy: int = 0
    groups: dict[str, GroupCount] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    oldest_update: datetime | None = None

    @property
    def healthy(self) -> bool:
        """Whether at least one check was judged and nothing at all is wrong."""
        return self.total > 0 and not self.problems

    @property
    def missing(self) -> frozenset[MissingName]:
        """The names that the criteria ask for and that the listing does not have."""
        return frozenset(problem.missing for problem in self.problems if problem.missing is not None)

    def to_json(self) -> dict[str, Any]:
        """
        Return the verdict as plain JSON data, small whatever the size of the listing.

        :return: ``healthy``, ``total``, ``unhealthy``, ``groups`` (``{name: {"total", "unhealthy"}}``, the unhealthy
            ones first), ``problems`` (the first 20), ``problems_not_named``, ``groups_not_named``,
            ``oldest_result_age_seconds`` (None: not known, as one check does not say) and ``fetched_at`` (ISO 8601).
        """
        age = None if self.oldest_update is None else (self.fetched_at - self.oldest_update).total_seconds()
        by_need = sorted(self.groups.items(), key=lambda item: -item[1].unhealthy)
        return {
            "healthy": self.healthy,
            "total": self.total,
            "unhealthy": self.unhealthy,
            "groups": {
                sanitize(name, 100): {"total": group.total, "unhealthy": group.unhealthy}
                for name, group in by_need[:MAX_GROUPS]
            },
            "groups_not_named": max(0, len(self.groups) - MAX_GROUPS),
            "problems": [problem.to_json() for problem in self.problems[:MAX_PROBLEMS]],
            "problems_not_named": max(0, len(self.problems) - MAX_PROBLEMS),
            "oldest_result_age_seconds": None if age is None else max(0.0, round(age, 3)),
            "fetched_at": self.fetched_at.isoformat(),
        }

    def summary(self) -> str:
        """Return the verdict in one line, with the first reasons."""
        if self.healthy:
            return f"the service is healthy: {count_of(self.total, self.total, 'check')} healthy"
        reasons = "; ".join(str(problem) for problem in self.problems[:_MAX_PROBLEMS_IN_SUMMARY])
        more = len(self.problems) - _MAX_PROBLEMS_IN_SUMMARY
        # Where the listing as a whole is the reason, the number of unhealthy checks would only contradict it.
        counts = f" ({self.unhealthy} of {count(self.total, 'check')} unhealthy)" if self.unhealthy else ""
        return (
            f"the service is not healthy{counts}: {reasons or 'no health check was judged'}"
            f"{f'; and {more} more' if more > 0 else ''}"
        )

    def table(self) -> Iterator[str]:
        """Yield the verdict as lines for a log: a row for each group, then all that is wrong."""
        width = max([5, *(len(sanitize(name, 40)) for name in self.groups)])
        yield f"{'group':<{width}}  checks  healthy  not healthy"
        for name, group in sorted(self.groups.items()):
            healthy = group.total - group.unhealthy
            yield f"{sanitize(name, 40):<{width}}  {group.total:>6}  {healthy:>7}  {group.unhealthy or '-':>11}"
        yield f"{'all':<{width}}  {self.total:>6}  {self.total - self.unhealthy:>7}  {self.unhealthy or '-':>11}"
        if self.oldest_update is not None:
            yield f"oldest result: {self.oldest_update:%Y-%m-%d %H:%M:%S} UTC"
        elif self.total:
            yield "oldest result: not known, as not all checks say readably when they last ran"
        for problem in self.problems:
            yield f"NOT HEALTHY: {problem}"


def missing_names_error(missing: Iterable[MissingName], summary: str) -> CustodyUnhealthyError:
    """
    Return the error that ends a wait for names that do not exist; it is not retryable.

    A name that is missing once may belong to a service that is just starting, so raise it when names are missing from
    two listings in a row.

    :param missing: the names that are missing from both.
    :param summary: the summary of the second verdict.
    """
    setting = min(each.setting for each in missing)
    return CustodyUnhealthyError(
        summary, retryable=False, setting=setting, advice=advice_on_names(missing), code="parameter-wrong"
    )


def advice_on_names(missing: Iterable[MissingName]) -> str | None:
    """Return what to do about names that do not exist; None if there are none."""
    settings = sorted({each.setting for each in missing})
    named = " and ".join(repr(each) for each in settings)
    return f"Correct {named}: names are compared exactly." if settings else None


def judge(checks: Sequence[HealthCheck], criteria: HealthCriteria, now: datetime | None = None) -> HealthVerdict:
    """
    Judge a listing of health checks. Anything unclear is not healthy.

    :param checks: the listing.
    :param criteria: which checks are judged and what makes them healthy.
    :param now: time of fetching the listing, aware; None (default): now.
    :return: the verdict.
    """
    verdict = HealthVerdict(fetched_at=now or datetime.now(timezone.utc))
    judge_ = _Judge(criteria, verdict.fetched_at)
    selected = _select(checks, criteria)
    for check in selected:
        group = verdict.groups.get(check.listed_under)
        if group is None:
            group = verdict.groups[check.listed_under] = GroupCount()
        group.total += 1
        reasons = judge_.faults(check)
        if reasons:
            group.unhealthy += 1
            verdict.unhealthy += 1
            verdict.problems.append(Problem("; ".join(reasons), check))
    verdict.total = len(selected)
    verdict.oldest_update = _oldest_update(selected)
    # Problems of the listing as a whole explain the rest: they come first.
    verdict.problems[:0] = judge_.problems_of_listing(checks, selected, verdict.unhealthy)
    return verdict


def _oldest_update(checks: Iterable[HealthCheck]) -> datetime | None:
    """Return when the oldest of the checks last ran; None if one of them does not say: it may be the oldest."""
    oldest: datetime | None = None
    text_before = ""
    for check in checks:
        text = check.wire.get("lastUpdateDate")
        if text and text == text_before:
            continue
        date, text_before = parse_timestamp(text), text or ""
        if date is None:
            return None
        if oldest is None or date < oldest:
            oldest = date
    return oldest


class _Judge:
    """Judges check after check by one set of criteria; remembers which required results were reported."""

    def __init__(self, criteria: HealthCriteria, now: datetime) -> None:
        self._criteria = criteria
        self._now = now
        self._tenant_id = criteria.tenant_id
        self._require_fresh = criteria.require_fresh
        self._required = frozenset(criteria.require_results or ())
        self._reported: set[str] = set()
        # Few words come again and again: lower-casing them once each is enough.
        self._is_healthy = cache(lambda word: ascii_lower(word) in criteria.healthy_statuses)

    def faults(self, check: HealthCheck) -> list[str]:
        # Straight from the wire: this runs for each of ten thousand checks.
        wire = check.wire
        reasons: list[str] = []
        if not check.is_readable:
            return [_UNREADABLE]
        status = wire.get("status")
        if status is None:
            reasons.append("it has no status")
        elif not self._is_healthy(status):
            reasons.append(f"its status is {sanitize(status, 60)!r}")
        report = wire.get("report")
        if report is not None:
            report_status = report.get("status")
            if report_status is None:
                reasons.append("its report has no status")
            elif report_status != status and not self._is_healthy(report_status):
                reasons.append(f"its report's status is {sanitize(report_status, 60)!r}")
            if report.get("error"):
                reasons.append(f"its report has an error: {sanitize(report['error'], 160)}")
            elif reasons and report.get("message"):
                reasons.append(f"its report says: {sanitize(report['message'], 160)}")
            if self._required:
                results = report.get("results") or {}
                for key in self._required.intersection(results):
                    self._reported.add(key)
                    word = results[key]
                    if word is None or not self._is_healthy(word):
                        reasons.append(f"its result for {key} is {sanitize(word, 100)!r}")
        if self._require_fresh:
            valid_until = parse_timestamp(wire.get("validUntilDate"))
            if valid_until is None:
                reasons.append("it does not say readably until when it is valid")
            elif valid_until < self._now:
                reasons.append(f"it was valid until {valid_until:%Y-%m-%d %H:%M:%S} UTC only")
        if self._tenant_id is not None and wire.get("tenantId") not in (None, self._tenant_id):
            reasons.append(f"it belongs to another tenant than {self._tenant_id}, which was asked for")
        group = wire.get("group")
        if group is not None and group != check.listed_under:
            reasons.append(f"it names another group, {sanitize(group, 60)!r}, than it is listed under")
        return reasons

    def problems_of_listing(
        self, checks: Sequence[HealthCheck], selected: Sequence[HealthCheck], unhealthy: int
    ) -> list[Problem]:
        criteria = self._criteria
        if not checks:
            of_tenant = f" of tenant {sanitize(criteria.tenant_id, 20)}" if criteria.tenant_id else ""
            return [Problem(f"the service lists no health checks{of_tenant}")]
        # A name that does not exist at all explains why others are left with nothing.
        for exists in (False, True):
            found = [_unmatched(setting, criteria, checks, selected, exists=exists) for setting in _FILTERS]
            if problems := [problem for of_setting in found for problem in of_setting]:
                break
        if not selected and not problems:
            problems.append(Problem("no health check is left after filtering"))
        for number, key in enumerate(sorted(self._required - self._reported)):
            reason = f"no check reports a result for {sanitize(key, 80)!r}"
            if number == 0:
                reported = (((check.report or {}).get("results") or {}) for check in selected)
                reason += f"; {_existing('results', (each for results in reported for each in results))}"
            # An unhealthy check may be why nothing is reported: then the absence of a key proves nothing.
            missing = None if unhealthy else MissingName("require_results", key)
            problems.append(Problem(reason, missing=missing))
        return problems


_FILTERS: dict[str, tuple[str, Callable[[HealthCheck], str | None]]] = {
    "groups": ("group", lambda check: check.listed_under),
    "components": ("component", lambda check: check.component_name),
    "checks": ("check", lambda check: check.health_check),
}


def _select(
    checks: Sequence[HealthCheck], criteria: HealthCriteria, without: str | None = None
) -> Sequence[HealthCheck]:
    """Return the checks that pass the filters, or all of them but one."""
    for setting, (_, name_of) in _FILTERS.items():
        wanted: tuple[str, ...] | None = getattr(criteria, setting)
        if wanted is not None and setting != without:
            names = frozenset(wanted)
            checks = [each for each in checks if name_of(each) in names or _may_be_any(each, setting)]
    return checks


def _may_be_any(check: HealthCheck, setting: str) -> bool:
    """Tell whether a check could not be read, so that nobody knows its name."""
    return not check.is_readable and setting != "groups"


def _unmatched(
    setting: str,
    criteria: HealthCriteria,
    checks: Sequence[HealthCheck],
    selected: Sequence[HealthCheck],
    *,
    exists: bool,
) -> Iterator[Problem]:
    """Yield a problem for each name of a filter that matches nothing, of those that exist or of those that do not."""
    kind, name_of = _FILTERS[setting]
    wanted: tuple[str, ...] | None = getattr(criteria, setting)
    if wanted is None:
        return
    listed = {name_of(check) for check in checks}
    unmatched = set(wanted) - {name_of(check) for check in selected}
    for number, name in enumerate(sorted(name for name in unmatched if (name in listed) is exists)):
        where = "is left by the other filters" if exists else "exists"
        reason = f"no {kind} named {sanitize(name, 80)!r} {where}"
        if number == 0:
            left = _select(checks, criteria, without=setting) or checks
            reason += f"; {_existing(setting, (name_of(check) for check in left))}"
        yield Problem(reason, missing=MissingName(setting, name))


def _existing(setting: str, names: Iterable[str | None]) -> str:
    """Return in words which names exist: the first of them, each cut to a bearable length."""
    existing = sorted({name for name in names if name})
    if not existing:
        return f"there are no {setting}"
    named = ", ".join(repr(sanitize(name, 40)) for name in existing[:_MAX_EXISTING_NAMES])
    more = len(existing) - _MAX_EXISTING_NAMES
    return f"the {setting} are {named}{f' and {more} more' if more > 0 else ''}"
