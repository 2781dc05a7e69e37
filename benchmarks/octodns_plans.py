"""
Compares planning a whitelist file with octoDNS planning a zone file.

Both read a file with the same number of rows. The existing requests or records are in memory.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from side_by_side import HOME, compare, service
from whitelist_files import write_file

ZONE = "example.com."


def octodns_plans(rounds: int, rows: int) -> None:
    """
    Compare the processor time of planning.

    Half of the rows exist already, and half are to be created. As many existing objects are to be deleted.
    """
    compare(
        f"plan {rows:,} rows in memory, in processor time (aim: 0.5)",
        rounds,
        {"this package": _processor_time(_this_package(rows)), "octoDNS": _processor_time(_octodns(rows))},
    )


def _processor_time(work: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return run


def _this_package(rows: int) -> Callable[[], object]:
    from airflow_custody.client import CustodyClient
    from airflow_custody.client.whitelist.files.reading import read_whitelist_file
    from airflow_custody.client.whitelist.plans.planner import PlanSettings, make_plan
    from airflow_custody.client.whitelist.plans.report import plan_to_markdown
    from airflow_custody.client.whitelist.snapshot import read_snapshot, service_name

    path = write_file(rows, HOME / "octodns.yaml")
    with service() as (control, url, token), CustodyClient(url, token) as client:
        control.add_whitelist_requests(
            [
                {"label": f"Label {each}", "address": f"0x{each:040x}", "blockchain": "ETH"}
                for each in range(rows // 2, rows // 2 + rows)
            ]
        )
        snapshot, name = read_snapshot(client), service_name(client)

    def plan() -> None:
        read = read_whitelist_file(path)
        made = make_plan(read.rows, snapshot, PlanSettings(prune=True), service=name)
        assert made.plan_hash
        assert plan_to_markdown(made)

    return plan


def _octodns(rows: int) -> Callable[[], object]:
    from octodns.provider.base import BaseProvider
    from octodns.provider.plan import PlanMarkdown
    from octodns.provider.yaml import YamlProvider
    from octodns.record import Record
    from octodns.zone import Zone

    # Hide its log of each record that changes.
    logging.getLogger("Zone").setLevel(logging.ERROR)

    def record(zone: Zone, number: int) -> Record:
        data = {"type": "A", "ttl": 300, "value": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"}
        return Record.new(zone, f"row-{number:06}", data)

    class InMemory(BaseProvider):  # type: ignore[misc]
        SUPPORTS = frozenset({"A"})
        SUPPORTS_GEO = SUPPORTS_DYNAMIC = False
        log = logging.getLogger("InMemory")

        def populate(self, zone: Zone, target: bool = False, lenient: bool = False) -> bool:
            for each in existing:
                zone.add_record(each, lenient=True)
            return True

    folder = HOME / "octodns"
    folder.mkdir()
    _write_zone(folder / f"{ZONE}yaml", rows)
    zone = Zone(ZONE, [])
    existing = [record(zone, number) for number in range(rows // 2, rows // 2 + rows)]
    options: dict[str, Any] = {"update_pcent_threshold": 1.0, "delete_pcent_threshold": 1.0}
    target = InMemory("target", **options)

    def plan() -> None:
        desired = Zone(ZONE, [])
        YamlProvider("file", str(folder), escaped_semicolons=False).populate(desired)
        made = target.plan(desired)
        assert made.change_counts == {"Create": rows // 2, "Delete": rows // 2, "Update": 0}
        made.raise_if_unsafe()
        text = io.StringIO()
        PlanMarkdown("markdown").run([(target, made)], fh=text)
        assert text.getvalue()

    return plan


def _write_zone(path: Path, rows: int) -> None:
    path.write_text(
        "".join(
            f"row-{number:06}: {{ttl: 300, type: A, value: 10.{number >> 16}.{number >> 8 & 255}.{number & 255}}}\n"
            for number in range(rows)
        )
    )
