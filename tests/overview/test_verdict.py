"""What is wrong by an overview."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow_custody.overview.models import HealthView, Overview, RequestRow, RequestsView, Section
from airflow_custody.overview.verdict import judge_overview, to_json

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)


def test_many_that_are_wrong_are_counted() -> None:
    rows = tuple(RequestRow(str(number), "APPROVED", trust="unverified") for number in range(50))
    healthy = Section(HealthView(healthy=True, summary="", checks=()))
    overview = Overview(NOW, "https://custody.example.com", health=healthy, recent=Section(RequestsView(rows)))
    verdict = judge_overview(overview)
    assert len(verdict.wrong) == 21
    assert verdict.wrong[0] == "whitelisting request 0 (in effect): not verified"
    assert verdict.wrong[-1] == "and 30 other requests with such a problem"
    assert to_json(overview)["read_at"] == "2026-06-01T00:00:00+00:00"


def test_what_could_not_be_read_at_all_is_said_once() -> None:
    failed: Section[object] = Section(problem="away")
    overview = Overview(NOW, "", failed, failed, failed, failed, failed, failed)  # type: ignore[arg-type]
    assert judge_overview(overview).unread == ("away",)
