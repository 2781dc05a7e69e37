from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import requests
import trustme
from sandbox_api import Call, OpenClient

from airflow_custody.sandbox import Sandbox, SandboxControl, SandboxError

ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, Path]:
    authority, other = trustme.CA(), trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "key", "chain", "client", "untrusted")}
    authority.cert_pem.write_to_path(files["ca"])
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.private_key_and_cert_chain_pem.write_to_path(files["server"])
    server.private_key_pem.write_to_path(files["key"])
    server.cert_chain_pems[0].write_to_path(files["chain"])
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(files["client"])
    other.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(files["untrusted"])
    return files


def test_start_and_stop(call: Call) -> None:
    before = set(threading.enumerate())
    sandbox = Sandbox()
    with pytest.raises(SandboxError, match="not running"):
        _ = sandbox.control
    sandbox.stop()
    assert sandbox.start() is sandbox
    with pytest.raises(SandboxError, match="already"):
        sandbox.start()
    assert sandbox.url == f"http://127.0.0.1:{sandbox.port}"
    assert json.loads(sandbox.connection()) == {"conn_type": "custody", "host": sandbox.url, "password": sandbox.token}
    assert call(sandbox).status_code == 200
    sandbox.stop()
    sandbox.stop()
    assert set(threading.enumerate()) == before
    with pytest.raises(requests.ConnectionError):
        call(sandbox)


def test_own_token(call: Call) -> None:
    with Sandbox(token="my-own") as sandbox:
        assert sandbox.token == "my-own"
        assert call(sandbox).status_code == 200


def test_stop_is_fast_with_calls_in_progress(caplog: pytest.LogCaptureFixture, call: Call) -> None:
    with Sandbox() as sandbox:
        control = sandbox.control
        control.add_fault(path="/users", delay=3600, times=None)
        control.add_fault(path="/health", delay_after=3600)
        control.add_fault(path="/webhooks", kind="trickle", pieces_every=3600)
        control.add_fault(path="/whitelists", kind="trickle_headers", pieces_every=3600)
        control.add_fault(path="/large", kind="large", size=2**31)
        failures = []

        def hang(path: str) -> None:
            try:
                call(sandbox, path, timeout=3600)
            except requests.RequestException as error:
                failures.append(error)

        paths = ("/users/me", "/users/me", "/health", "/webhooks", "/whitelists/addresses")
        threads = [threading.Thread(target=hang, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        # A client that reads nothing, and one that has not sent all of its body.
        stuck = socket.create_connection(("127.0.0.1", sandbox.port))
        stuck.sendall(b"GET /api/rest/v1/large HTTP/1.1\r\nHost: x\r\n\r\n")
        unfinished = socket.create_connection(("127.0.0.1", sandbox.port))
        unfinished.sendall(b"POST /api/rest/v1/webhooks HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
        while len(control.request_log()) < 6:
            time.sleep(0.01)
        sandbox.stop()
        for thread in threads:
            thread.join(timeout=600)
        stuck.close()
        unfinished.close()
    assert len(failures) == len(paths)
    assert not caplog.records


def test_https(certificates: dict[str, Path], call: Call) -> None:
    with Sandbox(certfile=certificates["server"]) as sandbox:
        assert sandbox.url.startswith("https://127.0.0.1:")
        assert call(sandbox, verify=certificates["ca"]).status_code == 200
        with pytest.raises(requests.exceptions.SSLError):
            call(sandbox)
        for kind in ("drop", "truncate_body", "truncate_headers", "trickle_headers"):
            sandbox.control.add_fault(kind=kind, **({"pieces_every": 0} if "trickle" in kind else {}))
            if kind == "trickle_headers":
                assert call(sandbox, verify=certificates["ca"]).status_code == 200
            elif kind == "truncate_headers":
                assert call(sandbox, verify=certificates["ca"]).headers.get("content-length") is None
            else:
                with pytest.raises(requests.RequestException):
                    call(sandbox, verify=certificates["ca"])
        assert sandbox.control.faults() == []
        control = SandboxControl(sandbox.url, verify=str(certificates["ca"]))
        assert control.about()["sandbox"]
        control.close()


def test_client_certificates(certificates: dict[str, Path], call: Call) -> None:
    with Sandbox(certfile=certificates["server"], client_ca=certificates["ca"]) as sandbox:
        assert call(sandbox, verify=certificates["ca"], cert=str(certificates["client"])).status_code == 200
        for wrong in (None, str(certificates["untrusted"])):
            with pytest.raises(requests.RequestException):
                call(sandbox, verify=certificates["ca"], cert=wrong)
        assert len(sandbox.control.request_log()) == 1
        control = SandboxControl(sandbox.url, verify=str(certificates["ca"]), cert=str(certificates["client"]))
        assert control.about()["sandbox"]
        control.close()


def test_state_is_kept(tmp_path: Path, call: Call, client_of: OpenClient) -> None:
    file = tmp_path / "state"
    with Sandbox(state=file) as first:
        control, token = first.control, first.token
        jwt = control.add_token(roles=["TPUser"], jwt=True)
        webhook = control.add_webhook()
        control.update_health(check="vault", status="failure")
        control.configure(currencies=["DOGE"])
        control.configure(version="3.15")
        api = client_of(first.url, token)
        number = api.post("/whitelists/addresses", {**ADDRESS, "blockchain": "DOGE"}).json()["result"]["id"]
    with Sandbox(state=str(file)) as second:
        assert second.token == token
        assert call(second, "/health", token=jwt).status_code == 200
        checks = call(second, "/health").json()["groups"]["hsm"]["healthChecks"]
        assert [check["status"] for check in checks if check["healthCheck"] == "vault"] == ["failure"]
        assert second.control.webhooks()[0]["id"] == webhook["id"]
        assert second.control.about()["version"] == "3.15"
        api = client_of(second.url, token)
        assert api.get(f"/whitelists/addresses/{number}").status_code == 200
        assert api.post("/whitelists/addresses", ADDRESS).status_code == 400
        again = api.post("/whitelists/addresses", {**ADDRESS, "blockchain": "DOGE"}).json()["result"]["id"]
        assert int(again) == int(number) + 1
    with Sandbox(state=file, token="another") as third:
        assert call(third).status_code == 200
        assert call(third, token=token).status_code == 401


def test_one_sandbox_for_each_file(tmp_path: Path) -> None:
    with Sandbox(state=tmp_path / "state"), pytest.raises(SandboxError, match="another sandbox"):
        Sandbox(state=tmp_path / "state").start()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("my notes, which are long enough to be read" * 20)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for file in (text, database):
        before = file.read_bytes()
        with pytest.raises(SandboxError, match="cannot use the state file"):
            Sandbox(state=file).start()
        assert file.read_bytes() == before


def test_importing_is_cheap() -> None:
    code = (
        "import sys, airflow_custody.sandbox as package\n"
        "assert not {'fastapi', 'uvicorn', 'requests', 'pydantic'} & set(sys.modules)\n"
        "for name in ('fastapi', 'uvicorn'): sys.modules[name] = None\n"
        "package.health_entry, package.SandboxError\n"
        "assert 'fastapi' not in dir(package)\n"
        "try: package.Sandbox\n"
        "except ModuleNotFoundError as error: print(error)\n"
        "try: package.nothing\n"
        "except AttributeError as error: print(error)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "pip install 'airflow-provider-custody[sandbox]'" in done.stdout
    assert "no attribute 'nothing'" in done.stdout
