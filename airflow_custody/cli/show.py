"""The command that shows one whitelisting request."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client
from airflow_custody.cli.output import Output, message
from airflow_custody.cli.status import describe_paths

# What is shown of the row; address and label stand in the payload only.
_OF_ROW = (
    *("id", "state", "status", "trust", "problem", "legacy", "deletion_pending", "action"),
    *("created_at", "changed_at", "paths"),
)


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
    data = asdict(view)
    row = data.pop("row")
    data = {**{name: row[name] for name in _OF_ROW}, **data}
    # What is not proved must not look as if it were.
    is_proved = (view.row.state, view.row.trust) == ("effective", "verified")
    shown = {**data, "trust": "UNVERIFIED" if view.row.trust == "unverified" else view.row.trust}
    shown |= {"paths": describe_paths(view.row)}
    shown["payload" if is_proved else "payload, not verified"] = shown.pop("payload")
    for name in ("around", "signatures", "trail"):
        shown[f"{name}, as the service shows {'them' if name == 'signatures' else 'it'}"] = shown.pop(name)
    output.data(data, shown)
    if not view.payload:
        message(view.row.problem)
        return ERROR
    return NOTHING_TO_DO
