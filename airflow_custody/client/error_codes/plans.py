"""Error codes: whitelist files and plans."""

from __future__ import annotations

from airflow_custody.client.error_codes.entry import Entry, Group

_REQUEST = ("CustodyRequestError",)

GROUP = Group(
    "Files and plans",
    (
        Entry(
            "file-wrong",
            "A whitelist file is wrong, or cannot be read",
            "whitelist.yaml: 1 fault; nothing was sent: line 12: address: is missing",
            "The file does not exist on the worker, is not YAML, JSON or CSV, or has rows with faults. The text lists "
            "the faults with their lines.",
            "Correct the lines. 'custody whitelist validate FILE' checks a file without a DAG, and without the "
            "service.",
            ("WhitelistFileError",),
        ),
        Entry(
            "file-outside-bundle",
            "The file is not in the DAG's bundle",
            "the path '../whitelist.yaml' leads out of the DAG's bundle, to /opt/airflow/whitelist.yaml; nothing was "
            "read",
            "A relative path leads out of the DAG bundle, by .. or by a link. What is outside may change without "
            "review.",
            "Keep the file in the bundle, beside the DAG. If it must be elsewhere, give its absolute path.",
            _REQUEST,
        ),
        Entry(
            "same-destination",
            "Two rows are for the same destination",
            "row 3 and row 7 are for the same destination",
            "Two rows have the same chain, network, address and memo, perhaps in different spellings.",
            "Delete one of the rows.",
            _REQUEST,
        ),
        Entry(
            "plan-hash-wrong",
            "The plan's hash is not a hash",
            "plan_hash must be all 64 hexadecimal digits of a plan's hash, not '3f2a'; nothing was sent",
            "The task that applies a plan got a part of the hash, or all of the plan's result.",
            'Write plan_hash=plan.output["plan_hash"].',
            _REQUEST,
        ),
        Entry(
            "plan-changed",
            "The plan is no longer the one that was approved",
            "the plan is not the one that was approved; nothing was sent. Start a new run, which plans again and has "
            "the new plan approved.",
            "The file or the whitelist at the service changed between planning and applying.",
            "Start a new run, look at the new plan, and have it approved.",
            ("PlanChangedError",),
        ),
        Entry(
            "plan-over-limits",
            "The plan does more than it may",
            "the plan is over its limits, and nothing was sent: it creates 40, and max_creates is 20. The log "
            "has the whole plan. If it is meant, raise the limit in the DAG.",
            "The plan would create or delete more than the limits in the DAG allow. A file that lost its rows, or the "
            "wrong connection, looks like this.",
            "Read the plan in the log. If it is meant, raise max_creates or the other limit that the text names.",
            _REQUEST,
        ),
        Entry(
            "plan-has-changes",
            "The service does not have what the file says",
            "the service does not have what whitelist.yaml says: 1 create. The log has the whole plan.",
            "The task only compares, with fail_on_changes or fail_on_pending, and found a difference.",
            "Read the plan in the log. Either correct the file, or plan and apply it.",
            ("CustodyConflictError",),
        ),
        Entry(
            "plan-approval-repeated",
            "A task that asks whether to apply a plan was cleared or tried again",
            "an earlier try may have asked, and Airflow would show that question again, whatever is planned now; "
            "nobody was asked. Start a new run of the DAG.",
            "Airflow keeps one question for each task of a run. After a clear it shows the first one, although another "
            "plan may be behind it by then.",
            "Start a new run of the DAG: it plans and asks anew.",
            ("CustodyConflictError",),
        ),
        Entry(
            "plan-incomplete",
            "Not all of the plan was carried out",
            "not all of the plan was carried out (12 created, 3 left). The rows that are left had no effect.",
            "Some rows were not sent, or had no effect. If the service refused a row, or nothing is known of it, the "
            "text has another code.",
            "Clear the task, or let Airflow try it again: it goes on where it stopped. Where the text says so, plan "
            "again.",
            ("CustodyConflictError",),
            None,
        ),
        Entry(
            "rows-refused",
            "The service refuses rows of the plan",
            "not all of the plan was carried out (12 created, 1 refused)\n  line 7, Treasury: refused: invalid address",
            "The service refused to create or delete some of what the plan says. The text has the service's words for "
            "each.",
            "Mark the task as success, so that the rest is signed. Correct the rows in the file, and start a new run.",
            _REQUEST,
        ),
        Entry(
            "apply-in-progress",
            "Another task applies a plan",
            "another task applies a plan at this service now, or the variable custody_apply_... was changed; nothing "
            "more was sent",
            "Two tasks would apply plans at the same service. One waits for the other, which has not shown for a while "
            "that it still runs.",
            "Wait for the other task. If it no longer runs, delete the variable that the text names, and clear this "
            "task.",
            ("CustodyError", "CustodyConflictError"),
            True,
        ),
        Entry(
            "evidence-unreadable",
            "An evidence file cannot be read",
            "audit.json is not JSON. Give a file that 'custody whitelist verify --evidence -o json' has printed.",
            "The file given with --from does not exist, is too large, or is not what the command prints as evidence.",
            "Give a file that 'custody whitelist verify --evidence -o json' has printed.",
            _REQUEST,
        ),
    ),
)
