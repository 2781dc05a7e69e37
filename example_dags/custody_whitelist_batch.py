"""
Whitelist the addresses in a CSV file, from creating the requests until all of them have taken effect.

Run it again whenever the file has grown. A row that is at the service already is not requested again: if its request is
in effect, nothing happens; if it is pending, it is signed and waited for. If a request for the same address differs
from its row or was rejected, or there are several, the run fails with a report before anything is created.

Each new row is a mapped task instance, with its own log and retries. Then each approver signs what the service wants
them to sign, up to a hundred requests with one signature, all or none. The run ends when all requests have taken
effect. The report is an asset: its event holds the ids, and you can schedule another DAG on it.

No person is asked: whoever can change the file decides which addresses are whitelisted, so keep it where changes are
reviewed. ``addresses.csv`` next to this file is a sample with addresses from public specifications. Each run reads all
requests at the service, so this suits small lists. To go on after a failure, clear the tasks that failed, or start a
new run.

What to change: the default of the param ``file``, and ``APPROVERS``. Connections to create: one for each approver's
user (``custody_first_approver``, ``custody_second_approver``), and one of any type for each approver's P-256 key, in
the extra ``private_key`` (``custody_first_key``, ``custody_second_key``). All users must be able to find the requests.
Finding and approving are undocumented operations of the service.
"""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, Asset, Param, task

from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_approval import CustodyApproveWhitelistRequestsOperator
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

#: The approvers, in the order in which they sign.
APPROVERS = ("first", "second")
MAX_BATCH_SIZE = 100
#: What the service says of a request that was rejected. Its words are not published.
REJECTED_STATUSES = ("rejected", "declined")

#: The columns that a file may have, by the keys of a request's payload. They are parameters of the create operator.
COLUMNS = {
    "currency": "blockchain",
    "network": "network",
    "addressType": "address_type",
    "address": "address",
    "memo": "memo",
    "label": "label",
    "customerId": "customer_id",
    "exchangeAccountId": "exchange_account_id",
    "linkedInternalAddresses": "linked_internal_address_ids",
    "linkedWallets": "linked_wallet_ids",
    "contractType": "contract_type",
}
LISTS = ("linked_internal_address_ids", "linked_wallet_ids")
REQUIRED = {"label", "blockchain", "address"}

whitelist_batch = Asset("custody-whitelist-batch")


