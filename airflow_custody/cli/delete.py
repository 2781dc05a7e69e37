"""The command that deletes one whitelisting request: the only one that changes anything at the service."""

from __future__ import annotations

import sys
from argparse import Namespace

from airflow_custody.cli.commands import ERROR, NOTHING_TO_DO
from airflow_custody.cli.connection import open_client, usage_error
from airflow_custody.cli.output import Output, message
from airflow_custody.client.text import escape

_IN_WORDS = {"effective": "in effect", "unknown": "in a state that is not known"}


def delete(args: Namespace, output: Output) -> int:
    """
    Delete one whitelisting request, in effect or not. Shows it and asks first; --yes does not ask.
    An address in effect cannot be used any more, unless another request for it is in effect. The
    user needs the role WhitelistedAddressCreator.

    Exit codes: 0 deleted, or there is no such request; 1 error, or the answer was not yes.

    JSON: {"id", "deleted" (false: it did not exist, or the answer was not yes), "state" (before:
    effective, pending, rejected, unknown; null: it did not exist), "chain", "address", "label"
    (each null likewise)}.
    """
    from airflow_custody.client.arguments import check_text
    from airflow_custody.client.whitelist.models import check_request_id
    from airflow_custody.client.whitelist.operations import status_if_exists
    from airflow_custody.overview import read_request

    request_id, comment = check_request_id(args.id, "ID"), check_text("--comment", args.comment)
    if not args.yes and not (sys.stdin and sys.stdin.isatty()):
        raise usage_error("this asks before it deletes, and standard input is no terminal", "Give --yes.")
    data = {"id": request_id, "deleted": False, **dict.fromkeys(("state", "chain", "address", "label"))}
    with open_client(args) as client:
        if status_if_exists(client, request_id) is None:
            message(f"request {request_id} does not exist: nothing to do")
            output.data(data)
            return NOTHING_TO_DO
        row = read_request(client, request_id).row
        data |= {"state": row.state, "chain": row.chain, "address": row.address, "label": row.label}
        if not args.yes:
            for name, value in (("label", row.label), ("chain", row.chain), ("address", row.address)):
                message(f"{name}: {escape(value[:300])}")
            question = (
                f"Delete request {request_id}, {_IN_WORDS.get(row.state, row.state)}, at {client.settings.base_url}?"
            )
            print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                message("nothing was deleted")
                output.data(data)
                return ERROR
        client.delete_whitelist_request(request_id, comment)
    output.data({**data, "deleted": True})
    return NOTHING_TO_DO
