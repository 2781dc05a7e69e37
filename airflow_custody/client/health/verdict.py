"""The verdict on health checks: criteria, evaluation and waiting. Nothing here reads from the service."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from functools import cache
from typing import Any

from airflow_custody.client.arguments import check_identifier, check_names
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.health.models import (
    HealthCheck,
    HealthListing,
    HealthReport,
    WireHealthCheck,
    WireHealthReport,
)
from airflow_custody.client.text import ascii_lower, count, count_of, sanitize
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.wait_state import WaitState

# Maximum number of problems in a verdict's JSON, their maximum size, and maximum number of groups. They keep the JSON
# small.
_MAX_PROBLEMS = 50
_MAX_PROBLEM_BYTES = 65_536
_MAX_GROUPS = 50
# Maximum numbers of results and of connections of one report in a verdict's JSON.
_MAX_RESULTS = 30
_MAX_CLIENTS = 5
_MAX_PROBLEMS_IN_SUMMARY = 3
# Maximum number of existing names in a reason, and maximum length of the reason.
_MAX_EXISTING_NAMES = 10
_MAX_REASON = 800


@dataclass(frozen=True)
class HealthCriteria:
    """
    The checks to evaluate, and the conditions under which they are healthy.

    Create criteria with :meth:`of` or :meth:`from_fields`, which check the values.

    :param tenant_id: id of the tenant whose checks are requested; None: all tenants.
    :param groups: exact names of the groups whose checks are evaluated; None: all groups.
    :param components: exact names of the components whose checks are evaluated; None: all components.
    :param checks: exact names of the checks that are evaluated; None: all checks.
    :param require_results: keys, such as currency codes. At least one check must report each key, and every report that
        has the key must have a healthy result for it.
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

    @property
    def is_selection(self) -> bool:
        """Whether only some of the service's checks are evaluated."""
        return any(each is not None for each in (self.tenant_id, self.groups, self.components, self.checks))

    @classmethod
    def of(cls, **given: Any) -> HealthCriteria:
        """
        Return criteria from parameters whose templates have been rendered.

        The parameters are those of the class. A single name may be given as a string. An empty list is refused, because
        it probably comes from a template that rendered to nothing. If it were accepted, results would no longer be
        required (``require_results``), or no check would be selected.

        :raises CustodyConfigurationError: if a parameter is malformed; ``setting`` names it.
        """
        checked: dict[str, Any] = {}
        for name, value in given.items():
            if name == "require_fresh":
                fault = None if isinstance(value, bool) else "must be True or False"
            elif name == "tenant_id":
                fault = None
                value = value if value is None else check_identifier(name, value, CustodyConfigurationError)
            else:
                names = check_names(name, value, CustodyConfigurationError)
                fault = "is missing" if names is None and name == "healthy_statuses" else None
                value = names if names is None else tuple(names)
            if fault is not None:
                raise CustodyConfigurationError(f"{name} {fault}", setting=name, code="parameter-wrong")
            checked[name] = value
        if "healthy_statuses" in checked:
            checked["healthy_statuses"] = tuple(map(ascii_lower, checked["healthy_statuses"]))
        return cls(**checked)

    @classmethod
    def from_fields(cls, given: object) -> HealthCriteria:
        """
        Return the criteria of an operator, sensor or trigger, whose fields have the names of the parameters.
        """
        return cls.of(**{each.name: getattr(given, each.name) for each in fields(cls)})


