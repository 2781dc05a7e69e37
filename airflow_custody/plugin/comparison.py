"""What a task asked for, next to what the service shows. Pure functions, no I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_custody.client.whitelist import models
from airflow_custody.client.whitelist.review import Comparison, Finding, Verdict, compare, envelope_faults

if TYPE_CHECKING:
    from airflow_custody.overview.models import RequestView

_NOTHING: tuple[object, ...] = (None, "", [])


@dataclass(frozen=True)
class ComparedField:
    """
    A field of a request, as it was asked for and as it is shown.

    :param name: its name: a parameter's, or a key of the payload that no parameter has.
    :param asked: what was asked for; empty: nothing.
    :param shown: what the service shows; empty: nothing.
    :param verdict: how they compare.
    :param note: what there is to know about it; empty: nothing.
    """

    name: str
    asked: str
    shown: str
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True)
class Compared:
    """
    A request, compared with what a task asked for.

    :param fields: the fields that were asked for, or are shown; empty if they cannot be compared.
    :param problems: why they cannot be compared, or where the request contradicts itself.
    :param same: whether the service shows what was asked for, all of it.
    """

    fields: tuple[ComparedField, ...] = ()
    problems: tuple[str, ...] = ()
    same: bool = False

    @property
    def summary(self) -> str:
        """How they compare, in one line."""
        if self.same:
            return "It is what the task asked for."
        if self.problems or any(each.verdict == "differs" for each in self.fields):
            return "It is not what the task asked for, or contradicts itself."
        return "It may not be what the task asked for: not all of it can be told."


def compare_with(view: RequestView, asked_for: Mapping[str, Any]) -> Compared:
    """
    Compare a request with what a task asked for, as approving does.

    :param view: the request.
    :param asked_for: the fields that the task asked for, by the names of the parameters.
    """
    request, faults = models.read_request(asked_for)
    if request is None:
        return Compared(
            problems=("They cannot be compared: what the task asked for cannot be read.", *map(str, faults))
        )
    if view.payload is None or view.envelope is None:
        return Compared(problems=("They cannot be compared: the payload that the service shows cannot be used.",))
    comparison = compare(request, view.payload, network=view.envelope.network)
    problems = envelope_faults(view.envelope, view.payload, request)
    fields = tuple(_fields(comparison, view.payload))
    return Compared(fields, problems, same=comparison.same and not problems)


def _fields(comparison: Comparison, payload: Mapping[str, Any]) -> list[ComparedField]:
    found = []
    for each in comparison.findings:
        asked, shown = each.values or (None, payload.get(each.key))
        is_description = "." in each.key and each.filled_in
        if is_description or (asked in _NOTHING and shown in _NOTHING and each.verdict == "same"):
            # A link's own description is the service's; and nothing is as good as nothing.
            continue
        found.append(ComparedField(each.name, _text(asked), _text(shown), each.verdict, _note(each)))
    return found


def _note(finding: Finding) -> str:
    if finding.unasked:
        return "nobody asked for it"
    if finding.filled_in:
        return "the service's own value"
    return "no signature covers it" if finding.outside else ""


def _text(value: Any) -> str:
    """Return a value as text; of links, their ids."""
    if value in _NOTHING:
        return ""
    if isinstance(value, list):
        return ", ".join(_text(each.get("id") if isinstance(each, dict) else each) for each in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