def read_rows(path: str) -> list[dict]:
    """Return the rows of the file, without empty cells; semicolons separate the items of a list."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        rows = [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]
    for row in rows:
        if not REQUIRED <= row.keys() <= set(COLUMNS.values()):
            raise AirflowFailException(f"{path}: a row lacks a required cell, or has one in an unknown column: {row}")
    return [{name: cell.split(";") if name in LISTS else cell for name, cell in row.items()} for row in rows]


def row_of(payload: dict) -> dict:
    """Return a payload as a row. A key without a column keeps its name, so that it differs from any row."""
    row = {COLUMNS.get(key, key): value for key, value in payload.items() if value}
    return {name: [str(link["id"]) for link in value] if name in LISTS else value for name, value in row.items()}


def key_of(row: dict) -> tuple:
    """Return what the requests for one row have in common, in whatever case the address is written."""
    return row["blockchain"].upper(), row["address"].casefold(), row.get("memo")


def differing_fields(row: dict, other: dict) -> list[str]:
    """Return the names of the fields in which two rows with the same key differ."""

    def comparable(row: dict) -> dict:
        # The service may say that an address is "individual" where nothing was said.
        row = {"address_type": "individual", **row, "blockchain": row["blockchain"].upper()}
        return {name: sorted(value) if name in LISTS else value for name, value in row.items()}

    row, other = comparable(row), comparable(other)
    return sorted(name for name in row.keys() | other.keys() if row.get(name) != other.get(name))


with DAG(
    dag_id="custody_whitelist_batch",
    schedule=None,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    params={
        "file": Param(
            str(Path(__file__).with_name("addresses.csv")),
            type="string",
            minLength=1,
            title="File",
            description="Path of the CSV file with the addresses, on the workers",
        )
    },
    tags=["custody", "example"],
    doc_md=__doc__,
) as dag:
    check_health = CustodyHealthCheckOperator(task_id="check_health")

    @task
    def find_new(params: dict | None = None, *, ti=None) -> list[dict]:
        """Return the rows that are not at the service; push the others, with the ids of their requests."""
        rows = read_rows(params["file"])
        at_service: dict[tuple, list[tuple[str, dict]]] = {}
        rejected = set()
        with CustodyHook("custody_default").get_conn() as client:
            for request in client.find_whitelist_requests():
                row = row_of(request.payload())
                at_service.setdefault(key_of(row), []).append((request.id, row))
                if (request.status or "").lower() in REJECTED_STATUSES:
                    rejected.add(request.id)
        keys = [key_of(row) for row in rows]
        new, existing, problems = [], [], []
        for key, row in zip(keys, rows, strict=True):
            found = at_service.get(key, [])
            ids = ", ".join(request_id for request_id, _ in found)
            if keys.count(key) > 1:
                problems.append((f"{keys.count(key)} times in the file", row))
            elif len(found) > 1:
                problems.append((f"{len(found)} times at the service: {ids}", row))
            elif ids in rejected:
                problems.append((f"request {ids} was rejected: delete it to ask again", row))
            elif found and (fields := differing_fields(row, found[0][1])):
                problems.append((f"differs from request {ids} in {', '.join(fields)}", row))
            elif found:
                existing.append({"id": ids, **row})
            else:
                new.append(row)
        print(f"{len(rows)} rows: {len(existing)} at the service, {len(new)} new, {len(problems)} with problems")
        for problem, row in problems:
            print(f"{problem}: {row['label']}, {row['blockchain']} {row['address']}")
        if problems:
            raise AirflowFailException(f"{len(problems)} of {len(rows)} rows have problems; nothing was created")
        ti.xcom_push(key="existing", value=existing)
        return new

    new = find_new()
    create_requests = CustodyCreateWhitelistRequestOperator.partial(
        task_id="create_requests",
        map_index_template="{{ task.address_label }}",
        max_active_tis_per_dagrun=4,
    ).expand_kwargs(new)

    # With trigger_rule="none_failed", a task also runs if there was nothing to create or to sign.
    @task(trigger_rule="none_failed")
    def all_requests(existing: list[dict], new: list[dict], new_ids: list[str] | None) -> list[dict]:
        """Return all rows, with the ids of their requests."""
        return [*existing, *({"id": each, **row} for each, row in zip(new_ids or (), new, strict=False))]

    # [START howto_custody_whitelist_batch]
    @task(trigger_rule="none_failed")
    def find_to_sign(requests: list[dict], custody_conn_id: str) -> list[dict]:
        """Return the requests that an approver has to sign, in batches that can be signed together."""
        batches = []
        with CustodyHook(custody_conn_id).get_conn() as client:
            for start in range(0, len(requests), MAX_BATCH_SIZE):
                batch = {request["id"]: request for request in requests[start : start + MAX_BATCH_SIZE]}
                if missing := batch.keys() - {request.id for request in client.find_whitelist_requests(ids=batch)}:
                    # A service may show late what was created: the task is retried.
                    raise RuntimeError(f"{custody_conn_id} does not find the requests {', '.join(sorted(missing))}")
                to_sign = client.find_whitelist_requests_for_approval(ids=batch)
                # What is signed must be what the row says.
                if expected := [batch[request.id] for request in to_sign]:
                    batches.append({"request_ids": [request["id"] for request in expected], "expected": expected})
        return batches

    requests = all_requests(new["existing"], new, create_requests.output)
    step = requests
    for name in APPROVERS:
        to_sign = find_to_sign.override(task_id=f"find_for_{name}")(requests, f"custody_{name}_approver")
        sign = CustodyApproveWhitelistRequestsOperator.partial(
            task_id=f"sign_{name}",
            custody_conn_id=f"custody_{name}_approver",
            signer=ConnectionSigner(f"custody_{name}_key"),
            max_active_tis_per_dagrun=1,
        ).expand_kwargs(to_sign)
        step >> to_sign
        step = sign
    # [END howto_custody_whitelist_batch]

    wait_until_effective = CustodyWhitelistRequestSensor.partial(
        task_id="wait_until_effective",
        map_index_template="{{ task.request_id }}",
        trigger_rule="none_failed",
        deferrable=True,
        poke_interval=5,
        timeout=24 * 60 * 60,
    ).expand(request_id=requests.map(lambda request: request["id"]))

    @task(outlets=[whitelist_batch], trigger_rule="none_failed")
    def report(requests: list[dict], *, outlet_events: dict | None = None) -> dict[str, str]:
        """Return the id for each label, and add the ids to the asset's event."""
        ids = {request["label"]: request["id"] for request in requests}
        outlet_events[whitelist_batch].extra = {"ids": [request["id"] for request in requests]}
        return ids

    check_health >> new
    step >> wait_until_effective >> report(requests)
