"""What the DAG file and the runner of the event faults have in common."""

from __future__ import annotations

#: Id of the Airflow connection.
CONNECTION = "events"
HOOKS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
# The consumers, by their assets: two watchers, one that does it wrong, and the reading task.
FIRST, SECOND, TOO_EARLY = "calls_first", "calls_second", "calls_too_early"
READ = f"custody://{CONNECTION}/webhook-calls"
#: The webhooks that each consumer is for.
WEBHOOKS = {FIRST: HOOKS[:1], SECOND: HOOKS[1:], TOO_EARLY: HOOKS, READ: HOOKS}
#: The consumers that do it right.
CONSUMERS = {FIRST: "the first watcher", SECOND: "the second watcher", READ: "the reading task"}
#: Name of the file with the ids of the reading task's process and of its supervisor's.
PID_FILE = "read.pid"
#: Name of the file that exists while the wrong watcher has saved its cursor and not fired its events.
TOO_EARLY_FILE = "too-early"
