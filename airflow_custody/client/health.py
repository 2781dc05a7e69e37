"""Which health checks count as healthy: pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.models import HealthCheck
from airflow_custody.client.text import readable

#: How many unhealthy checks, and how many groups, a verdict's JSON names; it stays small whatever is listed.
NAMED_PROBLEMS = 20
NAMED_GROUPS = 50
_NAMED_IN_SUMMARY = 3


@dataclass(frozen=True)
class HealthCriteria:
    """
    Say which checks are looked at and what makes them healthy. Make one with :meth:`of`.

    :param tenant_id: the tenant whose checks are asked for; None: all tenants'.
    :param groups: only checks of these groups, by exact name; None: of all.
    :param components: only checks of these components, by exact name; None: of all.
    :param checks: only checks of these names; None: all.
    :param require_results: keys (say currency codes) that some check must report, with a healthy word wherever
        they are reported.
    :param healthy_statuses: the status words that count as healthy, compared without case.
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
    def of(cls, settings: object) -> HealthCriteria:
        """
        Take the criteria from the attributes of an operator, sensor or trigger that have their names.

        A single name may be given as a string. An empty list is refused: it is more likely a template that
        rendered to nothing than a wish, and would make the gate weaker.

        :param settings: any object with these attributes, their templates rendered.
        :raises CustodyConfigurationError: if one of them is malformed; ``setting`` names it.
        """
        given = {each.name: getattr(settings, each.name) for each in fields(cls)}
        for name in ("groups", "components", "checks", "require_results"):
            given[name] = None if given[name] is None else _names(name, given[name])
        given["healthy_statuses"] = tuple(
            word.lower() for word in _names("healthy_statuses", given["healthy_statuses"])
        )
        if not isinstance(given["require_fresh"], bool):
            raise _malformed("require_fresh", "must be True or False")
        if given["tenant_id"] is not None:
            given["tenant_id"] = str(given["tenant_id"])
        return cls(**given)


def _names(setting: str, value: object) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Iterable):
        raise _malformed(setting, "must be a list of names")
    names = tuple(values)
    if not names:
        raise _malformed(setting, "is an empty list; leave it out if it is not meant")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise _malformed(setting, f"must be a list of names; {readable(repr(name), 40)} is none")
    return names


