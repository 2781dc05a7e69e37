"""
Run Airflow with its UI, the sandbox and the example DAGs, until Ctrl-C.

All files are in ``.demo/ui``, which is emptied at each start. The UI and the sandbox listen on this machine only, and
nobody has to log in; Airflow's log servers listen on all interfaces, as they always do, and want a signed request.
"""

from __future__ import annotations

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
    SandboxProcess,
    airflow_environment,
    approver_connections,
    free_ports,
    fresh_home,
    require_airflow,
    shown,
)

PATIENCE = 180.0
GRACE = 10.0
WATCHER = "custody_unhealthy_watcher"

_INTRODUCTION = """
Airflow:  {airflow}
Sandbox:  {sandbox}  (stands in for the custody service)
Webhook:  {webhook}

To try (a DAG that is switched on for the first time also makes up for its last scheduled run):
- Trigger custody_whitelist_complete. It waits for you under "Required Actions": approve, and it signs twice and waits
  for the effect; or reject. custody_whitelist_approval leaves the signing to a signer of your own, and enables the
  webhook above if you give it as webhook_id.
- Trigger custody_whitelist_batch (three addresses of a file, one signature), then custody_whitelist_reconciliation:
  the log of its task compare has a table of what the file and the service do not agree on.
- Trigger custody_whitelist_mapping, custody_webhook_maintenance or custody_health_gate.
- Make the service unhealthy: gates wait, and custody_unhealthy_watcher, already on, starts by itself within 10 s.
    curl -X PATCH {sandbox}/sandbox/health -H 'Content-Type: application/json' \\
      -d '{{"check": "vault", "fields": {{"status": "failure"}}}}'
  Healthy again: the same with "success".
- See what the service received: {sandbox}/sandbox/received

Ctrl-C stops everything.
"""


def main() -> int:
    """Run until interrupted, and return the exit code."""
    require_airflow()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    home = fresh_home("ui")
    log = home / "airflow.log"
    try:
        with SandboxProcess(home) as sandbox:
            webhook_id = sandbox.control.add_webhook()["id"]
            port, *log_ports = free_ports(3)
            url = f"http://127.0.0.1:{port}"
            print(f"Starting Airflow (half a minute; its output: {shown(log)}) ...", flush=True)
            with _standalone(_environment(home, sandbox, url, log_ports, webhook_id), log) as airflow:
                if not _wait_until_healthy(url, airflow, stop):
                    return 0
                print(_INTRODUCTION.format(airflow=url, sandbox=sandbox.url, webhook=webhook_id), flush=True)
                while not stop.wait(1.0):
                    if airflow.poll() is not None:
                        raise RuntimeError(f"Airflow ended by itself with exit code {airflow.returncode}")
    except RuntimeError as error:
        print(f"demo: failed: {error} (see {shown(log)})")
        return 1
    print("Stopped.")
    return 0


def _environment(
    home: Path, sandbox: SandboxProcess, url: str, log_ports: list[int], webhook_id: str
) -> dict[str, str]:
    worker_logs, trigger_logs = log_ports
    settings = {
        "AIRFLOW_VAR_CUSTODY_WEBHOOK_ID": webhook_id,
        "AIRFLOW__API__PORT": url.rpartition(":")[2],
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_logs),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
        **approver_connections(sandbox),
    }
    return airflow_environment(home, sandbox, **settings)


@contextmanager
def _standalone(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``airflow standalone``, and leave no process of it behind."""
    with log.open("wb") as output:
        # In its own session: Ctrl-C is for the demo, which then stops Airflow.
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
        print("Stopping Airflow (about ten seconds) ...", flush=True)
        _stop(airflow)


def _stop(airflow: subprocess.Popen[bytes]) -> None:
    """Interrupt Airflow, which ends its parts in order, and kill those that are still there after a while."""
    with suppress(psutil.NoSuchProcess):
        parts = psutil.Process(airflow.pid).children(recursive=True)
        # Not SIGTERM: that ends standalone alone and leaves all its parts running.
        airflow.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            airflow.wait(timeout=GRACE)
        # What was started meanwhile is in the same session, whoever its parent is now.
        parts += [part for part in psutil.process_iter() if _is_of_session(part, airflow.pid)]
        for part in parts:
            with suppress(psutil.NoSuchProcess):
                part.kill()
        psutil.wait_procs(parts, timeout=5)
    airflow.kill()
    airflow.wait()


def _is_of_session(part: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(part.pid) == session
    except OSError:
        return False


def _wait_until_healthy(url: str, airflow: subprocess.Popen[bytes], stop: threading.Event) -> bool:
    """Wait until all parts of Airflow are healthy; False if the user does not want to wait any longer."""
    begun = time.monotonic()
    while not stop.wait(0.5):
        if airflow.poll() is not None:
            raise RuntimeError(f"Airflow did not start: exit code {airflow.returncode}")
        if time.monotonic() - begun > PATIENCE:
            raise RuntimeError(f"Airflow is not ready after {PATIENCE:.0f} s")
        with suppress(requests.RequestException, ValueError):
            health = _call("GET", f"{url}/api/v2/monitor/health")
            if all(part["status"] == "healthy" for part in health.values()):
                # The one DAG that nobody triggers. Not found, so not ready, until it has been read.
                _call("PATCH", f"{url}/api/v2/dags/{WATCHER}", {"is_paused": False})
                return True
    return False


def _call(method: str, url: str, body: dict[str, bool] | None = None) -> dict[str, Any]:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.request(method, url, json=body, timeout=10)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


if __name__ == "__main__":
    sys.exit(main())
