"""
Request an address, and tell somebody if it is not signed within four hours.

The run creates a whitelisting request and waits for up to a week until people have signed it at the service. A
deadline alert of Airflow's watches the run meanwhile: four hours after it was queued, ``tell_somebody`` is called if it
has not succeeded by then. The run goes on.

What a deadline alert cannot do: it watches a whole run, not a task, a request or a mapped task, so give each request
that has a deadline of its own a run of its own. It is called once, and also if the run has failed by then, as it does
when the request is rejected. It cannot stop the run, and knows nothing of requests that no run is for; ``custody
status`` and the metrics show these. It comes late if the scheduler is down, and not at all in ``dag.test()``. Nobody
sees in the UI that it failed: its log is on the machine that ran it, below ``executor_callbacks`` in the log folder.

Whoever starts a run gives the address; there is no schedule. What to change: the interval, and what ``tell_somebody``
does; or take a notifier of a provider in its place, such as
``SyncCallback("airflow.providers.slack.notifications.slack.SlackNotifier", kwargs={...})``.

Requires Airflow 3.3. This file defines no DAG where there are no such alerts.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG, Param

from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor

try:
    from airflow.sdk import DeadlineAlert, DeadlineReference, SyncCallback  # type: ignore[attr-defined]
except ImportError:
    DeadlineAlert = None


def tell_somebody(context: dict) -> list[str]:
    """Say that it is late, and print what is pending; replace this with a message to the people who sign."""
    from airflow_custody.client import CustodyClient
    from airflow_custody.hooks.custody import CustodyHook
    from airflow_custody.overview import for_people, read_overview

    run = context["dag_run"]
    lines = [f"{run['dag_id']}, run {run['dag_run_id']}: not signed by {context['deadline']['deadline_time']}"]
    # Before anything that may fail: the service may be away.
    print(lines[0], flush=True)
    with CustodyHook("custody_default") as hook:
        usual = hook.get_conn()
        # Nobody waits for the retries of a service that hangs.
        with CustodyClient.from_settings(for_people(usual.settings), usual.auth) as client:
            overview = read_overview(client)
    requests = overview.requests.value
    if requests is None:
        lines.append(overview.requests.problem)
    else:
        pending = requests.pending
        lines += [f"pending: request {row.id} since {row.created_at}" for row in pending.rows]
        lines.append(f"pending in all: {pending.total}; {len(pending.rows)} shown")
    for line in lines[1:]:
        print(line)
    return lines


if DeadlineAlert is not None:
    with DAG(
        dag_id="custody_pending_approvals",
        schedule=None,
        deadline=DeadlineAlert(
            # A run that somebody starts may have no logical date.
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=timedelta(hours=4),
            # Runs in the executor. An AsyncCallback runs in the triggerer, which cannot import what is in this file.
            callback=SyncCallback(tell_somebody),
        ),
        default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
        # No param has a default, so a run with a misspelled param name does not start.
        params={
            "label": Param(
                type="string",
                minLength=1,
                title="Label",
                description="What the service's users will see instead of the address",
            ),
            "address": Param(
                type="string",
                minLength=1,
                title="Address",
                description="The destination address, taken exactly as it is given",
            ),
            "blockchain": Param(type="string", minLength=1, title="Chain", description="Symbol of the address's chain"),
        },
        tags=["custody", "example"],
        doc_md=__doc__,
    ) as dag:
        create_request = CustodyCreateWhitelistRequestOperator(
            task_id="create_request",
            label="{{ params.label }}",
            address="{{ params.address }}",
            blockchain="{{ params.blockchain }}",
        )
        CustodyWhitelistRequestSensor(
            task_id="wait_until_effective",
            request_id=create_request.output,
            deferrable=True,
            poke_interval=60,
            timeout=timedelta(days=7).total_seconds(),
        )