def _malformed(setting: str, why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(f"'{setting}' {why}", setting=setting)


@dataclass(frozen=True)
class Problem:
    """Say why the service does not count as healthy: one check's fault, or a fault of the listing (no check)."""

    reason: str
    check: HealthCheck | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the problem as small, plain JSON data."""
        check = self.check
        if check is None:
            return {"reason": readable(self.reason)}
        named = {
            "group": check.listed_under,
            "component": check.component_name,
            "check": check.health_check,
            "tenant_id": check.tenant_id,
            "status": check.status,
            "reason": self.reason,
        }
        return {name: None if value is None else readable(value, 200) for name, value in named.items()}

    def __str__(self) -> str:
        if self.check is None:
            return readable(self.reason)
        check = self.check
        place = " / ".join(
            readable(part, 60) for part in (check.listed_under, check.component_name, check.health_check) if part
        )
        tenant = f" (tenant {readable(check.tenant_id, 20)})" if check.tenant_id else ""
        return f"{place}{tenant}: {readable(self.reason)}"


@dataclass
class GroupCount:
    """Count the checks of one group."""

    total: int = 0
    unhealthy: int = 0


@dataclass
class HealthVerdict:
    """
    Say whether the service is healthy, and if not, why.

    :param fetched_at: when the listing was fetched.
    :param total: number of checks that were judged.
    :param unhealthy: number of those that are not healthy.
    :param groups: the same for each group.
    :param problems: all that is wrong.
    :param oldest_update: when the oldest of the judged results was made; None if no check says so.
    """

    fetched_at: datetime
    total: int = 0
    unhealthy: int = 0
    groups: dict[str, GroupCount] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    oldest_update: datetime | None = None

    @property
    def healthy(self) -> bool:
        """True if at least one check was judged and nothing at all is wrong."""
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
                readable(name, 100): {"total": count.total, "unhealthy": count.unhealthy}
                for name, count in by_need[:NAMED_GROUPS]
            },
            "groups_not_named": max(0, len(self.groups) - NAMED_GROUPS),
            "problems": [problem.to_json() for problem in self.problems[:NAMED_PROBLEMS]],
            "problems_not_named": max(0, len(self.problems) - NAMED_PROBLEMS),
            "oldest_result_age_seconds": None if age is None else max(0.0, round(age, 3)),
            "fetched_at": self.fetched_at.isoformat(),
        }

    def summary(self) -> str:
        """Return the verdict in one line, with the first reasons."""
        if self.healthy:
            return f"the service is healthy: all {self.total} checks are"
        reasons = "; ".join(str(problem) for problem in self.problems[:_NAMED_IN_SUMMARY])
        more = len(self.problems) - _NAMED_IN_SUMMARY
        return (
            f"the service is not healthy ({self.unhealthy} of {self.total} checks are not): {reasons}"
            f"{f'; and {more} more, all in the log' if more > 0 else ''}"
        )

    def table(self) -> Iterator[str]:
        """Yield the verdict as lines for a log: a row for each group, then all that is wrong."""
        width = max([5, *(len(readable(name, 40)) for name in self.groups)])
        yield f"{'group':<{width}}  checks  healthy  not healthy"
        for name, count in sorted(self.groups.items()):
            good = count.total - count.unhealthy
            yield f"{readable(name, 40):<{width}}  {count.total:>6}  {good:>7}  {count.unhealthy or '-':>11}"
        yield f"{'all':<{width}}  {self.total:>6}  {self.total - self.unhealthy:>7}  {self.unhealthy or '-':>11}"
        if self.oldest_update is not None:
            yield f"oldest result: {self.oldest_update:%Y-%m-%d %H:%M:%S} UTC"
        for problem in self.problems:
            yield f"NOT HEALTHY: {problem}"


def judge(checks: Sequence[HealthCheck], criteria: HealthCriteria, now: datetime | None = None) -> HealthVerdict:
    """
    Judge a listing of health checks. In doubt it is not healthy.

    :param checks: the listing.
    :param criteria: which checks are looked at and what makes them healthy.
    :param now: when the listing was fetched, aware; None (default): now.
    :return: the verdict.
    """
    verdict = HealthVerdict(fetched_at=now or datetime.now(timezone.utc))
    judging = _Judging(criteria, verdict.fetched_at)
    unfiltered = criteria.groups is criteria.components is criteria.checks is None
    selected = checks if unfiltered else [check for check in checks if _is_selected(check, criteria)]
    oldest: datetime | None = None
    for check in selected:
        group = verdict.groups.get(check.listed_under)
        if group is None:
            group = verdict.groups[check.listed_under] = GroupCount()
        group.total += 1
        updated = check.last_update_date
        if updated is not None and (oldest is None or updated < oldest):
            oldest = updated
        reasons = judging.faults(check)
        if reasons:
            group.unhealthy += 1
            verdict.unhealthy += 1
            verdict.problems.append(Problem("; ".join(reasons), check))
    verdict.total = len(selected)
    verdict.oldest_update = oldest
    # What is wrong with the listing as a whole explains the rest: it comes first.
    verdict.problems[:0] = [Problem(reason) for reason in judging.faults_of_listing(checks, selected)]
    return verdict


def _is_selected(check: HealthCheck, criteria: HealthCriteria) -> bool:
    return (
        (criteria.groups is None or check.listed_under in criteria.groups)
        and (criteria.components is None or check.component_name in criteria.components)
        and (criteria.checks is None or check.health_check in criteria.checks)
    )


class _Judging:
    """Judge check after check by one set of criteria; remembers which required results it has seen."""

    def __init__(self, criteria: HealthCriteria, now: datetime) -> None:
        self._criteria = criteria
        self._now = now
        self._required = frozenset(criteria.require_results or ())
        self._seen: set[str] = set()
        # Few words come again and again: lower-casing them once each is enough.
        self._known: dict[str, bool] = {}

    def _is_healthy(self, word: str) -> bool:
        known = self._known.get(word)
        if known is None:
            known = self._known[word] = word.lower() in self._criteria.healthy_statuses
        return known

    def faults(self, check: HealthCheck) -> list[str]:
        # Straight from the wire: this runs for each of ten thousand checks.
        wire = check.wire
        reasons = []
        status = wire.get("status")
        if status is None:
            reasons.append("it has no status")
        elif not self._is_healthy(status):
            reasons.append(f"its status is {readable(status, 60)!r}")
        report = wire.get("report")
        if report is not None:
            said = report.get("status")
            if said is None:
                reasons.append("its report has no status")
            elif said != status and not self._is_healthy(said):
                reasons.append(f"its report's status is {readable(said, 60)!r}")
            if report.get("error"):
                reasons.append(f"its report has an error: {readable(report['error'], 160)}")
            elif reasons and report.get("message"):
                reasons.append(f"its report says: {readable(report['message'], 160)}")
            if self._required:
                results = report.get("results") or {}
                for key in self._required.intersection(results):
                    self._seen.add(key)
                    word = results[key]
                    if word is None or not self._is_healthy(word):
                        reasons.append(f"its result for {key} is {readable(word, 100)!r}")
        if self._criteria.require_fresh:
            valid_until = check.valid_until_date
            if valid_until is None:
                reasons.append("it does not say readably until when it is valid")
            elif valid_until < self._now:
                reasons.append(f"it was valid until {valid_until:%Y-%m-%d %H:%M:%S} UTC only")
        tenant = self._criteria.tenant_id
        if tenant is not None and wire.get("tenantId") not in (None, tenant):
            reasons.append(f"it belongs to another tenant than {tenant}, which was asked for")
        group = wire.get("group")
        if group is not None and group != check.listed_under:
            reasons.append(f"it names another group, {readable(group, 60)!r}, than it is listed under")
        return reasons

    def faults_of_listing(self, checks: Sequence[HealthCheck], selected: Sequence[HealthCheck]) -> list[str]:
        criteria = self._criteria
        if not checks:
            of_tenant = f" of tenant {criteria.tenant_id}" if criteria.tenant_id else ""
            return [f"the service lists no health checks{of_tenant}"]
        reasons = []
        for kind, wanted, attribute in (
            ("group", criteria.groups, "listed_under"),
            ("component", criteria.components, "component_name"),
            ("check", criteria.checks, "health_check"),
        ):
            left = {getattr(check, attribute) for check in selected}
            for name in sorted(set(wanted or ()) - left):
                elsewhere = any(getattr(check, attribute) == name for check in checks)
                why = "is left by the other filters" if elsewhere else "exists"
                reasons.append(f"no {kind} named {readable(name, 80)!r} {why}")
        if not selected and not reasons:
            reasons.append("no health check is left after filtering")
        for key in sorted(self._required - self._seen):
            reasons.append(f"no check reports a result for {readable(key, 80)!r}")
        return reasons
