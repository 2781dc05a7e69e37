"""
Run Airflow with its UI, the sandbox and the example DAGs, until Ctrl-C.

All files are in ``.demo/ui``, which is emptied at each start. The UI and the sandbox listen on this machine only, and
need no login. Airflow's log servers listen on all interfaces, as always, but accept only signed requests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import requests
from _environment import (
    DEMO,
    SandboxProcess,
    airflow_environment,
    create_home,
    create_signers,
    free_ports,
    relative_path,
    require_airflow,
)
from _output import Style

from airflow_custody.sandbox import SandboxControl

START_TIMEOUT = 180.0
STOP_TIMEOUT = 10.0
WATCHER_DAG_ID = "custody_unhealthy_watcher"

_INSTRUCTIONS = """
Things to try. DAGs that create requests have no schedule. When you switch on a DAG with a schedule, Airflow also starts
its most recent scheduled run. If a DAG needs an address, use 0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb, with the chain
ETH and the label Settlement. Use the same label each time, because a DAG stops if a request for the address exists with
another label.

- Trigger custody_whitelist_as_code. It compares the file custody_whitelist.yaml with the service, and waits for your
  decision under "Required Actions". If you approve, it applies the plan, alice and bob sign, and when all requests are
  in effect, it plans again and finds no changes. Trigger it again: there is nothing to do. Then trigger
  custody_whitelist_reconciliation, which only compares the file with the service. Try these two DAGs first, because the
  requests of the other DAGs are not in the file, so the comparison would fail.
- Trigger custody_whitelist_as_tasks, which does the same with single tasks, in place of a task group.
- Trigger custody_whitelist_complete. It creates a request and waits for your decision under "Required Actions". If you
  approve, alice and bob sign, and the DAG waits until the address is in effect. If you reject, the request is rejected
  at the service. The request is not in the file, so the reconciliation reports it and fails.
- Trigger custody_whitelist_approval. It is meant for your own signer, so its task sign is only a placeholder. It
  enables the webhook that is named below if you pass the webhook's id as webhook_id.
- Trigger custody_pending_approvals, and leave it: it sends a notification if there is no signature within four hours.
- Trigger custody_first_dag. It creates a request and signs it without asking for a decision.
- Trigger custody_whitelist_mapping twice: the second run creates and signs nothing.
- Trigger custody_whitelist_from_rows, custody_webhook_maintenance or custody_health_gate.
- Make the service unhealthy. Health gates wait, and custody_unhealthy_watcher, which is already switched on, starts
  within 10 seconds.
    curl {sandbox}/sandbox/update_health \\
      -H 'Content-Type: application/json' \\
      -d '{{"check": "vault", "status": "failure"}}'
  To make it healthy again, send the same with "success".
- Have the service report a currency that is switched off. Switch on custody_read_webhook_calls and
  custody_on_currency_status, and wait until the first run of custody_read_webhook_calls is green. From then on, it
  reads the calls to the webhook each minute, and custody_on_currency_status plans the whitelist again. The plan fails
  if the service differs from the file.
    curl {sandbox}/sandbox/send_event \\
      -H 'Content-Type: application/json' \\
      -d '{{"webhook_type": "currencyStatus.updated",
           "data": {{"currency": "ETH", "status": "disabled"}}}}'
- Have the service report an incoming transaction. Switch on custody_watch_webhook_calls, and wait for half a minute.
  From then on, a watcher polls, and starts the DAG within 10 seconds.
    curl {sandbox}/sandbox/send_event \\
      -H 'Content-Type: application/json' \\
      -d '{{"webhook_type": "transactionExternal.received",
           "data": {{"transactionId": 46596}}}}'
- Have the service show a false address. custody_whitelist_reconciliation verifies the signatures, so it fails and names
  the request.
    curl {sandbox}/sandbox/configure \\
      -H 'Content-Type: application/json' \\
      -d '{{"forged": ["3711"]}}'
  Trigger custody_whitelist_evidence: it writes evidence to a file, and fails. To have the service show no false address
  again, send an empty list.
- Make a connection of your own: Admin, Connections, Add Connection. Connection Type: Custody; Base URL: {sandbox};
  Port: the number at its end; API token:
    {token}
  Then press Test Connection in its row.
- List the calls that the service has received.
    curl {sandbox}/sandbox/request_log \\
      -H 'Content-Type: application/json' -d '{{}}'

    Airflow:  {airflow}
    Sandbox:  {sandbox}
    Webhook:  {webhook}

