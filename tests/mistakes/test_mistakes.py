"""The table of the twenty mistakes in the documentation is what a user sees."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from airflow_runs import AIRFLOW, new_dag, run_dag
from authorities import Authority
from mistakes.ways import World, as_json, connections, make_world, tasks
from task_log import TaskLog

from airflow_custody.cli.main import main
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator

ROOT = Path(__file__).parents[2]
# A screen's line or two. Some name a connection, a path and two roles.
MAX_LENGTH = 340
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_LINE = re.compile(r"\[error +\] (.*?) +\[airflow\.task\.[\w.]*airflow_custody[\w.]*\]")
_BLOCKED = """
import sys
sys.modules["uvicorn"] = None
from airflow_custody.sandbox.__main__ import main
sys.exit(main([]))
"""


class Row(NamedTuple):
    mistake: str
    text: str
    code: str
    advice: str

    @property
    def with_code(self) -> str:
        """The text as an error has it."""
        return f"{self.text} [custody/{self.code}]" if self.code else self.text


def table() -> dict[int, Row]:
    """Return the table of the documentation, by number."""
    page = (ROOT / "docs" / "mistakes.md").read_text()
    found = re.findall(
        r"^\| (\d+) \| (.+?) \| (.+?)(?: \[`\[custody/(.+?)\]`\]\(#custody-\4\))? \| (.+?) \|$", page, re.MULTILINE
    )
    return {int(number): Row(*cells) for number, *cells in found}


TABLE = table()
CONNECTIONS = (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12)
# Not by a task: the test of a connection, and the command line.
NO_TASK = (12, 16)


@pytest.fixture(scope="module")
def world(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with make_world(authority, tmp_path_factory.mktemp("dags")) as made:
        yield made


@pytest.fixture
def mistaken(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Define the connections that have a mistake."""
    for number, connection in connections(world).items():
        monkeypatch.setenv(f"AIRFLOW_CONN_MISTAKE_{number}", as_json(connection))
    return world


def normalized(text: str, world: World) -> str:
    """Return a text with what differs from run to run as the documentation has it."""
    for real, shown in world.places().items():
        text = text.replace(real, shown)
    text = text.replace("the proxy custody.example.com", "the proxy proxy.example.com:3128")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "2026-01-31 12:00:00 UTC", text)
    return re.sub(r"'mistake_\d+'", "'custody_default'", text)


def in_a_test(text: str) -> str:
    """Return a text as the test of a connection has it: Airflow makes up an id for that."""
    text = text.removeprefix("Airflow connection 'custody_default', ")
    return text.replace("the Airflow connection 'custody_default'", "this connection")


def test_the_table_has_twenty_rows_and_each_text_is_a_short_line() -> None:
    assert list(TABLE) == list(range(1, 21))
    for number, row in TABLE.items():
        assert len(row.text) <= MAX_LENGTH, number
        assert row.text.count("custody_default") <= 1, number


@pytest.mark.parametrize("number", CONNECTIONS)
def test_the_test_of_a_connection(mistaken: World, number: int) -> None:
    good, text = CustodyHook(f"mistake_{number}").test_connection()
    assert (good, normalized(text, mistaken)) == (False, in_a_test(TABLE[number].with_code))


@pytest.mark.parametrize("number", CONNECTIONS)
def test_custody_check_fails_too(mistaken: World, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--conn-id", f"mistake_{number}"]) == 1
    # The operation is another one; the advice is the same.
    advice = TABLE[number].text.rpartition(". ")[2].removeprefix("Airflow connection 'custody_default', ")
    assert advice in normalized(capsys.readouterr().out, mistaken)


@pytest.mark.usefixtures("airflow_db")
def test_a_task_logs_it_as_one_error_line(
    mistaken: World, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, caplog: pytest.LogCaptureFixture
) -> None:
    with new_dag() as dag:
        for conn_id, connection in tasks(mistaken).items():
            monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", as_json(connection))
    run = run_dag(dag)
    assert {name for (name, _), state in run.states.items() if state == "success"} == {"connection_12"}
    if AIRFLOW >= (3, 0):
        lines = _ERROR_LINE.findall(_COLOURS.sub("", task_log.text))
    else:
        records = [each for each in caplog.records if each.levelname == "ERROR" and "airflow_custody" in each.name]
        lines = [each.getMessage() for each in records]
    expected = [row.with_code for number, row in TABLE.items() if number not in NO_TASK]
    assert sorted(normalized(line, mistaken) for line in lines) == sorted(expected)


@pytest.mark.usefixtures("airflow_db")
def test_many_faults_of_a_file_are_one_entry(
    world: World, monkeypatch: pytest.MonkeyPatch, task_log: TaskLog, caplog: pytest.LogCaptureFixture
) -> None:
    file = world.folder / "many.json"
    file.write_text(json.dumps({"version": 1, "addresses": [{"label": "L", "blockchain": "ETH"}] * 60}))
    with new_dag() as dag:
        CustodyPlanWhitelistOperator(task_id="file", path=str(file), retries=0)
    run_dag(dag)
    if AIRFLOW >= (3, 0):
        entries = re.findall(
            r"\[error +\] (\S+many\.json: .*?\[custody/file-wrong\])", _COLOURS.sub("", task_log.text), re.DOTALL
        )
    else:
        entries = [
            each.getMessage() for each in caplog.records if each.levelname == "ERROR" and "airflow_custody" in each.name
        ]
    (entry,) = entries
    assert len(entry.splitlines()) == 21
    assert entry.endswith("\n... and 40 more [custody/file-wrong]")


def test_an_extra_that_is_not_known_is_a_warning_in_a_task(mistaken: World, task_log: TaskLog) -> None:
    CustodyHook("mistake_12").get_conn().close()
    assert TABLE[12].text in normalized(task_log.text, mistaken)


def test_a_package_that_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", _BLOCKED], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, TABLE[16].with_code)
