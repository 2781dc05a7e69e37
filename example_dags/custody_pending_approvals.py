"""
Request an address, and send a notification if it is not signed within four hours.

The run creates a whitelisting request and waits for up to a week until it is signed at the service. Meanwhile, one of
Airflow's deadline alerts watches the run: if the run has not succeeded four hours after it was queued, Airflow calls
``notify``. The run continues.

Limits of a deadline alert:

- It watches a whole run, not a task, a request or a mapped task. Start one run for each request that has its own
  deadline.
- It calls ``notify`` once, even if the run has already failed, for instance because the request was rejected.
- It cannot stop the run. It does not cover requests that were created elsewhere: for these, use ``custody status`` or
  the metrics.
- The call is late if the scheduler is down, and is never made in ``dag.test()``.
- If ``notify`` fails, the UI does not show this. Its log is on the machine that ran it, in ``executor_callbacks`` in
  the log folder.

The user who starts a run enters the address; there is no schedule. What to change: the interval, and the body of
``notify``. Or use a provider's notifier instead, such as
``SyncCallback("airflow.providers.slack.notifications.slack.SlackNotifier", kwargs={...})``.

Tested on Airflow 3.3. On versions before 3.2, this file defines no DAG.
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


def notify(context: dict) -> list[str]:
    """Print the deadline and the pending requests. Replace this with a message to the signers."""
    from airflow_custody.client import CustodyClient
    from airflow_custody.hooks.custody import CustodyHook
    from airflow_custody.overview import for_people, read_overview

    run = context["dag_run"]
    lines = [f"{run['dag_id']}, run {run['dag_run_id']}: not signed by {context['deadline']['deadline_time']}"]
    # Print this first, because the service may be down.
    print(lines[0], flush=True)
    with CustodyHook("custody_default") as hook:
        usual = hook.get_conn()
        # Use short time-outs, without retries.
        with CustodyClient.from_settings(for_people(usual.settings), usual.auth) as client:
            overview = read_overview(client)
    requests = overview.requests.value
    if requests is None:
        lines.append(overview.requests.problem)
    else:
        pending = requests.pending
        lines += [f"pending: request {row.id} since {row.created_at}" for row in pending.rows]
        lines.append(f"{pending.total} pending, {len(pending.rows)} listed")
    for line in lines[1:]:
        print(line)
    return lines


if DeadlineAlert is not None:
    with DAG(
        dag_id="custody_pending_approvals",
        schedule=None,
        deadline=DeadlineAlert(
            # A manually started run may have no logical date.
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=timedelta(hours=4),
            # This runs in the executor. An AsyncCallback would run in the triggerer, which cannot import this file.
            callback=SyncCallback(notify),
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
                description="The destination address, used exactly as entered",
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
