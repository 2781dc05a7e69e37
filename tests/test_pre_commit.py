"""A commit is checked by what ``make lint`` checks, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent


def test_the_only_hook_is_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    # A repository other than this one would bring versions of its own.
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    (hook,) = repository["hooks"]
    # Without the names of the changed files: `make` would take them for targets.
    assert {key: hook.get(key) for key in ("entry", "args", "language", "pass_filenames", "always_run")} == {
        "entry": "make lint",
        "args": None,
        "language": "system",
        "pass_filenames": False,
        "always_run": True,
    }
