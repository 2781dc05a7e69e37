"""Which health checks count as healthy: pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from typing import Any

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.health.models import HealthCheck
from airflow_custody.client.text import as_list, count, sanitize
from airflow_custody.client.timestamps import parse_timestamp

#: How many unhealthy checks, and how many groups, a verdict's JSON names; it stays small whatever is listed.
MAX_PROBLEMS = 20
MAX_GROUPS = 50
_MAX_PROBLEMS_IN_SUMMARY = 3


@dataclass(frozen=True)
class HealthCriteria:
    """
    Which checks are judged, and what makes them healthy. Make one with :meth:`of`, which checks the values.

    :param tenant_id: the tenant whose checks are asked for; None: all tenants'.
    :param groups: only checks of these groups, by exact name; None: of all.
    :param components: only checks of these components, by exact name; None: of all.
    :param checks: only checks of these names; None: all.
    :param require_results: keys that some check must report, and that must be healthy wherever they are reported.
    :param healthy_statuses: the status words that count as healthy, in lower case.
    :param require_fresh: whether a check must not be past its ``validUntilDate``.
    """

    tenant_id: str | None = None
    groups: tuple[str, ...] | None = None
    components: tuple[str, ...] | None = None
    checks: tuple[str, ...] | None = None
    require_results: tuple[str, ...] | None = None
    healthy_statuses: tuple[str, ...] = ("success",)
    require_fresh: bool = True

    @classmethod
    def of(
        cls,
        *,
        tenant_id: str | None = None,
        groups: str | Iterable[str] | None = None,
        components: str | Iterable[str] | None = None,
        checks: str | Iterable[str] | None = None,
        require_results: str | Iterable[str] | None = None,
        healthy_statuses: str | Iterable[str] = ("success",),
        require_fresh: bool = True,
    ) -> HealthCriteria:
        """
        Return criteria made of what an author gave, templates rendered.

        The parameters are those of the class. A single name may be given as a string. An empty list is refused: it
        is more likely a template that rendered to nothing than a wish, and would make the gate weaker.

        :raises CustodyConfigurationError: if one of them is malformed; ``setting`` names it.
        """
        if not isinstance(require_fresh, bool):
            raise _malformed("require_fresh", "must be True or False")
        return cls(
            tenant_id=None if tenant_id is None else str(tenant_id),
            groups=None if groups is None else _names("groups", groups),
            components=None if components is None else _names("components", components),
            checks=None if checks is None else _names("checks", checks),
            require_results=None if require_results is None else _names("require_results", require_results),
            healthy_statuses=tuple(word.lower() for word in _names("healthy_statuses", healthy_statuses)),
            require_fresh=require_fresh,
        )


def _names(setting: str, value: str | Iterable[str]) -> tuple[str, ...]:
    if not isinstance(value, Iterable):
        raise _malformed(setting, "must be a list of names")
    names = tuple(as_list(value))
    if not names:
        raise _malformed(setting, "is an empty list; leave it out if it is not meant")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise _malformed(setting, f"must be a list of names; {sanitize(repr(name), 40)} is none")
    return names


def _malformed(setting: str, why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(f"'{setting}' {why}", setting=setting)


@dataclass(frozen=True)
class Problem:
    """A reason why the service does not count as healthy: of one check, or of the listing (no check)."""

    reason: str
    check: HealthCheck | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the problem as small, plain JSON data."""
        check = self.check
        if check is None:
            return {"reason": sanitize(self.reason)}
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
            return sanitize(self.reason)
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
    Whether the service is healthy, and if not, why.

    :param fetched_at: when the listing was fetched.
    :param total: the number of checks that were judged.
    :param unhealthy: the number of those that are not healthy.
    :param groups: the same for each group.
    :param problems: all that is wrong.
    :param oldest_update: when the oldest of the judged checks last ran; None if no check says so.
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

    def to_json(self) -> dict[str, Any]:
        """
        Return the verdict as plain JSON data, small whatever the size of the listing.

        :return: ``healthy``, ``total``, ``unhealthy``, ``groups`` (``{name: {"total", "unhealthy"}}``, the unhealthy
            ones first), ``problems`` (the first 20), ``problems_not_named``, ``groups_not_named``,
            ``oldest_result_age_seconds`` (None if unknown) and ``fetched_at`` (ISO 8601).
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
            return f"the service is healthy: {count(self.total, 'check')}, none of them unhealthy"
        reasons = "; ".join(str(problem) for problem in self.problems[:_MAX_PROBLEMS_IN_SUMMARY])
        more = len(self.problems) - _MAX_PROBLEMS_IN_SUMMARY
        return (
            f"the service is not healthy ({self.unhealthy} of {count(self.total, 'check')} unhealthy): {reasons}"
            f"{f'; and {more} more, all in the log' if more > 0 else ''}"
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
        for problem in self.problems:
            yield f"NOT HEALTHY: {problem}"


def judge(checks: Sequence[HealthCheck], criteria: HealthCriteria, now: datetime | None = None) -> HealthVerdict:
    """
    Judge a listing of health checks. In doubt it is not healthy.

    :param checks: the listing.
    :param criteria: which checks are judged and what makes them healthy.
    :param now: when the listing was fetched, aware; None (default): now.
    :return: the verdict.
    """
    verdict = HealthVerdict(fetched_at=now or datetime.now(timezone.utc))
    judge_ = _Judge(criteria, verdict.fetched_at)
    unfiltered = criteria.groups is criteria.components is criteria.checks is None
    selected = checks if unfiltered else [check for check in checks if _is_selected(check, criteria)]
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
    # What is wrong with the listing as a whole explains the rest: it comes first.
    verdict.problems[:0] = [Problem(reason) for reason in judge_.faults_of_listing(checks, selected)]
    return verdict


def _is_selected(check: HealthCheck, criteria: HealthCriteria) -> bool:
    return (
        (criteria.groups is None or check.listed_under in criteria.groups)
        and (criteria.components is None or check.component_name in criteria.components)
        and (criteria.checks is None or check.health_check in criteria.checks)
    )


def _oldest_update(checks: Iterable[HealthCheck]) -> datetime | None:
    """Return when the oldest of the checks last ran; a date that cannot be read is passed over."""
    oldest: datetime | None = None
    # The same as text, and its second. Seconds in UTC sort as text, so what is later need not be parsed.
    oldest_text, oldest_second = "", "~"
    for check in checks:
        text = check.wire.get("lastUpdateDate")
        if not text or text == oldest_text or (text[:19] > oldest_second and text[-1] == "Z" and text[10:11] == "T"):
            continue
        date = parse_timestamp(text)
        if date is not None and (oldest is None or date < oldest):
            oldest, oldest_text, oldest_second = date, text, date.isoformat()[:19]
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
        self._is_healthy = cache(lambda word: word.lower() in criteria.healthy_statuses)

    def faults(self, check: HealthCheck) -> list[str]:
        # Straight from the wire: this runs for each of ten thousand checks.
        wire = check.wire
        reasons: list[str] = []
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

    def faults_of_listing(self, checks: Sequence[HealthCheck], selected: Sequence[HealthCheck]) -> list[str]:
        criteria = self._criteria
        if not checks:
            of_tenant = f" of tenant {criteria.tenant_id}" if criteria.tenant_id else ""
            return [f"the service lists no health checks{of_tenant}"]
        reasons = [
            *_unmatched("group", criteria.groups, checks, selected, lambda check: check.listed_under),
            *_unmatched("component", criteria.components, checks, selected, lambda check: check.component_name),
            *_unmatched("check", criteria.checks, checks, selected, lambda check: check.health_check),
        ]
        if not selected and not reasons:
            reasons.append("no health check is left after filtering")
        for key in sorted(self._required - self._reported):
            reasons.append(f"no check reports a result for {sanitize(key, 80)!r}")
        return reasons


def _unmatched(
    kind: str,
    wanted: Iterable[str] | None,
    checks: Sequence[HealthCheck],
    selected: Sequence[HealthCheck],
    name_of: Callable[[HealthCheck], str | None],
) -> Iterator[str]:
    """Yield a reason for each name of a filter that matches nothing."""
    if wanted is None:
        return
    for name in sorted(set(wanted) - {name_of(check) for check in selected}):
        listed = any(name_of(check) == name for check in checks)
        yield f"no {kind} named {sanitize(name, 80)!r} {'is left by the other filters' if listed else 'exists'}"
