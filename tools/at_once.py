"""
Run groups of make's targets at once, the targets of a group one after the other: ``at_once.py a "b c"``.

Most tests wait most of the time, so two suites at once take little longer than one. For each target, one line is
printed: the last one of its output, which goes to ``.reports``. The output of a target that fails is printed in full
when all groups have ended.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPORTS = Path(".reports")


def run(group: str) -> Path | None:
    """Run the targets of a group until one fails, and return the log of that one."""
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
    """Return the exit code: 1 if a target fails."""
    REPORTS.mkdir(exist_ok=True)
    with ThreadPoolExecutor(len(groups)) as threads:
        logs = [log for log in threads.map(run, groups) if log is not None]
    for log in logs:
        sys.stdout.buffer.write(log.read_bytes())
        sys.stdout.flush()
    return int(bool(logs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
