"""
Try the wheel on each pair of Python and Airflow: does it install, can it be imported, does it pass?

Python is found as ``python3.10`` to ``python3.14`` on the ``PATH``, or at the paths in ``PYTHONS``, which colons
separate. ``ONLY``, such as ``3.13-3.3,3.14``, has the beginnings of the pairs to try, in this order; default: all.
Results are kept: with ``CONTINUE=1`` only pairs without one are tried. The table of all of them goes into the
documentation. One pair takes about two minutes; with ``TESTS=0``, which only installs and imports, half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from matrix.environments import ROOT, UNTESTED, Result, Workshop
from matrix.pairs import PYTHONS, Interpreter, Release, find_interpreters, newest_patches, relative, requires_python
from matrix.table import line_of, markdown

TABLE = ROOT / "docs" / "explanation" / "_matrix.md"


def main() -> int:
    """Run the matrix, and return the exit code: 1 if a pair that can be tried does not pass."""
    os.nice(5)
    folder = Path(os.environ.get("MATRIX") or ROOT / ".matrix").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    interpreters = find_interpreters(os.environ.get("PYTHONS", ""))
    for line in PYTHONS:
        found = interpreters.get(line)
        print(f"Python {line}: {found.version + ', ' + found.path if found else 'not found'}", flush=True)
    releases = newest_releases()
    print(f"Airflow: {', '.join(each.version for each in releases)}. Logs: {relative(folder, ROOT)}", flush=True)
    wheel = build_wheel(folder)
    test = os.environ.get("TESTS") != "0"
    workshop = Workshop(folder, wheel, test=test)
    file = folder / "results.json"
    results = load_results(file)
    final = {name for name, result in results.items() if not test or result.outcome != UNTESTED}
    kept = final if os.environ.get("CONTINUE") else set()
    pairs = [(line, release) for release in reversed(releases) for line in PYTHONS]
    for line, release in choose(pairs, os.environ.get("ONLY", "")):
        name = f"{line}-{release.version}"
        if name in kept:
            continue
        started = time.monotonic()
        result = results[name] = try_pair(workshop, interpreters.get(line), line, release)
        file.write_text(json.dumps({each: asdict(found) for each, found in results.items()}, indent=1), "utf-8")
        print(line_of(line, release, result, time.monotonic() - started), flush=True)
    for line, release in pairs:
        results.setdefault(f"{line}-{release.version}", Result("not tried"))
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(markdown(results, interpreters, releases, wheel=wheel_name(wheel), uv=version("uv")), "utf-8")
    print(f"table: {relative(TABLE, ROOT)}")
    return int(any(each.outcome in ("fails", "does not import", "does not install") for each in results.values()))


def choose(pairs: list[tuple[str, Release]], only: str) -> list[tuple[str, Release]]:
    """Return the pairs whose names begin with one of several texts, in the order of these."""
    chosen = [
        (line, release)
        for beginning in only.split(",")
        for line, release in pairs
        if f"{line}-{release.version}".startswith(beginning)
    ]
    return list(dict.fromkeys(chosen))


def load_results(file: Path) -> dict[str, Result]:
    """Return the results of earlier runs, by names such as 3.13-3.3.2."""
    if not file.is_file():
        return {}
    return {name: Result(**found) for name, found in json.loads(file.read_text("utf-8")).items()}


def wheel_name(wheel: Path) -> str:
    """Return the name and the version of the package, as people write them."""
    return "airflow-provider-custody " + wheel.name.split("-")[1]


def try_pair(workshop: Workshop, interpreter: Interpreter | None, line: str, release: Release) -> Result:
    """Try one pair, if Airflow allows it and there is an interpreter."""
    if release.excludes(interpreter or Interpreter("", f"{line}.0")):
        return Result("excluded", f"Airflow {release.version} excludes Python {line} (`{release.requires_python}`).")
    if interpreter is None:
        return Result("no interpreter", f"No Python {line} on the machine that ran this.")
    result = workshop.try_pair(interpreter, release)
    result.date = datetime.now(timezone.utc).date().isoformat()
    return result


def newest_releases() -> list[Release]:
    """Ask the package index for the newest release of each line of Airflow."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    listing = output_of([*pip, "index", "versions", "--ignore-requires-python", "apache-airflow"])
    releases = []
    for each in newest_patches(listing):
        with tempfile.TemporaryDirectory() as folder:
            download = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python"]
            output_of([*pip, *download, "--dest", folder, f"apache-airflow=={each}"])
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
                releases.append(Release(each, requires_python(archive.read(name).decode())))
    return releases


def build_wheel(folder: Path) -> Path:
    """Build the wheel."""
    for old in folder.glob("*.whl"):
        old.unlink()
    output_of([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)])
    (wheel,) = folder.glob("*.whl")
    return wheel


def output_of(command: list[str]) -> str:
    """Return what a command prints; exit with its errors if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"matrix: {' '.join(command[:6])} ... failed\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
