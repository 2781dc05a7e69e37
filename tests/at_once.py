"""
Run groups of make's targets at once, the targets of a group one after the other: ``at_once.py a b,c``.

Most tests wait most of the time, so two suites at once take little longer than one. What each group prints is shown
when all have ended; of what failed, last.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def run(group: str) -> subprocess.CompletedProcess[bytes]:
    """Run the targets of a group."""
    command = ["make", "--no-print-directory", *group.split(",")]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def main(groups: list[str]) -> int:
    """Return the exit code: 1 if a group fails."""
    with ThreadPoolExecutor(len(groups)) as threads:
        runs = sorted(threads.map(run, groups), key=lambda each: each.returncode != 0)
    for each in runs:
        sys.stdout.buffer.write(each.stdout)
        sys.stdout.flush()
    return int(any(each.returncode for each in runs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
