"""The command that lists and copies the example DAGs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli_runs import Run

SOURCES = Path(__file__).parents[2] / "example_dags"
FILES = {path.name for path in SOURCES.iterdir() if path.suffix in (".py", ".yaml")}


def test_each_example_has_a_name_and_a_summary(plain: Run) -> None:
    rows = plain("examples", "-o", "json").data
    assert [row["name"] for row in rows] == sorted(path.stem for path in SOURCES.glob("*.py"))
    assert all(row["summary"].endswith(".") and Path(row["path"]).is_file() for row in rows)


@pytest.mark.parametrize(
    ("names", "files"),
    [
        ([], FILES),
        (["custody_health_gate.py"], {"custody_health_gate.py"}),
        (["custody_whitelist_reconciliation"], {"custody_whitelist_reconciliation.py", "custody_whitelist.yaml"}),
    ],
)
def test_examples_are_copied_with_the_file_that_they_read(
    plain: Run, tmp_path: Path, names: list[str], files: set[str]
) -> None:
    folder = tmp_path / "new" / "dags"
    ran = plain("examples", *names, "--to", str(folder))
    assert ran.code == 0
    copies = list(folder.iterdir())
    assert {path.name for path in copies} == files
    assert all(path.read_bytes() == (SOURCES / path.name).read_bytes() for path in copies)
    assert len(ran.out.splitlines()) == len(copies)
    # Files that already exist with the same content are skipped.
    ran = plain("examples", *names, "--to", str(folder))
    assert ran.code == 0
    assert ran.out == ""
    assert ran.err.startswith("custody: skipped, because they already exist: ")


def test_an_existing_file_is_not_replaced(plain: Run, tmp_path: Path) -> None:
    mine = tmp_path / "custody_whitelist.yaml"
    mine.write_text("mine")
    ran = plain("examples", "custody_whitelist_as_code", "--to", str(tmp_path))
    assert ran.code == 1
    assert ran.out == ""
    assert f"nothing was copied, because these files exist with other content: {mine}. " in ran.err
    assert [(path, path.read_text()) for path in tmp_path.iterdir()] == [(mine, "mine")]
    ran = plain("examples", "--to", str(mine))
    assert ran.code == 1
    assert "cannot be written: File exists" in ran.err


def test_an_unknown_example_is_rejected(plain: Run, tmp_path: Path) -> None:
    ran = plain("examples", "custody_nothing", "--to", str(tmp_path))
    assert ran.code == 1
    assert ran.out == ""
    assert "unknown example custody_nothing" in ran.err
