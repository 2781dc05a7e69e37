"""One scenario: what happens to Airflow, the task and the sandbox, and what it resulted in."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from processes import TOKEN, Service, kill, read_pids, until
from scenarios import ADDRESS, OTHER, Scenario
from servers import Airflow

from airflow_custody.client import CustodyClient
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.signing.sending import RequestSigner

# This is run by a script, which sees the modules of its own folder only.
sys.path.append(str(Path(__file__).parent.parent))

from support.keys.attacks import attack

# How often an apply is killed, and after how many seconds. After the maximum it has found out what became of what an
# earlier try sent.
KILLS = 10
MEAN_SECONDS_TO_KILL = 2.5
MAX_SECONDS_TO_KILL = 9.0
# A task that cannot know whether its request exists fails, and tells a person to do this.
INSTRUCTION = "airflow variables set "
EXPLANATION = ("it cannot be known whether", "so it is not sent again", INSTRUCTION)

# Where the service lies: who signs, in which group; the last one's signature is left to the task that signs.
_PEOPLE = {"alice": "operations", "bob": "operations", "carol": "risk"}
_ROLES = ["TPUser", "WhitelistedAddressApprover"]
_RULES = [
    {"externalGroupID": "operations", "minimumSignatures": 2},
    {"externalGroupID": "risk", "minimumSignatures": 1},
]


@dataclass
class Outcome:
    """The outcome of one scenario: a row of the table, and whether the guarantee held."""

    tries: str
    requests: int
    result: str
    guarantee_held: bool


class ScenarioRun:
    """One run of a scenario, from its preparation to its outcome."""

    def __init__(self, scenario: Scenario, airflow: Airflow, service: Service, folder: Path, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.airflow = airflow
        self.service = service
        self.pid_file = folder / f"{scenario.name}.pid"
        self.runs: list[str] = []
        self.existing: set[str] = set()
        # Where the service lies: the requests that it lies about, one to be signed and one in effect.
        self.lied: dict[str, str] = {}
        # The row whose new request is revoked.
        self.revoked = 0

    def run(self) -> Outcome:
        """Prepare the service, let the fault happen, and see what it has led to."""
        if self.scenario.rows:
            lines = [f"Row {number},{_address(number)},ETH" for number in range(1, self.scenario.rows + 1)]
            self.pid_file.with_suffix(".csv").write_text("\n".join(["label,address,blockchain", *lines]))
        if self.scenario.procedure != "start the service late":
            self._prepare()
        getattr(self, f"_{self.scenario.procedure.replace(' ', '_')}")()
        if self.lied:
            return self._evaluate_lie()
        if self.scenario.renames:
            return self._evaluate_renames()
        return self._evaluate_rows() if self.scenario.rows else self._evaluate()

    def _prepare(self) -> None:
        self.service.start()
        control = self.service.control
        if not self.scenario.first:
            control.add_whitelist_requests(
                [{"label": "Earlier", "address": OTHER, "blockchain": "ETH"}], status="pending"
            )
        same = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH"}
        for request_id in control.add_whitelist_requests([same] * self.scenario.existing):
            control.set_whitelist_age(request_id, 30 * 86400)
        if self.scenario.renames:
            rows = range(1, self.scenario.rows + 1)
            control.add_whitelist_requests(
                [{"label": f"Old {each}", "address": _address(each), "blockchain": "ETH"} for each in rows]
            )
        self.existing = set(self._requests())
        control.clear_request_log()
        control.configure(**self.scenario.settings)
        for fault in self.scenario.sandbox_faults:
            control.add_fault(**fault)

    # --- procedures ----------------------------------------------------------------------------------------

    def _trigger(self, *runs: str) -> None:
        """Trigger runs and wait for their end; the rest of a first try goes on once another has sent, or is done."""
        self._start(*runs or ("run",))
        disruption = self.scenario.disruption
        if disruption in ("orphan the task", "pause both"):
            self._until_requested()
            # Resume the task first: its supervisor would kill it.
            for pid in read_pids(self.pid_file)[: 2 if disruption == "pause both" else 1]:
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.5)
        self._until_done()
        if disruption in ("kill the supervisor", "orphan the task", "pause both"):
            # The task that outlived its supervisor may continue now, and must do no harm.
            self.pid_file.with_suffix(".done").touch()
            task, _ = read_pids(self.pid_file)
            self._until(lambda: not Path(f"/proc/{task}").exists(), "the end of the old process")

    def _start_the_service_late(self) -> None:
        self._start("run")
        self._until(lambda: self._tries() >= 2, "the second try")
        self.service.start()
        self._until_done()

    def _restart_the_service(self) -> None:
        self.service.control.add_fault(method="POST", delay_after=50)
        self._start("run")
        self._until_requested()
        self.service.kill()
        time.sleep(2)
        self.service.start()
        self._until_done()

    def _clear_the_task(self) -> None:
        self._trigger()
        self._clear()
        self._until_second_try()

    def _a_person_gives_the_id(self) -> None:
        self._follow_instructions(lambda: self._requests()[0])

    def _a_person_says_none(self) -> None:
        self._follow_instructions(lambda: "none")

    def _follow_instructions(self, value: Callable[[], str]) -> None:
        """Do what the task's error message tells a person to do."""
        self._trigger()
        (task,) = self._tasks()
        if task["state"] != "failed" or not self._explains(task):
            raise RuntimeError("the task did not fail with instructions for a person")
        name = self._log(task).split(INSTRUCTION)[1].split()[0]
        self.airflow.call("POST", "/variables", {"key": name, "value": value()})
        self._clear()
        self._until_second_try()

    def _delete_the_run(self) -> None:
        self._trigger()
        self._call("DELETE", "/dagRuns/run")
        self._trigger()

    def _trigger_two_runs(self) -> None:
        self._trigger("one", "two")

    def _kill_at_random(self) -> None:
        self._start("run")
        self._kill_ten_times()

    def _kill_while_completing(self) -> None:
        self._apply_and_sign()
        self._kill_ten_times()

    def _revoke_while_completing(self) -> None:
        self._apply_and_sign()
        rows = self.scenario.rows
        self._until(lambda: len(self._in_effect("Old")) < rows - 2, "the first deletions")
        self.revoked = max(self._in_effect("Old"))
        self.service.control.set_whitelist_status(self._in_effect("Row")[self.revoked], "rejected")
        self._kill_ten_times()

    def _apply_and_sign(self) -> None:
        """Apply a plan that renames, and have people sign what it has created."""
        self._start("run")
        self._until(lambda: len(self._requests()) == self.scenario.rows, "the new requests")
        self.service.control.sign_whitelist_requests(self._requests())

    def _kill_ten_times(self) -> None:
        # Seeded with a text: each scenario has moments of its own.
        moments = random.Random(f"{self.seed} {self.scenario.name}")
        supervisors = moments.sample(range(KILLS), self.scenario.supervisor_kills)
        last: tuple[int, ...] = ()

        def is_new_try() -> bool:
            """Tell whether another process carries out the task; a person clears it if it is done already."""
            if read_pids(self.pid_file) != last:
                return True
            if last and self._is_done():
                self._clear()
            return False

        for number in range(KILLS):
            self._until(is_new_try, "the next try")
            time.sleep(min(moments.expovariate(1 / MEAN_SECONDS_TO_KILL), MAX_SECONDS_TO_KILL))
            task, supervisor = last = read_pids(self.pid_file)
            kill(supervisor if number in supervisors else task)
        self._until_done()

    def _let_the_service_lie(self) -> None:
        """Have people sign two addresses, and let the service lie about both, but not about a third."""
        control, folder, name = self.service.control, self.pid_file.parent, self.scenario.name
        control.set_approvers([{"sequential": _RULES}])
        people = {each: self._add_person(each, group) for each, group in _PEOPLE.items()}
        fields = {"blockchain": "ETH", "network": "mainnet", "memo": "4242", "linkedWalletIds": ["7"]}
        rows = [{**fields, "label": f"Supplier {number}", "address": _address(number)} for number in (1, 2, 3)]
        pending, effective, other = control.add_whitelist_requests(rows, status="pending")
        for person, own_token in people.items():
            signer = PemSigner.from_file(folder / f"{name}-{person}.key")
            with CustodyClient(self.service.url, own_token) as client:
                ids = [effective, other] if person == "carol" else [pending, effective, other]
                RequestSigner(client, signer, log=logging.getLogger(__name__)).sign(ids, None, "signed")
        lines = [f"{row['label']},{row['address']},ETH,mainnet,4242,7" for row in rows]
        columns = "label,address,blockchain,network,memo,linked_wallet_ids"
        (folder / f"{name}.csv").write_text("\n".join([columns, *lines]))
        self.lied = {"pending": pending, "effective": effective}
        for request_id in self.lied.values() if self.scenario.attack else ():
            attack(control, TOKEN, request_id, self.scenario.attack or "")
        extra = {**control.pins(), "networks": ["mainnet"], "max_retries": 0}
        for suffix, token in (("pinned", TOKEN), ("signer", people["carol"])):
            connection = {**self.service.connection, "password": token, "extra": json.dumps(extra)}
            self.airflow.call("POST", "/connections", {"connection_id": f"{name}_{suffix}", **connection})
        self._start("run", conf=self.lied)
        self._until_done()

    def _add_person(self, person: str, group: str) -> str:
        """Add a user who signs, with a key in a file, and return the user's token."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.pid_file.parent / f"{self.scenario.name}-{person}.key").write_bytes(pem)
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        control = self.service.control
        return control.add_token(_ROLES, user_id=control.add_user(person, _ROLES, groups=[group], public_key=public))

    # --- results -------------------------------------------------------------------------------------------

    def _evaluate(self) -> Outcome:
        requests = self._requests()
        tasks = self._tasks()
        ids = [str(self._xcom(task)) for task in tasks if task["state"] == "success"]
        correct = sum(each in requests for each in ids)
        explained = sum(task["state"] != "success" and self._explains(task) for task in tasks)
        # Every task that succeeded must have a request of its own.
        guarantee_held = (
            len(requests) <= self.scenario.requests
            and correct + explained == len(tasks)
            and len(set(ids)) == len(ids)
            and explained <= self.scenario.explained
            and (explained > 0 or len(requests) == self.scenario.requests)
        )
        states = ", ".join(sorted(str(task["state"]) for task in tasks))
        wrong = len(tasks) - correct - explained
        counts = {"XCom correct": correct, "failed, explained": explained, f"WRONG: {states}": wrong}
        result = ", ".join(f"{count} {text}" if len(tasks) > 1 else text for text, count in counts.items() if count)
        tries = sorted({int(task["try_number"]) for task in tasks})
        first_to_last = " to ".join(map(str, sorted({tries[0], tries[-1]})))
        return Outcome(first_to_last, len(requests), result, guarantee_held)

    def _evaluate_rows(self) -> Outcome:
        asked = {(_address(number), f"Row {number}") for number in range(1, self.scenario.rows + 1)}
        made = {each["id"]: (each["address"], each["label"]) for each in self.service.control.whitelist_requests()}
        (task,) = [each for each in self._tasks() if each["task_id"] == "apply"]
        pushed = self._xcom(task, "requests") if task["state"] == "success" else []
        # Each id is that of what its row asks for.
        correct = {each["id"] for each in pushed if made.get(each["id"]) == (each["address"], each["label"])}
        requests = self._requests()
        guarantee_held = len(requests) == len(asked) == len(correct) and {made[each] for each in requests} == asked
        result = f"all {len(correct)} ids in their place" if guarantee_held else f"WRONG: {task['state']}"
        return Outcome(str(task["try_number"]), len(requests), result, guarantee_held)

    def _evaluate_renames(self) -> Outcome:
        """Check that each row has a request in effect, and an old one only the row whose new request is revoked."""
        rows = set(range(1, self.scenario.rows + 1))
        old, new, requests = self._in_effect("Old"), self._in_effect("Row"), self._requests()
        (task,) = [each for each in self._tasks() if each["task_id"] == "complete"]
        held = len(requests) == len(rows) and old.keys() | new.keys() == rows
        if self.revoked:
            held = held and task["state"] == "failed" and self.revoked in old and new.keys() == rows - {self.revoked}
            held = held and "is rejected, not in effect" in self._log(task)
            result = f"failed, explained; {len(old)} old ones left, among them that of the revoked one"
        else:
            held = held and task["state"] == "success" and not old
            result = "all old ones deleted, all new ones in effect"
        result = result if held else f"WRONG: {task['state']}, {len(old)} old and {len(new)} new in effect"
        return Outcome(str(task["try_number"]), len(requests), result, held)

    def _in_effect(self, kind: str) -> dict[int, str]:
        """Return the ids of the requests in effect whose label is of this kind, by the numbers of their rows."""
        found = [each for each in self.service.control.whitelist_requests() if each["status"] == "APPROVED"]
        labels = [(each["label"].split(), each["id"]) for each in found]
        return {int(label[1]): each for label, each in labels if label[0] == kind}

    def _evaluate_lie(self) -> Outcome:
        tasks = {task["task_id"]: task for task in self._tasks()}
        states = {str(task["state"]) for task in tasks.values()}
        named = {"sign": "pending", "wait": "effective", "reconcile": "effective"}
        # What contradicts itself is refused before any signature is looked at.
        why = "(is not verified|unverified|unreadable|cannot be verified|contradicts itself)"
        silent = [
            task
            for task, request in named.items()
            if not re.search(rf"request {self.lied[request]}\)? {why}", self._log(tasks[task]))
        ]
        if self.scenario.attack:
            held, result = states == {"failed"} and not silent, "refused by signing, sensor and plan"
        else:
            held, result = states == {"success"}, "signed, in effect, reconciled"
        requests = self._requests()
        result = result if held else f"WRONG: {sorted(states)}, named by all but {silent}"
        return Outcome("1", len(requests), result, held and len(requests) == self.scenario.requests)

    def _requests(self) -> list[str]:
        """Return the ids of the requests that did not exist in advance."""
        found = [request["id"] for request in self.service.control.whitelist_requests()]
        return [each for each in found if each not in self.existing]

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        return self.airflow.call(method, f"/dags/{self.scenario.name}{path}", body)

    def _start(self, *runs: str, conf: dict[str, str] | None = None) -> None:
        self.runs = list(runs)
        for run in runs:
            self._call("POST", "/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": conf or {}})

    def _clear(self) -> None:
        task_id = "complete" if self.scenario.renames else "apply" if self.scenario.rows else "create"
        body = {"dry_run": False, "dag_run_id": "run", "task_ids": [task_id], "only_failed": False}
        self._call("POST", "/clearTaskInstances", body)

    def _tasks(self) -> list[dict[str, Any]]:
        found = [self._call("GET", f"/dagRuns/{run}/taskInstances")["task_instances"] for run in self.runs]
        return [task for tasks in found for task in tasks]

    def _tries(self) -> int:
        return max((task["try_number"] for task in self._tasks()), default=0)

    def _xcom(self, task: dict[str, Any], key: str = "return_value") -> Any:
        path = f"/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}/xcomEntries/{key}"
        return self._call("GET", f"{path}?map_index={task['map_index']}&deserialize=true")["value"]

    def _explains(self, task: dict[str, Any]) -> bool:
        return all(part in self._log(task) for part in EXPLANATION)

    def _log(self, task: dict[str, Any]) -> str:
        folder = self.airflow.logs / f"dag_id={self.scenario.name}" / f"run_id={task['dag_run_id']}"
        folder /= f"task_id={task['task_id']}"
        if task["map_index"] >= 0:
            folder /= f"map_index={task['map_index']}"
        return (folder / f"attempt={task['try_number']}.log").read_text()

    def _is_done(self) -> bool:
        return all(self._call("GET", f"/dagRuns/{run}")["state"] in ("success", "failed") for run in self.runs)

    def _until_done(self) -> None:
        self._until(self._is_done, "the end of the run")

    def _until_second_try(self) -> None:
        self._until(lambda: self._tries() >= 2, "the second try")
        self._until_done()

    def _until_requested(self) -> None:
        self._until(self._requests, "the request")

    def _until(self, condition: Callable[[], object], what: str) -> None:
        def is_met() -> object:
            # Without Airflow, each scenario would wait in vain.
            self.airflow.check()
            return condition()

        until(is_met, what, every=0.5)


def _address(number: int) -> str:
    return f"0x{number:040x}"
