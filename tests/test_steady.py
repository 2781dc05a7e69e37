"""No verdict of a test depends on how fast the machine is: what limits a wait is minutes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
#: What has limits of its own, and scenarios whose time-outs are what they are about.
ELSEWHERE = ("faults", "matrix", "scale", "ui")
MINUTE = 60
_WAITS = {"join", "wait", "wait_for", "result", "communicate", "run"}
_CLIENTS = {"CustodyClient", "client_of", "connection_json", "serve"}
_CLOCKS = {"monotonic", "perf_counter", "time"}
#: Tests of time-outs: what is called does not respond, or each call that is too slow is made again.
OF_TIMEOUTS = {
    "test_a_fault_is_waited_out_or_not_in_every_mode",
    "test_a_body_that_trickles_ends_with_the_time_out",
    "test_a_call_within_a_sign_in_ends_with_the_time_out",
    "test_a_peer_that_says_nothing_is_waited_for_as_long_as_the_time_out",
    "test_a_password_whose_refusal_comes_too_late_is_not_sent_at_every_call",
    "test_a_response_that_does_not_end_is_none",
    "test_nor_does_anybody_wait_behind_another_for_longer",
    "test_the_time_out_bounds_the_wait_and_the_body",
    "test_what_ends_before_the_body_is_read_is_not_done_and_sent_again",
    "test_who_cannot_sign_in_within_the_time_out_sends_nothing",
    "test_without_a_shared_stream_it_waits_and_says_so",
}


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_short(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and 0 < node.value < MINUTE


def short_limits(function: ast.AST) -> Iterator[int]:
    """Yield the lines where a wait, a client or what is asserted has a limit of less than a minute."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            given = {each.arg: each.value for each in node.keywords}
            limit = given.get("timeout")
            if name in {"join", "result"} and len(node.args) == 1:
                limit = node.args[0]
            elif name == "wait_for" and len(node.args) == 2:
                limit = node.args[1]
            is_wait = name in _WAITS and isinstance(node.func, ast.Attribute)
            if (is_wait or name in _CLIENTS) and is_short(limit):
                yield node.lineno
        elif isinstance(node, ast.Compare):
            clocks = {name_of(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)} & _CLOCKS
            pairs = zip(node.ops, node.comparators, strict=True)
            if clocks and any(isinstance(op, (ast.Lt, ast.LtE)) and is_short(limit) for op, limit in pairs):
                yield node.lineno


def test_limits_are_minutes() -> None:
    found = []
    for path in TESTS.rglob("*.py"):
        place = path.relative_to(TESTS)
        if place.parts[0] in ELSEWHERE:
            continue
        tree = ast.parse(path.read_text())
        allowed = {
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name in OF_TIMEOUTS
            for line in short_limits(node)
        }
        found += [f"{place}:{line}" for line in short_limits(tree) if line not in allowed]
    assert not found, "let a wait last minutes, inject the clock, or name a test that is about a time-out"