The sandbox stands in for the custody service. The page Custody shows two services. custody_default is healthy, and the
DAGs use it. Its signers, alice and bob, have their own connections. custody_treasury has problems, which the page
lists.
"""
# Printed last, so that it stays on the screen.
_LAST = """Open this:  {airflow}/plugin/custody
Ctrl-C stops everything."""


def main() -> int:
    """Run Airflow and the sandbox until the user interrupts, and return the exit code."""
    require_airflow()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    home = create_home("ui")
    log = home / "airflow.log"
    try:
        (home / "treasury").mkdir()
        with SandboxProcess(home) as sandbox, SandboxProcess(home / "treasury") as treasury:
            webhook_id = sandbox.control.add_webhook(type="currencyStatus.updated")["id"]
            sandbox.control.add_webhook(type="transactionExternal.received")
            _make_trouble(treasury.control)
            port, *log_ports = free_ports(3)
            url = f"http://127.0.0.1:{port}"
            print(f"Starting Airflow. This takes about half a minute; its log is {relative_path(log)}", flush=True)
            with _standalone(_environment(home, sandbox, treasury, url, log_ports, webhook_id), log) as airflow:
                if not _wait_until_healthy(url, airflow, stop):
                    return 0
                token = json.loads(sandbox.connection)["password"]
                _print_instructions(airflow=url, sandbox=sandbox.url, token=token, webhook=webhook_id)
                while not stop.wait(1.0):
                    if airflow.poll() is not None:
                        raise RuntimeError(f"Airflow exited unexpectedly with code {airflow.returncode}")
    except RuntimeError as error:
        print(f"demo: failed: {error} (see {relative_path(log)})")
        return 1
    print("Stopped.")
    return 0


def _print_instructions(**values: str) -> None:
    """Print the instructions, then the page to open."""
    style = Style.of(sys.stdout.fileno(), os.environ)
    lines = style.paragraphs(_INSTRUCTIONS.format(**values))
    lines += ["", *(style.paint(line, "bold") for line in _LAST.format(**values).splitlines())]
    print("\n".join(lines), flush=True)


def _make_trouble(control: SandboxControl) -> None:
    """Prepare a service with problems: a failing check, pending requests, an unsigned address."""
    control.update_health(check="vault", status="failure")
    groups = [
        {"externalGroupID": "operations", "minimumSignatures": 2},
        {"externalGroupID": "risk", "minimumSignatures": 1},
    ]
    control.set_approvers([{"sequential": groups}])
    rows = [
        {"blockchain": "ETH", "label": label, "address": f"0x{number:040x}"}
        for number, label in enumerate(("Supplier Bremen", "Supplier Cadiz", "Supplier Turku", "Unknown"), start=1)
    ]
    waiting = control.add_whitelist_requests(rows[:2], status="pending")
    control.set_whitelist_age(waiting[0], 5 * 3600)
    control.add_whitelist_requests(rows[2:3], signed=True)
    control.add_whitelist_requests(rows[3:])
    control.add_webhook(status="disabled")


def _environment(
    home: Path,
    sandbox: SandboxProcess,
    treasury: SandboxProcess,
    url: str,
    log_ports: list[int],
    webhook_id: str,
) -> dict[str, str]:
    worker_logs, trigger_logs = log_ports
    settings = {
        "AIRFLOW_CONN_CUSTODY_TREASURY": treasury.connection,
        "AIRFLOW_VAR_CUSTODY_WEBHOOK_ID": webhook_id,
        "AIRFLOW_VAR_CUSTODY_EVIDENCE": str(home),
        "AIRFLOW__API__PORT": url.rpartition(":")[2],
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__PARALLELISM": "4",
        # Show the button *Test Connection* in Airflow's UI.
        "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "sqlite_settings.CONNECT_ARGS",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(DEMO), os.environ.get("PYTHONPATH")])),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_logs),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
        **create_signers(sandbox),
    }
    return airflow_environment(home, sandbox, **settings)


@contextmanager
def _standalone(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``airflow standalone``, and stop all its processes at the end."""
    with log.open("wb") as output:
        # Start it in its own session, so that Ctrl-C reaches only the demo, which then stops Airflow.
        airflow = subprocess.Popen(
            ["airflow", "standalone"],
            env=environment,
            executable=str(Path(sys.executable).parent / "airflow"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield airflow
    finally:
        print("Stopping Airflow. This takes about ten seconds.", flush=True)
        _stop(airflow)


def _stop(airflow: subprocess.Popen[bytes]) -> None:
    """Interrupt Airflow, then kill the components that are still running after a while."""
    with suppress(psutil.NoSuchProcess):
        processes = psutil.Process(airflow.pid).children(recursive=True)
        # Do not send SIGTERM, because it would stop only the parent process and leave the components running.
        airflow.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            airflow.wait(timeout=STOP_TIMEOUT)
        # Add processes that were started in the meantime. They are in the same session, even if their parent has
        # exited.
        processes += [process for process in psutil.process_iter() if _is_in_session(process, airflow.pid)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=5)
    airflow.kill()
    airflow.wait()


def _is_in_session(process: psutil.Process, session_id: int) -> bool:
    try:
        return os.getsid(process.pid) == session_id
    except OSError:
        return False


def _wait_until_healthy(url: str, airflow: subprocess.Popen[bytes], stop: threading.Event) -> bool:
    """Wait until all components of Airflow are healthy; return False if the user interrupts."""
    started = time.monotonic()
    while not stop.wait(0.5):
        if airflow.poll() is not None:
            raise RuntimeError(f"Airflow did not start (exit code {airflow.returncode})")
        if time.monotonic() - started > START_TIMEOUT:
            raise RuntimeError(f"Airflow was not ready after {START_TIMEOUT:.0f} s")
        with suppress(requests.RequestException, ValueError):
            health = _call("GET", f"{url}/api/v2/monitor/health")
            if all(component["status"] == "healthy" for component in health.values()):
                # Switch on the DAG with the watcher, so that it starts by itself. A 404 means that Airflow has not
                # parsed its file yet.
                _call("PATCH", f"{url}/api/v2/dags/{WATCHER_DAG_ID}", {"is_paused": False})
                return True
    return False


def _call(method: str, url: str, body: dict[str, bool] | None = None) -> dict[str, Any]:
    with requests.Session() as session:
        session.trust_env = False
        response = session.request(method, url, json=body, timeout=10)
    response.raise_for_status()
    result: dict[str, Any] = response.json()
    return result


if __name__ == "__main__":
    sys.exit(main())
