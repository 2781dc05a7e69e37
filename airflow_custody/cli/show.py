"""The command that shows one whitelisting request."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.status import describe_paths


def show(args: Namespace, output: Output) -> int:
    """
    Show one whitelisting request: its state, its payload, its signatures, its trail. With pinned
    keys it says whether signatures prove that it is whitelisted, and by whom; without, nothing is
    verified. It is what the request's page in Airflow's UI shows.

    Exit codes: 0 shown; 1 there is no such request, its payload cannot be used (it is not shown
    then), or another error.

    JSON: {"id", "state" (effective, pending, rejected, unknown), "status" (as the service sent it),
    "trust" (verified; unsigned: nobody has signed it; unverified; not checked: no keys are pinned,
    or it was rejected), "verification" (what is proved, or why nothing is), "problem", "legacy",
    "deletion_pending", "action", "created_at", "changed_at", "paths" (the ways to sign it:
    [[{"group", "present", "needed"}]]), "payload" (if it is verified, what is signed and nothing
    else), "around" (what the service says beside the payload), "signatures": [{"user", "comment",
    "valid", "problem"}], "trail": [{"at", "user", "action", "comment"}]}. Each value of the payload
    is a text.
    """
    from airflow_custody.overview import read_request

    with open_client(args) as client:
        view = read_request(client, args.id)
    row, found = asdict(view.row), asdict(view)
    names = ("id", "state", "status", "trust", "problem", "legacy", "deletion_pending", "action")
    data: dict[str, Any] = {
        **{name: row[name] for name in names},
        "verification": view.verification,
        **{name: row[name] for name in ("created_at", "changed_at", "paths")},
        "payload": dict(view.fields),
        "around": dict(view.around),
        "signatures": found["signatures"],
        "trail": found["trails"],
    }
    # What is not proved must not look as if it were.
    is_proved = (view.row.state, view.row.trust) == ("effective", "verified")
    name = "payload" if is_proved else "payload, not verified"
    shown = {**data, "trust": "UNVERIFIED" if view.row.trust == "unverified" else view.row.trust}
    shown |= {"paths": describe_paths(row["paths"]), "payload": None, name: data["payload"]}
    shown["around, as the service shows it"] = shown.pop("around")
    shown["signatures, as the service shows them"] = shown.pop("signatures")
    shown["trail, as the service shows it"] = shown.pop("trail")
    output.data(data, shown)
    if not view.fields:
        message(view.row.problem)
        return ERROR
    return NOTHING_TO_DO
