"""
Do tests fail if the code is wrong? Change one operator, number or condition at a time, and run the tests that reach it.

The places are drawn at random from what decides about money: verification, the review before signing, the state of a
request, creating once, and the plan. A mutant is killed if a test fails on it that passes without it, or does not end;
one that no test reaches has survived. Left out is what is no behaviour: annotations and imports for them, decorators,
assertions, the texts of errors and of the log, at how many characters ``sanitize`` cuts a text, ``__repr__``; and what
is a choice that is as good a little higher or lower: pauses, and constants that are seconds or whose names begin with
``MAX_``: bounds that we set, not those of a format.

``SAMPLE`` is the number of mutants, 100 unless given. ``SEED`` is the seed that they are drawn with, or several seeds
with spaces between them. ``ONLY`` restricts the files by a part of their paths. The run fails if less than 95 of 100
are killed.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parent.parent.parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")
CLIENT = "airflow_custody/client"
ROOMS = {
    "verification": (f"{CLIENT}/verification/*.py",),
    "review": (f"{CLIENT}/whitelist/comparison.py", f"{CLIENT}/whitelist/signing/*.py"),
    "requests": tuple(
        f"{CLIENT}/whitelist/{name}.py" for name in ("addresses/destinations", "request", "snapshot", "wait")
    ),
    "idempotency": ("airflow_custody/idempotency/*.py",),
    "plan": tuple(f"{CLIENT}/whitelist/plans/{name}.py" for name in ("matching", "plan", "planner")),
}
TESTS = (
    "tests/client/verification",
    "tests/client/whitelist",
    "tests/idempotency",
    "tests/cli/test_verify.py",
    "tests/test_metrics.py",
    "tests/operators/test_webhook.py",
    *(f"tests/operators/test_whitelist{name}.py" for name in ("", "_existing", "_plan", "_plan_rows", "_signing")),
    *(f"tests/sensors/test_whitelist{name}.py" for name in ("", "_verified")),
    "tests/overview/test_requests.py",
)
RCFILE = Path(__file__).parent / "coverage.ini"
WORKERS = 2
#: Seconds until a test hangs, and until all tests of a mutant do. The slowest test takes a tenth of the first.
HANGS, ALL_HANG = 120, 900
#: How many of the quickest tests run before the others.
FIRST = 30
# These replace names at random, which is hardly ever what a person mistypes.
LEFT_OUT = ("Variable", "RemoveDecorator")
# Keywords that check the code itself, and not its input: equal lengths, and that no field is set again.
ASSERTED = {("zip", "strict"), ("ConfigDict", "frozen")}
# Texts and numbers that Python keeps once are identical if they are equal.
SAME = ("Eq_Is", "Is_Eq", "NotEq_IsNot")


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    room: str
    path: str
    operator: str
    occurrence: int
    line: int

    def apply(self) -> str:
        """Return the changed file."""
        source = (ROOT / self.path).read_text()
        changed = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        assert changed is not None, self
        return str(changed)

    def is_python(self) -> bool:
        """Tell whether the changed file compiles: ``if not name := value`` does not, which no test has to notice."""
        try:
            compile(self.apply(), self.path, "exec")
        except SyntaxError:
            return False
        return True

    def change(self) -> tuple[str, str]:
        """Return the lines that go, and those that come."""
        lines = difflib.ndiff((ROOT / self.path).read_text().splitlines(), self.apply().splitlines())
        found = [each for each in lines if each[:2] in ("- ", "+ ")]
        return tuple(" ".join(each[2:].strip() for each in found if each[0] == sign) for sign in "-+")  # type: ignore[return-value]


def mutants(room: str, path: str) -> Iterator[Mutant]:
    """Yield the mutants of a file: for each place and kind of change one, drawn at random."""
    source = (ROOT / path).read_text()
    no_behaviour = {*texts_of(ast.parse(source))}
    by_place: dict[object, list[Mutant]] = defaultdict(list)
    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        kind = name.partition("/")[2].partition("_")[0]
        if kind.startswith(LEFT_OUT) or name.partition("Operator_")[2] in SAME:
            continue
        operator, occurrence = get_operator(name)(), 0
        for node in nodes:
            for start, end in operator.mutation_positions(node):
                if not any(first <= start and end <= last for first, last in no_behaviour):
                    by_place[kind, start, end].append(Mutant(room, path, name, occurrence, start[0]))
                occurrence += 1
    return (random.choice(found) for found in by_place.values())


def texts_of(tree: ast.AST) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield where there is no behaviour: from and to which line and column."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = node.args
            parts = [node.returns, *(each.annotation for each in (*arguments.args, *arguments.kwonlyargs))]
            parts += [node] if node.name == "__repr__" else node.decorator_list
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        elif isinstance(node, ast.AnnAssign):
            is_seconds = isinstance(node.value, ast.Constant) and "ClassVar[float]" in ast.unparse(node.annotation)
            parts = [node.annotation, node.value if is_seconds else None]
        elif isinstance(node, ast.Raise):
            parts = [node.exc]
        elif isinstance(node, ast.JoinedStr):
            parts = [node]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            is_text_or_pause = "log" in name.split(".") or name == "time.sleep"
            parts = [node] if is_text_or_pause else [*node.args[1:]] if name == "sanitize" else []
            parts += [each.value for each in node.keywords if (name, each.arg) in ASSERTED]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts = [node.test]
        elif isinstance(node, ast.Assign) and node.col_offset == 0:
            name, value = ast.unparse(node.targets[0]), node.value
            is_type = isinstance(value, ast.BinOp) and "|" in ast.unparse(value)
            is_seconds = isinstance(value, ast.Constant) and isinstance(value.value, float)
            parts = [value] if is_type or is_seconds or name.lstrip("_").startswith("MAX_") else []
        for part in parts:
            if part is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)  # type: ignore[attr-defined]


def measure(folder: Path) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Run the tests without a mutant; return which of them reach which line, and how long each takes."""
    coverage = [PYTHON, "-m", "coverage"]
    environment = {
        **os.environ,
        "COVERAGE_FILE": str(folder / ".coverage"),
        "PYTHONPATH": str(ROOT),
        "COVERAGE_RCFILE": str(RCFILE),
    }
    report = folder / "tests.xml"
    options = ["-p", "tests.mutants.contexts", "-n", str(WORKERS), "--dist", "worksteal", f"--junit-xml={report}"]
    options += ["-o", "junit_family=xunit1"]
    run(*coverage, "run", "-m", "pytest", *options, *TESTS, environment=environment)
    run(*coverage, "combine", "--quiet", environment=environment)
    run(
        *coverage,
        "json",
        "--quiet",
        "--show-contexts",
        "-o",
        str(folder / "lines.json"),
        "--fail-under=0",
        environment=environment,
    )
    files = json.loads((folder / "lines.json").read_text())["files"]
    lines = {
        path: {int(line): [each for each in tests if each] for line, tests in found["contexts"].items()}
        for path, found in files.items()
    }
    seconds = {}
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[f"{case.get('file')}::{case.get('name')}"] = float(case.get("time", "0"))
    return lines, seconds


