"""Shared by the benchmarks: measuring side by side, and running the sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PREFIX = "airflow-custody-bench-"
# A process that a benchmark starts uses the benchmark's folder.
HOME = Path(os.environ.get("AIRFLOW_HOME", ""))
if not HOME.name.startswith(_PREFIX):
    _folder = tempfile.TemporaryDirectory(prefix=_PREFIX)
    HOME = Path(_folder.name)
os.environ.update(AIRFLOW_HOME=str(HOME), AIRFLOW__CORE__LOAD_EXAMPLES="False", AIRFLOW__LOGGING__LOGGING_LEVEL="WARN")

from airflow_custody.sandbox import SandboxControl  # noqa: E402


def compare(title: str, rounds: int, candidates: dict[str, Callable[[], float]]) -> None:
    """Measure the candidates in turn, so that changes in machine load affect all of them, and print the results."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for measure in candidates.values():
        measure()  # warm up
    for _ in range(rounds):
        for name, measure in candidates.items():
            times[name].append(measure())
    first = next(iter(times))
    print(f"\n{title}")
    for name, values in times.items():
        median = statistics.median(values)
        line = f"  {name:<42} {median * 1000:9.1f} ms"
        if name != first:
            ratios = [a / b for a, b in zip(times[first], values, strict=True)]
            line += f"   ({first} takes {statistics.median(ratios):.2f} times as long)"
        print(line)


def timed(work: Callable[[], object]) -> Callable[[], float]:
    """Return a function that does the work and returns the seconds it took."""

    def run() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return run


def report(what: str, value: float, aim: float, unit: str = "", *, least: bool = False) -> None:
    """
    Print a figure, its target, and whether it meets the target.

    :param what: what was measured.
    :param value: the figure.
    :param aim: the target: a maximum, or with ``least`` a minimum.
    :param unit: the unit. Default: none.
    """
    met = value >= aim if least else value <= aim
    bound = "at least" if least else "at most"
    print(f"  {what:<68} {value:9.2f}{unit}   (aim: {bound} {aim:g}{unit}: {'ok' if met else 'MISSED'})", flush=True)


def certificates() -> tuple[str, str]:
    """Make a certificate authority and a server's certificate, and return their paths."""
    import trustme

    authority = trustme.CA()
    bundle, certificate = str(HOME / "ca.pem"), str(HOME / "server.pem")
    authority.cert_pem.write_to_path(bundle)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
    return bundle, certificate


@contextlib.contextmanager
def service(**options: Any) -> Iterator[tuple[SandboxControl, str, str]]:
    """Run the sandbox in a separate process, so that it does not compete for the interpreter lock."""
    script = (
        "import json, sys; from airflow_custody.sandbox import Sandbox; s = Sandbox(**json.loads(sys.argv[1])).start();"
        "print(s.url, s.token, s.control.url, flush=True); sys.stdin.read(); s.stop()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url, token, control = process.stdout.readline().split()
        yield SandboxControl(control), url, token
        process.stdin.close()
