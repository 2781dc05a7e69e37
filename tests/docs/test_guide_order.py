"""Who copies a guide's parts one after the other gets a DAG in which nothing precedes the decision."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import AIRFLOW

ROOT = Path(__file__).parent.parent.parent
_PART = re.compile(r'```\{literalinclude\} \.\./\.\./(\S+\.py)\n(?::.*\n)*?:start-after: "(.+)"\n:end-before: "(.+)"')


def dag_of(guide: str, example: str) -> Any:
    """Return the DAG that the parts of a guide make, with the imports of an example, but none of its own order."""
    source = (ROOT / "example_dags" / f"{example}.py").read_text(encoding="utf-8")
    parts = [
        textwrap.dedent(
            (ROOT / file).read_text(encoding="utf-8").split(start + "\n")[1].split(f"# {end}")[0].rstrip(" ")
        )
        for file, start, end in _PART.findall((ROOT / "docs" / "how-to" / guide).read_text(encoding="utf-8"))
        if "mapping" not in file
    ]
    assert len(parts) >= 5
    code = (
        source.split("with DAG(")[0]
        + "with DAG('guide', schedule=None) as dag:\n"
        + textwrap.indent("".join(parts), " ")
    )
    scope: dict[str, Any] = {"__name__": "guide", "__doc__": ""}
    exec(compile(code, guide, "exec"), scope)
    return scope["dag"]


@pytest.mark.skipif(AIRFLOW < (3, 1), reason="nobody is asked there")
@pytest.mark.parametrize(
    ("guide", "example", "decision", "after"),
    [
        (
            "one-request.md",
            "custody_whitelist_complete",
            "decide",
            {"what_was_decided", "sign_first", "sign_second", "reject", "wait_until_effective"},
        ),
        (
            "whitelist-file.md",
            "custody_whitelist_as_code",
            "approve",
            {"apply", "sign_first", "sign_second", "wait_until_effective", "prove"},
        ),
    ],
)
def test_what_is_signed_waits_for_the_decision(guide: str, example: str, decision: str, after: set[str]) -> None:
    dag = dag_of(guide, example)
    assert {task.task_id for task in dag.get_task(decision).get_flat_relatives(upstream=False)} == after
    chain = [task.task_id for task in dag.topological_sort() if task.task_id.startswith(("sign", "wait"))]
    assert chain == ["sign_first", "sign_second", "wait_until_effective"]
