"""
Run groups of make targets in parallel; within a group, in order.

For example, ``at_once.py a "b c"`` runs ``a`` in parallel with ``b`` and then ``c``. Most tests wait most of the time,
so two suites in parallel take little longer than one. Each target's output is written to ``.reports``, and its last
line is printed. If a target fails, its whole output is printed when all groups have ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPORTS = Path(".reports")


def run(group: str) -> Path | None:
    """Run a group's targets until one fails; return that target's log."""
    for target in group.split():
        log = REPORTS / f"{target}.log"
        started = time.monotonic()
        with log.open("wb") as output:
            command = ["make", "--no-print-directory", target]
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        last = (log.read_text(errors="replace").splitlines() or [""])[-1]
        result = "FAILED" if done.returncode else last
        print(f"{target}: {result} ({time.monotonic() - started:.0f} s)", flush=True)
        if done.returncode:
            return log
    return None


def main(groups: list[str]) -> int:
    """Run the groups, and return 1 if a target fails."""
    REPORTS.mkdir(exist_ok=True)
    with ThreadPoolExecutor(len(groups)) as threads:
        logs = [log for log in threads.map(run, groups) if log is not None]
    for log in logs:
        sys.stdout.buffer.write(log.read_bytes())
        sys.stdout.flush()
    return int(bool(logs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
