"""
Try the wheel with each pair of Python and Airflow versions.

For each pair: can the wheel be installed and imported, and do the tests pass? Each Python is found on the ``PATH``, as
``python3.10`` and so on, or in the environment variable ``PYTHONS``, a list of paths separated by colons. The variable
``ONLY``, such as ``3.13-3.3``, limits the pairs to those that begin with its value. A pair takes about two minutes. The
results are printed as a table in Markdown.

The exit code is 1 if there is no pair to try, or if a supported pair was tried and does not pass: each release of
Airflow here with each Python here that this release supports. Other pairs are tried too, but do not count. A pair whose
Python is not found, or that ``ONLY`` leaves out, is not tried.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
#: The last release of each minor version, with upper bounds that are in its constraints file but not in its metadata.
AIRFLOWS = {
    "2.11.2": (),
    "3.0.6": ("fastapi<0.118", "cadwyn<6"),
    "3.1.8": (),
    "3.2.2": ("fastapi<0.137", "svcs<26"),
    "3.3.2": (),
}
#: The newest Python that a release of Airflow supports, by its metadata. Default: the newest Python here.
NEWEST_PYTHONS = {"2.11.2": "3.12", "3.0.6": "3.12", "3.1.8": "3.13"}
# Every example from end to end, a sensor in all its modes, operators, the hook, and what Airflow shows of the package.
TESTS = (
    "tests/e2e/test_example_dags.py",
    "tests/sensors/test_health.py",
    "tests/operators/test_health.py",
    "tests/operators/test_webhook.py",
    "tests/hooks",
    "tests/plugin/test_plugin.py",
)
# These tests need their own Airflow or ten thousand requests, and do not depend on the versions.
NOT_TESTED = "not (is_parsed_without or importing_it_imports_nothing or rate_limit_is_retried or ten_thousand)"


def run(log: Path, *command: str, **environment: str) -> str | None:
    """Run a command in a folder without the package's source; return its last line if it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON", "VIRTUAL"))}
    # Pass pip's certificates on to uv, which reads other settings.
    kept |= {"SSL_CERT_FILE": os.environ["PIP_CERT"]} if "PIP_CERT" in os.environ else {}
    done = subprocess.run(
        command, cwd=log.parent / "project", env=kept | environment, capture_output=True, text=True, check=False
    )
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
    lines = [line.strip(" ×╰─▶│") for line in (done.stdout + done.stderr).splitlines()]
    return next(filter(None, reversed(lines)), "no output") if done.returncode else None


def try_pair(folder: Path, wheel: Path, line: str, python: str, airflow: str) -> str:
    """Try one pair, log to the folder, and return the outcome."""
    log, venv = folder / f"{line}-{airflow}.log", folder / f"{line}-{airflow}"
    log.unlink(missing_ok=True)
    shutil.rmtree(venv, ignore_errors=True)
    uv, inside = str(Path(sys.executable).parent / "uv"), str(venv / "bin" / "python")
    install = (uv, "pip", "install", "--python", inside, f"apache-airflow=={airflow}", *AIRFLOWS[airflow])
    home = {"AIRFLOW_HOME": str(venv / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    pytest = (inside, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", "-k", NOT_TESTED)
    steps = [
        ("no environment", (uv, "venv", "--python", python, str(venv)), {}),
        ("does not install", (*install, f"{wheel}[sandbox]", "--group", f"{ROOT / 'pyproject.toml'}:test"), {}),
        ("does not import", (inside, "-c", "import airflow_custody.hooks.custody, airflow_custody.cli.main"), home),
        ("fails", (*pytest, *TESTS), {**home, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}),
    ]
    try:
        for outcome, command, environment in steps:
            if failed := run(log, *command, **environment):
                return f"{outcome}: {failed[:200]}"
        numbers = re.findall(r"(\d+) passed", log.read_text())
        return f"passes ({numbers[-1]} tests)" if numbers else "passes"
    finally:
        shutil.rmtree(venv, ignore_errors=True)


def is_broken(line: str, airflow: str, outcome: str) -> bool:
    """Tell whether a pair that was tried is supported, but does not pass."""
    is_supported = PYTHONS.index(line) <= PYTHONS.index(NEWEST_PYTHONS.get(airflow, PYTHONS[-1]))
    return is_supported and not outcome.startswith("passes")


def main() -> int:
    """Try each pair and print a table; return 1 if a supported pair does not pass, or if there is none to try."""
    given = [*filter(None, os.environ.get("PYTHONS", "").split(":")), *(f"python{line}" for line in PYTHONS)]
    found: dict[str, str] = {}
    script = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    for name in filter(None, map(shutil.which, given)):
        done = subprocess.run([name, "-c", script], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            path, line = done.stdout.split()
            found.setdefault(line, path)
    only = os.environ.get("ONLY", "")
    pairs = [(line, airflow) for airflow in AIRFLOWS for line in found if f"{line}-{airflow}".startswith(only)]
    if not pairs:
        print(f"No pair to try: ONLY={only!r} matches none of the Pythons that were found ({', '.join(found)}).")
        return 1
    folder = ROOT / ".matrix"
    shutil.rmtree(folder / "project", ignore_errors=True)
    (folder / "project").mkdir(parents=True)
    for name in ("tests", "demo", "docs", "example_dags"):
        shutil.copytree(ROOT / name, folder / "project" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder / "project")
    table, broken = [], False
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", out, str(ROOT)], check=True)
        (wheel,) = Path(out).glob("*.whl")
        for airflow in AIRFLOWS:
            cells = []
            for line in PYTHONS:
                outcome = "not tried"
                if (line, airflow) in pairs:
                    outcome = try_pair(folder, wheel, line, found[line], airflow)
                    print(f"Python {line}, Airflow {airflow}: {outcome}", flush=True)
                    broken |= is_broken(line, airflow, outcome)
                cells.append(outcome)
            table.append((airflow, *cells))
    print("", f"| | {' | '.join(PYTHONS)} |", f"|---|{'---|' * len(PYTHONS)}", sep="\n")
    print(*(f"| {' | '.join(row)} |" for row in table), sep="\n")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
