"""How each of the twenty mistakes is made: a connection, a task or a command, and the services behind them."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authorities import Authority
from cryptography.hazmat.primitives.asymmetric import ec
from people import Person, pem_of

from airflow_custody.operators.health import CustodyHealthCheckOperator
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.operators.whitelist_signing import CustodySignWhitelistRequestsOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.whitelist import CustodyWhitelistRequestSensor
from airflow_custody.signers import ConnectionSigner

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
MISTYPED = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAef"
REQUEST: dict[str, Any] = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", "retries": 0}
FILE = """\
version: 1
addresses:
  - label: Exchange
    address: rHb9CJAWyB4rj91VRWn96DkukG4bwdtyTh
    blockchain: XRP
    memo: 007
"""


@dataclass(frozen=True)
class World:
    """The services that the mistakes are made with, and a folder for files."""

    service: Sandbox
    with_tls: Sandbox
    with_client_certificates: Sandbox
    other_program: str
    nobody: str
    ca_bundle: str
    folder: Path

    def places(self) -> dict[str, str]:
        """Return what stands in a text, by what it really is."""
        return {
            self.service.url.partition("://")[2]: "127.0.0.1:8080",
            **{
                each.partition("://")[2]: "custody.example.com"
                for each in (self.with_tls.url, self.with_client_certificates.url, self.other_program)
            },
            self.nobody: "custody.example.com",
            f"{self.folder}/": "/dags/",
        }


class _OtherProgram(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def make_world(authority: Authority, folder: Path) -> Iterator[World]:
    """Start the services; one is a port that nobody listens on."""
    _, bundle, certificate = authority
    with (
        Sandbox() as service,
        Sandbox(certfile=certificate) as with_tls,
        Sandbox(certfile=certificate, client_ca=bundle) as with_client_certificates,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), _OtherProgram) as other,
        socket.socket() as nobody,
    ):
        nobody.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=other.serve_forever, daemon=True)
        thread.start()
        yield World(
            service,
            with_tls,
            with_client_certificates,
            f"http://127.0.0.1:{other.server_port}",
            f"127.0.0.1:{nobody.getsockname()[1]}",
            bundle,
            folder,
        )
        other.shutdown()
        thread.join()


def connections(world: World) -> dict[int, dict[str, Any]]:
    """Return the connections with a mistake, by the mistake's number."""
    service, token = world.service, world.service.token
    good = {"conn_type": "custody", "host": service.url, "password": token}
    https = {**good, "host": world.with_tls.url, "password": world.with_tls.token}
    closed = {**good, "host": world.with_client_certificates.url, "password": world.with_client_certificates.token}
    expired = service.control.add_token(["TPUser"], expires_in=-5, jwt=True)
    return {
        1: {**good, "conn_type": "http"},
        2: {**good, "host": service.url.removeprefix("http://")},
        3: {**good, "password": f"Bearer {token}"},
        4: {**good, "password": f"{token}\n"},
        5: {**good, "password": expired},
        7: {**good, "host": f"http://{world.nobody}"},
        8: {**good, "host": world.other_program},
        9: https,
        10: {**good, "host": "https://custody.example.com", "extra": {"proxy": f"http://{world.nobody}"}},
        11: {**closed, "extra": {"verify": world.ca_bundle}},
        12: {**good, "extra": {"time_out": 60}},
    }


def as_json(connection: Mapping[str, Any]) -> str:
    """Return a connection as an environment variable has it; it is tried once."""
    extra = {"timeout": 60, "max_retries": 0, **connection.get("extra", {})}
    return json.dumps({**connection, "extra": extra})


def tasks(world: World) -> dict[str, dict[str, Any]]:
    """
    Make a task for each mistake that a task shows, in the DAG that is being made; each is tried once.

    :return: the connections that they need besides those with a mistake, by their ids.
    """
    control = world.service.control
    control.set_approvers([{"sequential": [{"externalGroupID": "treasury", "minimumSignatures": 1}]}])
    ann, bob = Person(world.service, "ann", "treasury"), Person(world.service, "bob", "risk")
    row = {"blockchain": "ETH", "label": "Treasury", "address": f"0x{1:040x}"}
    (pending,) = control.add_whitelist_requests([row], status="pending")
    (rejected,) = control.add_whitelist_requests([{**row, "address": f"0x{2:040x}"}], status="rejected")
    file = world.folder / "whitelist.yaml"
    file.write_text(FILE)
    good = {"conn_type": "custody", "host": world.service.url}
    creator = control.add_token(["TPUser"])
    other_curve = pem_of(ec.generate_private_key(ec.SECP384R1()))
    for number in connections(world):
        CustodyHealthCheckOperator(task_id=f"connection_{number}", custody_conn_id=f"mistake_{number}", retries=0)
    CustodyCreateWhitelistRequestOperator(task_id="role", custody_conn_id="custody_reader", **REQUEST)
    CustodyHealthCheckOperator(task_id="group", groups=["hms"], retries=0)
    CustodyCreateWhitelistRequestOperator(task_id="address", **{**REQUEST, "address": MISTYPED})
    CustodyCreateWhitelistRequestOperator(
        task_id="template", **{**REQUEST, "address": "{{ params.address }}"}, params={"address": ""}
    )
    CustodySignWhitelistRequestsOperator(
        task_id="curve",
        custody_conn_id="custody_ann",
        signer=ConnectionSigner("custody_first_key"),
        request_ids=pending,
        expected=None,
        retries=0,
    )
    CustodySignWhitelistRequestsOperator(
        task_id="approver",
        custody_conn_id="custody_bob",
        signer=ConnectionSigner("bob_key"),
        request_ids=pending,
        expected=None,
        retries=0,
    )
    CustodyWhitelistRequestSensor(task_id="rejected", request_id=rejected, poke_interval=0.1, timeout=600, retries=0)
    CustodyPlanWhitelistOperator(task_id="file", path=str(file), retries=0)
    return {
        "custody_default": {**good, "password": world.service.token},
        "custody_reader": {**good, "password": creator},
        "custody_ann": {**good, "password": ann.token},
        "custody_bob": {**good, "password": bob.token},
        "custody_first_key": {"conn_type": "generic", "extra": {"private_key": other_curve}},
        "bob_key": {"conn_type": "generic", "extra": {"private_key": bob.pem}},
    }