@dataclass(frozen=True)
class Problem:
    """
    A reason why the service does not count as healthy.

    :param reason: the reason, as text.
    :param check: the check with the problem; None: the problem is about the listing as a whole.
    :param missing: if the listing lacks a name of the criteria: the criterion and the name. None: there is another
        reason.
    """

    reason: str
    check: HealthCheck | None = None
    missing: tuple[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """
        Return the problem as small, plain JSON data.

        A problem of a check has all fields of its entry.
        """
        check = self.check
        if check is None:
            return {"reason": sanitize(self.reason, _MAX_REASON)}
        updated, valid = check.last_update_date, check.valid_until_date
        return {
            "group": _short(check.listed_under),
            "component": _short(check.component_name),
            "component_id": _short(check.component_id),
            "check": _short(check.health_check),
            "tenant_id": _short(check.tenant_id),
            "status": _short(check.status),
            "reason": _short(self.reason),
            "last_update_date": updated and updated.isoformat(),
            "valid_until_date": valid and valid.isoformat(),
            "report": _report_to_json(check.report),
        }

    def __str__(self) -> str:
        check = self.check
        if check is None:
            return sanitize(self.reason, _MAX_REASON)
        names = [sanitize(each, 60) for each in (check.listed_under, check.component_name, check.health_check) if each]
        tenant = f" (tenant {sanitize(check.tenant_id, 20)})" if check.tenant_id else ""
        return f"{' / '.join(names)}{tenant}: {sanitize(self.reason)}"


def _short(text: str | None, limit: int = 200) -> str | None:
    return None if text is None else sanitize(text, limit)


def _report_to_json(report: HealthReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    results, clients = list(report.results.items()), report.vaultd_clients
    return {
        "name": _short(report.name),
        "status": _short(report.status),
        "duration_seconds": None if report.duration is None else report.duration.total_seconds(),
        "results": {sanitize(key, 40): _short(word, 100) for key, word in results[:_MAX_RESULTS]},
        "results_not_named": max(0, len(results) - _MAX_RESULTS),
        "message": _short(report.message),
        "error": _short(report.error),
        "vaultd_clients": [
            {
                "host_port": _short(each.host_port, 100),
                "connected": each.connected,
                "error": _short(each.error, 100),
                "last_ping": each.last_ping and each.last_ping.isoformat(),
            }
            for each in clients[:_MAX_CLIENTS]
        ],
        "vaultd_clients_not_named": max(0, len(clients) - _MAX_CLIENTS),
    }


@dataclass
class GroupCount:
    """The number of checks of one group."""

    total: int = 0
    unhealthy: int = 0


@dataclass(frozen=True)
class HealthVerdict:
    """
    The verdict on the service's health, with reasons.

    :param fetched_at: time of fetching the listing.
    :param total: the number of checks that were evaluated.
    :param unhealthy: the number of evaluated checks that are not healthy.
    :param groups: the same two numbers for each group, by its name.
    :param problems: all problems.
    :param oldest_update: time of the last run of the check that ran longest ago; None: unknown, because a time is
        missing or unreadable, or there are no checks.
    :param checks: the checks that were evaluated.
    :param is_selection: whether the criteria select some of the service's checks. Default False.
    """

    fetched_at: datetime
    total: int = 0
    unhealthy: int = 0
    groups: dict[str, GroupCount] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    oldest_update: datetime | None = None
    checks: Sequence[HealthCheck] = ()
    is_selection: bool = False

    @property
    def healthy(self) -> bool:
        """Whether at least one check was evaluated, and there are no problems."""
        return self.total > 0 and not self.problems

    @property
    def missing(self) -> frozenset[tuple[str, str]]:
        """The names of the criteria that the listing lacks, each with its criterion."""
        return frozenset(problem.missing for problem in self.problems if problem.missing is not None)

    def wrong_names(self, named: Callable[[str], str] = repr) -> CustodyRequestError:
        """
        Return the error for criteria with names that the service does not list.

        The error blames the parameter, and not the service's health.

        :param named: returns the name of a criterion for the user. Default: the name in quotation marks.
        """
        settings = sorted({setting for setting, _ in self.missing})
        reasons = self._some([problem for problem in self.problems if problem.missing is not None])
        return CustodyRequestError(
            reasons,
            setting=settings[0],
            advice=f"Correct {' and '.join(map(named, settings))}: names are compared exactly.",
            code="parameter-wrong",
        )

    def to_json(self) -> dict[str, Any]:
        """
        Return the verdict as plain JSON data of limited size.

        :return: ``healthy``, ``total``, ``unhealthy``, ``groups`` (``{name: {"total", "unhealthy"}}``, the unhealthy
            ones first), ``groups_not_named``, ``problems`` (the first 50, at most 64 KiB; a problem of a check has the
            fields of its entry), ``problems_not_named``, ``oldest_result_age_seconds`` (None: unknown for a check) and
            ``fetched_at`` (ISO 8601).
        """
        problems: list[dict[str, Any]] = []
        room = _MAX_PROBLEM_BYTES
        for problem in self.problems[:_MAX_PROBLEMS]:
            row = problem.to_json()
            room -= len(json.dumps(row))
            if problems and room < 0:
                break
            problems.append(row)
        age = None if self.oldest_update is None else (self.fetched_at - self.oldest_update).total_seconds()
        by_need = sorted(self.groups.items(), key=lambda item: -item[1].unhealthy)
        return {
            "healthy": self.healthy,
            "total": self.total,
            "unhealthy": self.unhealthy,
            "groups": {sanitize(name, 100): vars(group) for name, group in by_need[:_MAX_GROUPS]},
            "groups_not_named": max(0, len(self.groups) - _MAX_GROUPS),
            "problems": problems,
            "problems_not_named": len(self.problems) - len(problems),
            "oldest_result_age_seconds": None if age is None else max(0.0, round(age, 3)),
            "fetched_at": self.fetched_at.isoformat(),
        }

    def summary(self) -> str:
        """Return the verdict in one line, with the first reasons."""
        if self.healthy:
            return self.headline()
        return f"{self.headline()}: {self._some(self.problems) or 'no health check was evaluated'}"

    @staticmethod
    def _some(problems: Sequence[Problem]) -> str:
        """Return the first problems, and the number of further ones."""
        more = len(problems) - _MAX_PROBLEMS_IN_SUMMARY
        reasons = "; ".join(map(str, problems[:_MAX_PROBLEMS_IN_SUMMARY]))
        return f"{reasons}; and {more} more" if more > 0 else reasons

    def headline(self) -> str:
        """Return the verdict in one line, without reasons."""
        if self.missing:
            return "the service's health is unknown"
        selected = "selected " if self.is_selection else ""
        if self.healthy and self.is_selection:
            # Report only the selected checks as healthy, because other checks of the service may fail.
            number = f"{self.total} " if self.total > 1 else ""
            return f"the {number}selected {'check is' if self.total == 1 else 'checks are'} healthy"
        if self.healthy:
            return f"the service is healthy: {count_of(self.total, self.total, 'check')} healthy"
        # If no check is unhealthy, the problem is about the listing as a whole, so omit the number.
        counts = f" ({self.unhealthy} of {count(self.total, f'{selected}check')} unhealthy)" if self.unhealthy else ""
        return f"the service is not healthy{counts}"

    def table(self) -> Iterator[str]:
        """
        Yield the verdict as lines for a log.

        There is a row for each group, followed by all problems.
        """
        rows = [(sanitize(name, 40), group) for name, group in sorted(self.groups.items())]
        rows.append(("all", GroupCount(self.total, self.unhealthy)))
        width = max(5, *(len(name) for name, _ in rows))
        yield f"{'group':<{width}}  checks  healthy  not healthy"
        for name, group in rows:
            yield f"{name:<{width}}  {group.total:>6}  {group.total - group.unhealthy:>7}  {group.unhealthy or '-':>11}"
        yield from self.details()

    def details(self) -> Iterator[str]:
        """Yield a line with the oldest result, and all problems."""
        if self.oldest_update is not None:
            yield f"oldest result: {self.oldest_update:%Y-%m-%d %H:%M:%S} UTC"
        elif self.total:
            yield "oldest result: unknown, because some checks have no readable time of their last run"
        for problem in self.problems:
            yield f"NOT HEALTHY: {problem}"


class HealthWait:
    """
    A wait until the service is healthy, in a worker or in the triggerer.

    The wait fails if a name in the criteria is missing from two listings in a row. One listing is not enough, because
    the service may just be starting.

    :param criteria: which checks are evaluated and what makes them healthy.
    """

    #: The verdict of the last poll.
    verdict: HealthVerdict

    def __init__(self, criteria: HealthCriteria) -> None:
        self.criteria = criteria
        self._missing: frozenset[tuple[str, str]] = frozenset()

    def update(self, check_health: Callable[[HealthCriteria], HealthVerdict]) -> WaitState:
        """
        Return the state after a poll.

        :param check_health: evaluates the current listing by the criteria, and returns the verdict.
        :raises CustodyError: any error of ``check_health``.
        """
        verdict = self.verdict = check_health(self.criteria)
        missing_again, self._missing = self._missing & verdict.missing, verdict.missing
        return WaitState(
            verdict.healthy,
            verdict.summary(),
            verdict.to_json(),
            error=verdict.wrong_names() if missing_again else None,
            in_doubt=bool(verdict.missing),
            advice="`custody health` lists all checks. If the service needs longer, increase 'timeout'.",
        )


def judge(checks: HealthListing, criteria: HealthCriteria, now: datetime | None = None) -> HealthVerdict:
    """
    Evaluate a listing of health checks. Anything unclear is not healthy.

    :param checks: the listing.
    :param criteria: which checks are evaluated and what makes them healthy.
    :param now: time of fetching the listing, with a time zone; None (default): now. If the service's clock is ahead,
        its time is used instead, so that expired checks are not accepted because the local clock is behind.
    :return: the verdict.
    """
    now = now or datetime.now(timezone.utc)
    if checks.date is not None:
        now = max(now, checks.date)
    # Cache the comparison, because thousands of checks have the same few words.
    is_healthy = cache(lambda word: ascii_lower(word) in criteria.healthy_statuses)
    selected = _select(checks, criteria)
    groups: dict[str, GroupCount] = defaultdict(GroupCount)
    problems = []
    for check in selected:
        group = groups[check.listed_under]
        group.total += 1
        if reasons := _check_faults(check, criteria, now, is_healthy):
            group.unhealthy += 1
            problems.append(Problem("; ".join(reasons), check))
    # Problems of the listing as a whole come first, because they explain the other problems.
    listing = _problems_of_listing(checks, selected, criteria, is_complete=not problems)
    # If the time of a check is unknown, that check may be the oldest, so the oldest time is unknown, too.
    updates = {parse_timestamp(text) for text in {check.wire.get("lastUpdateDate") for check in selected}}
    oldest = None if None in updates else min(filter(None, updates), default=None)
    return HealthVerdict(
        now,
        len(selected),
        len(problems),
        dict(groups),
        [*listing, *problems],
        oldest,
        selected,
        is_selection=criteria.is_selection,
    )


def _check_faults(
    check: HealthCheck, criteria: HealthCriteria, now: datetime, is_healthy: Callable[[str], bool]
) -> list[str]:
    """
    Return why a check is not healthy; empty if it is healthy.

    For speed, the data is read as received, because a listing may have ten thousand checks.
    """
    if not check.is_readable:
        return ["the group could not be read: it has no 'healthChecks'"]
    wire = check.wire
    faults = _status_faults(wire, is_healthy)
    report = wire.get("report")
    if report is not None:
        faults += _report_text_faults(report, is_healthy_so_far=not faults)
        results = report.get("results")
        if results:
            faults += _result_faults(results, criteria, is_healthy)
    if criteria.require_fresh:
        faults += _validity_faults(wire.get("validUntilDate"), now)
    return faults + _place_faults(check, criteria)


def _status_faults(wire: WireHealthCheck, is_healthy: Callable[[str], bool]) -> list[str]:
    """
    Return the faults in the two status words of a check: its own, and its report's.
    """
    faults = []
    status, report = wire.get("status"), wire.get("report")
    if status is None:
        faults.append("it has no status")
    elif not is_healthy(status):
        faults.append(f"its status is {sanitize(status, 60)!r}")
    if report is None:
        return faults
    report_status = report.get("status")
    if report_status is None:
        faults.append("its report has no status")
    elif report_status != status and not is_healthy(report_status):
        faults.append(f"its report's status is {sanitize(report_status, 60)!r}")
    return faults


def _report_text_faults(report: WireHealthReport, *, is_healthy_so_far: bool) -> list[str]:
    """Return a report's error, or the message that explains a fault."""
    error, message = report.get("error"), report.get("message")
    if error:
        return [f"its report has an error: {sanitize(error, 160)}"]
    if message and not is_healthy_so_far:
        return [f"its report's message is: {sanitize(message, 160)}"]
    return []


def _result_faults(
    results: Mapping[str, str | None], criteria: HealthCriteria, is_healthy: Callable[[str], bool]
) -> list[str]:
    """Return a fault for each required result of a check that is not healthy."""
    faults = []
    for key in criteria.require_results or ():
        if key not in results:
            continue
        word = results[key]
        if word is None or not is_healthy(word):
            faults.append(f"its result for {key} is {sanitize(word, 100)!r}")
    return faults


def _validity_faults(text: str | None, now: datetime) -> list[str]:
    """Return the faults in the expiry of a check."""
    valid_until = parse_timestamp(text)
    if valid_until is None:
        return ["its expiry date is missing or unreadable"]
    if valid_until < now:
        return [f"it expired at {valid_until:%Y-%m-%d %H:%M:%S} UTC"]
    return []


def _place_faults(check: HealthCheck, criteria: HealthCriteria) -> list[str]:
    """Return the faults in the tenant and the group of a check."""
    faults = []
    wire = check.wire
    if criteria.tenant_id is not None and wire.get("tenantId") not in (None, criteria.tenant_id):
        faults.append(f"it does not belong to the requested tenant {criteria.tenant_id}")
    if wire.get("group") not in (None, check.listed_under):
        faults.append(f"its own group is {sanitize(wire['group'], 60)!r}, but it is listed under another group")
    return faults


# --- the listing as a whole ----------------------------------------------------------------------------------

_FILTERS: dict[str, tuple[str, Callable[[HealthCheck], str | None]]] = {
    "groups": ("group", lambda check: check.listed_under),
    "components": ("component", lambda check: check.component_name),
    "checks": ("check", lambda check: check.health_check),
}


def _select(
    checks: Sequence[HealthCheck], criteria: HealthCriteria, without: str | None = None
) -> Sequence[HealthCheck]:
    """Return the checks that pass the filters."""
    for setting, (_, name_of) in _FILTERS.items():
        wanted: tuple[str, ...] | None = getattr(criteria, setting)
        if wanted is not None and setting != without:
            names = frozenset(wanted)
            # An unreadable check stands for its whole group. Its component and name are unknown, so it passes the
            # filters for these.
            any_name = setting != "groups"
            checks = [each for each in checks if name_of(each) in names or (any_name and not each.is_readable)]
    return checks


def _problems_of_listing(
    checks: Sequence[HealthCheck], selected: Sequence[HealthCheck], criteria: HealthCriteria, *, is_complete: bool
) -> list[Problem]:
    """
    Return the problems of a listing as a whole.

    :param checks: the listing.
    :param selected: the checks that the criteria select.
    :param criteria: the criteria.
    :param is_complete: whether all selected checks are healthy, so that all results must be there.
    """
    if not checks:
        of_tenant = f" of tenant {sanitize(criteria.tenant_id, 20)}" if criteria.tenant_id else ""
        return [Problem(f"the service lists no health checks{of_tenant}")]
    # Look first for names that do not exist at all, because such a name explains why the filters together select
    # nothing.
    problems = _missing_names(checks, checks, criteria, "exists")
    if not problems:
        problems = _missing_names(checks, selected, criteria, "matches the other filters")
    if not problems and not selected:
        problems = [Problem("no health check matches the filters")]
    if criteria.require_results:
        problems += _missing_results(selected, criteria.require_results, is_complete=is_complete)
    return problems


def _missing_names(
    checks: Sequence[HealthCheck], searched: Sequence[HealthCheck], criteria: HealthCriteria, predicate: str
) -> list[Problem]:
    """
    Return a problem for each filtered name that no check has.

    :param checks: the listing.
    :param searched: the checks to search for the names.
    :param criteria: the criteria with the filters.
    :param predicate: the end of the sentence that begins with ``no check named ...``.
    """
    problems: list[Problem] = []
    for setting, (kind, name_of) in _FILTERS.items():
        wanted: Sequence[str] = getattr(criteria, setting) or ()
        absent = sorted(set(wanted) - set(map(name_of, searched)))
        if absent:
            existing = map(name_of, _select(checks, criteria, without=setting) or checks)
            problems += _missing(setting, absent, f"no {kind} named {{}} {predicate}", existing)
    return problems


def _missing_results(selected: Sequence[HealthCheck], required: Sequence[str], *, is_complete: bool) -> list[Problem]:
    """Return a problem for each required result that no check reports."""
    reported: list[str] = []
    for check in selected:
        report = check.wire.get("report") or {}
        reported += report.get("results") or ()
    absent = sorted(set(required) - set(reported))
    problems = list(_missing("require_results", absent, "no check reports a result for {}", reported))
    if is_complete:
        return problems
    # If a check is unhealthy, it may not report its results. A missing result then does not prove that the name is
    # wrong.
    return [Problem(each.reason) for each in problems]


def _missing(setting: str, absent: Sequence[str], words: str, existing: Iterable[str | None]) -> Iterator[Problem]:
    """
    Yield a problem for each missing name.

    The first problem also lists existing names.
    """
    for number, name in enumerate(absent):
        reason = words.format(repr(sanitize(name, 80)))
        if number == 0:
            kind = "results" if setting == "require_results" else setting
            names = sorted({each for each in existing if each})
            named = ", ".join(repr(sanitize(each, 40)) for each in names[:_MAX_EXISTING_NAMES])
            more = len(names) - _MAX_EXISTING_NAMES
            reason += f"; the {kind} are {named}" if names else f"; there are no {kind}"
            reason += f" and {more} more" if more > 0 else ""
        yield Problem(reason, missing=(setting, name))