def run(*command: str, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:6])} ... failed\n{(done.stdout + done.stderr)[-3000:]}")


def survives(mutant: Mutant, tree: Path, tests: list[str]) -> bool:
    """Tell whether all these tests pass on a mutant; its file is changed in a copy of the project."""
    file = tree / mutant.path
    file.write_text(mutant.apply())
    try:
        # Most mutants fail one of the quickest tests, and these import little.
        return all(pass_on(tree, part, mutant) for part in (tests[:FIRST], tests[FIRST:]) if part)
    finally:
        shutil.copyfile(ROOT / mutant.path, file)
        # Python takes a file of the same size and second for unchanged.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()


def pass_on(tree: Path, tests: list[str], mutant: Mutant) -> bool:
    """Tell whether all these tests pass in a copy of the project that contains a mutant."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    # Without compiled files, every mutant would take seconds longer.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [PYTHON, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header"]
    command += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true", *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=ALL_HANG, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    # What is not found would look like a failure.
    assert "no tests ran" not in done.stdout or "rror" in done.stdout, (mutant, done.stdout[-2000:])
    assert "ERROR: not found:" not in done.stdout + done.stderr, (mutant, done.stdout[-2000:])
    return done.returncode == 0


def tests_of(mutant: Mutant, lines: dict[str, dict[int, list[str]]], seconds: dict[str, float]) -> list[str]:
    """Return the tests that reach a mutant, or its file if it runs at import, the quickest first."""
    found = lines.get(mutant.path, {})
    reached = found.get(mutant.line) or [each for line in found.values() for each in line]
    return sorted(dict.fromkeys(reached), key=lambda name: seconds.get(name, 1.0))


def main() -> None:
    """Draw mutants with each seed, run the tests on them, and print what survives."""
    started = time.monotonic()
    sample, seeds = int(os.environ.get("SAMPLE") or 100), (os.environ.get("SEED") or "1").split()
    with tempfile.TemporaryDirectory() as folder:
        lines, seconds = measure(Path(folder))
        print(f"{len(seconds)} tests pass without a mutant ({time.monotonic() - started:.0f} s)", flush=True)
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            trees.put(copy_of_the_project(Path(folder) / str(number)))

        def judge(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return survives(mutant, tree, tests_of(mutant, lines, seconds))
            finally:
                trees.put(tree)

        failed = []
        for seed in seeds:
            drawn = draw(seed, sample)
            with ThreadPoolExecutor(WORKERS) as pool:
                outcomes = list(pool.map(judge, drawn))
            alive = [mutant for mutant, survived in zip(drawn, outcomes, strict=True) if survived]
            failed += [] if are_enough_killed(drawn, alive, lines) else [seed]
            print(f"seed {seed} done after {(time.monotonic() - started) / 60:.0f} minutes", flush=True)
    if failed:
        sys.exit(f"too few are killed with seed {', '.join(failed)}")


def draw(seed: str, sample: int) -> list[Mutant]:
    """Draw mutants at random, of those that compile."""
    random.seed(seed)
    named = []
    for room, globs in ROOMS.items():
        for each in globs:
            found = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(each))
            assert found, f"no file is {each}: ROOMS must name the files where they are now"
            named += [(room, path) for path in found]
    every = [each for room, path in named for each in mutants(room, path) if os.environ.get("ONLY", "") in path]
    drawn = [*islice(filter(Mutant.is_python, random.sample(every, len(every))), sample)]
    print(f"{len(every)} places, {len(drawn)} of them drawn with seed {seed}", flush=True)
    return drawn


def are_enough_killed(drawn: list[Mutant], alive: list[Mutant], lines: dict[str, dict[int, list[str]]]) -> bool:
    """Print what survives; tell whether 95 of 100 are killed."""
    for each in alive:
        before, after = each.change()
        reached = "" if lines.get(each.path, {}).get(each.line) else "   (no test reaches it)"
        print(f"{each.path}:{each.line}{reached}\n  - {before}\n  + {after}")
    for room in ROOMS:
        total, left = (Counter(each.room for each in group)[room] for group in (drawn, alive))
        print(f"{room}: {total - left} of {total} killed")
    killed = len(drawn) - len(alive)
    print(f"mutants: {killed} of {len(drawn)} killed ({killed / len(drawn):.1%}), {len(alive)} survived")
    return killed >= 0.95 * len(drawn)


def copy_of_the_project(tree: Path) -> Path:
    """Copy what Git has, or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, tree / name)
    return tree


if __name__ == "__main__":
    main()
