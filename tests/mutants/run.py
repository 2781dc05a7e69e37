"""
Do tests fail if the code is wrong? Change one operator, number or condition at a time, and run the tests that reach it.

The places are drawn at random from what decides about money: verification, the review before signing, the state of a
request, creating once, and the plan. A mutant is killed if a test fails on it that passes without it, or does not end;
one that no test reaches has survived. Left out is what is no behaviour: annotations and imports for them, decorators,
assertions, the texts of errors and of the log, at how many characters ``sanitize`` cuts a text, ``__repr__``; and what
is a choice that is as good a little higher or lower: pauses, and constants that are seconds or whose names begin with
``MAX_``: bounds that we set, not those of a format.

cosmic-ray finds the places, changes the files and runs the tests. ``SAMPLE`` is the number of mutants, 100 unless
given. ``SEED`` is the seed that they are drawn with. ``ONLY`` restricts the files by a part of their paths. The run
fails if less than 95 of 100 are killed.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import attrs
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test, mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOT = Path(__file__).parent.parent.parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")
CLIENT = "airflow_custody/client"
ROOMS = {
    "verification": (f"{CLIENT}/verification/*.py",),
    "review": (f"{CLIENT}/whitelist/comparison.py", f"{CLIENT}/whitelist/signing/*.py"),
    "requests": tuple(
        f"{CLIENT}/whitelist/{name}.py"
        for name in ("addresses/destinations", "matching", "request", "snapshot", "wait")
    ),
    "idempotency": ("airflow_custody/idempotency/*.py",),
    "plan": tuple(f"{CLIENT}/whitelist/plans/{name}.py" for name in ("plan", "planner")),
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
# These operators replace names at random, but people hardly ever make such mistakes.
LEFT_OUT = ("Variable", "RemoveDecorator")
# Keywords that check the code itself, and not its input: equal lengths, and that no field is set again.
ASSERTED = {("zip", "strict"), ("ConfigDict", "frozen")}
# Texts and numbers that Python keeps once are identical if they are equal.
SAME = ("Eq_Is", "Is_Eq", "NotEq_IsNot")


class Mutant(NamedTuple):
    """One change of one file."""

    room: str
    change: MutationSpec

    @property
    def path(self) -> str:
        return str(self.change.module_path)

    def is_python(self) -> bool:
        """Tell whether the changed file compiles: ``if not name := value`` does not, which no test has to notice."""
        source = (ROOT / self.path).read_text()
        try:
            compile(mutate_code(source, get_operator(self.change.operator_name)(), self.change.occurrence), "", "exec")
        except SyntaxError:
            return False
        return True


def mutants() -> Iterator[Mutant]:
    """Yield the mutants of all rooms: for each place and kind of change one, drawn at random."""
    rooms: dict[Path, str] = {}
    for room, globs in ROOMS.items():
        for each in globs:
            found = {path.relative_to(ROOT): room for path in sorted(ROOT.glob(each))}
            assert found, f"no file is {each}: ROOMS must name the files where they are now"
            rooms |= found
    chosen = [path for path in rooms if os.environ.get("ONLY", "") in str(path)]
    no_behaviour = {path: {*texts_of(ast.parse((ROOT / path).read_text()))} for path in chosen}
    by_place: dict[object, list[Mutant]] = defaultdict(list)
    with use_db(":memory:") as database:
        init(chosen, database, {})
        for item in database.work_items:
            (change,) = item.mutations
            path, name, start, end = change.module_path, change.operator_name, change.start_pos, change.end_pos
            kind = name.partition("/")[2].partition("_")[0]
            if kind.startswith(LEFT_OUT) or name.partition("Operator_")[2] in SAME:
                continue
            if not any(first <= start and end <= last for first, last in no_behaviour[path]):
                by_place[path, kind, start, end].append(Mutant(rooms[path], change))
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
    lines, report = folder / "lines.json", folder / "tests.xml"
    options = ["-p", "tests.mutants.contexts", "-n", str(WORKERS), "--dist", "worksteal", f"--junit-xml={report}"]
    places = {"COVERAGE_FILE": str(folder / ".coverage"), "COVERAGE_RCFILE": str(RCFILE), "PYTHONPATH": str(ROOT)}
    for command in (
        ["run", "-m", "pytest", *options, "-o", "junit_family=xunit1", *TESTS],
        ["combine", "--quiet"],
        ["json", "--quiet", "-o", str(lines)],
    ):
        done = subprocess.run(
            [PYTHON, "-m", "coverage", *command], env={**os.environ, **places}, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"coverage {command[0]} failed\n{(done.stdout + done.stderr)[-3000:]}")
    reached = {
        path: {int(line): [each for each in tests if each] for line, tests in found["contexts"].items()}
        for path, found in json.loads(lines.read_text())["files"].items()
    }
    cases = ElementTree.parse(report).iter("testcase")
    return reached, {f"{each.get('file')}::{each.get('name')}": float(each.get("time", "0")) for each in cases}


def find_survivor(mutant: Mutant, tree: Path, tests: list[str]) -> str:
    """Run these tests on a mutant in a copy of the project; return its diff if all pass, else an empty text."""
    command = ["env", f"--chdir={tree}", f"PYTHONPATH={tree}", PYTHON, "-m", "pytest"]
    command += ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header"]
    command += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
    change, diff = attrs.evolve(mutant.change, module_path=tree / mutant.path), "no test reaches it"
    # Most mutants fail one of the quickest tests, and these import little.
    for part in (tests[:FIRST], tests[FIRST:]):
        if part:
            result = mutate_and_test([change], shlex.join([*command, *part]), ALL_HANG)
            # A test that is not found would look like a failing test.
            assert "no tests ran" not in result.output or "rror" in result.output, (mutant, result.output[-2000:])
            if result.test_outcome != TestOutcome.SURVIVED:
                assert result.test_outcome == TestOutcome.KILLED, (mutant, result.output)
                return ""
            diff = result.diff.replace(f"{tree}/", "")
    return diff


def main() -> None:
    """Draw mutants, run the tests on them, and print what survives."""
    os.chdir(ROOT)
    started = time.monotonic()
    random.seed(os.environ.get("SEED") or "1")
    every = [*mutants()]
    drawn = [*islice(filter(Mutant.is_python, random.sample(every, len(every))), int(os.environ.get("SAMPLE") or 100))]
    print(f"{len(every)} places, {len(drawn)} of them drawn", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        lines, seconds = measure(Path(folder))
        print(f"{len(seconds)} tests pass without a mutant ({time.monotonic() - started:.0f} s)", flush=True)
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            trees.put(copy_of_the_project(Path(folder) / str(number)))

        def judge(mutant: Mutant) -> str:
            """Run the tests that reach a mutant, or its file if it runs at import, the quickest first."""
            found = lines.get(mutant.path, {})
            reached = found.get(mutant.change.start_pos[0]) or [each for line in found.values() for each in line]
            tree = trees.get()
            try:
                return find_survivor(mutant, tree, sorted({*reached}, key=lambda name: (seconds.get(name, 1.0), name)))
            finally:
                trees.put(tree)

        with ThreadPoolExecutor(WORKERS) as pool:
            survivors = [*pool.map(judge, drawn)]
    for diff in filter(None, survivors):
        print(diff)
    killed = Counter(mutant.room for mutant, diff in zip(drawn, survivors, strict=True) if not diff)
    for room, total in Counter(mutant.room for mutant in drawn).items():
        print(f"{room}: {killed[room]} of {total} killed")
    print(f"mutants: {killed.total()} of {len(drawn)} killed, {len(drawn) - killed.total()} survived")
    if killed.total() < 0.95 * len(drawn):
        sys.exit("too few are killed")


def copy_of_the_project(tree: Path) -> Path:
    """Copy what Git has, or would add, and compile it: cosmic-ray keeps its tests from doing that."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    # By hash: else Python takes a file of the same size and second for unchanged.
    compiling = [PYTHON, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "airflow_custody", "tests"]
    subprocess.run(compiling, cwd=tree, check=True)
    return tree


if __name__ == "__main__":
    main()
