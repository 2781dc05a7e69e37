"""No verdict of a test depends on how fast the machine is: what limits a wait is minutes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
#: Scenarios with limits of their own.
ELSEWHERE = ("faults", "scale", "ui", "matrix.py")
MINUTE = 60
#: Functions and methods whose ``timeout`` is a limit, methods whose last argument is one, and what it is compared with.
CLIENTS = {"CustodyClient", "client_of", "connection_json", "serve"}
WAITS = {"wait", "communicate", "run"}
LAST = {"join", "result", "wait_for"}
OF_TIMEOUTS = re.compile("time[-_]out|TIMED_OUT|TimeoutError")
CLOCKS = {"monotonic", "perf_counter", "time"}


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def short_limits(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where a wait, a client or what is asserted has a limit of less than a minute."""
    for node in ast.walk(tree):
        limits: list[ast.expr] = []
        if isinstance(node, ast.Call):
            name, is_method = name_of(node.func), isinstance(node.func, ast.Attribute)
            if name in CLIENTS or (is_method and name in WAITS | LAST):
                limits = [each.value for each in node.keywords if each.arg == "timeout"]
            limits += node.args[-1:] if is_method and name in LAST else []
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Lt, ast.LtE)):
            calls = {name_of(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
            limits = node.comparators if calls & CLOCKS else []
        for limit in limits:
            if isinstance(limit, ast.Constant) and isinstance(limit.value, (int, float)) and 0 < limit.value < MINUTE:
                yield limit.lineno


def test_limits_are_minutes() -> None:
    found = []
    for path in TESTS.rglob("*.py"):
        if path.relative_to(TESTS).parts[0] in ELSEWHERE:
            continue
        text = path.read_text()
        tree = ast.parse(text)
        # Tests of time-outs say so: in their names, a comment or what they expect.
        functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        of_timeouts = [each for each in functions if OF_TIMEOUTS.search(ast.get_source_segment(text, each) or "")]
        allowed = {line for each in of_timeouts for line in short_limits(each)}
        found += [f"{path.relative_to(TESTS)}:{line}" for line in short_limits(tree) if line not in allowed]
    assert not found, "let a wait last minutes, inject the clock, or name a test that is about a time-out"
