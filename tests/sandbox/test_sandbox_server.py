from __future__ import annotations

import contextlib
import gc
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

from airflow_custody.sandbox import Sandbox, SandboxControl, SandboxError

ADDRESS = {"blockchain": "ETH", "label": "x", "address": "0x" + "a" * 40}


@pytest.fixture
def certificates(tmp_path):
    authority, other = trustme.CA(), trustme.CA()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "server", "key", "chain", "client", "stranger")}
    authority.cert_pem.write_to_path(files["ca"])
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.private_key_and_cert_chain_pem.write_to_path(files["server"])
    server.private_key_pem.write_to_path(files["key"])
    server.cert_chain_pems[0].write_to_path(files["chain"])
    authority.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(files["client"])
    other.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(files["stranger"])
    return files


def test_start_and_stop(call):
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


def test_start_again_at_the_same_place(tmp_path, call):
    sandbox = Sandbox(state=tmp_path / "state")
    with sandbox:
        url, token, hook = sandbox.url, sandbox.token, sandbox.control.add_webhook()
    with sandbox:
        assert (sandbox.url, sandbox.token) == (url, token)
        assert sandbox.control.webhooks()[0]["id"] == hook["id"]
        assert call(sandbox).status_code == 200


def test_own_token(call):
    with Sandbox(token="my-own") as sandbox:
        assert sandbox.token == "my-own"
        assert call(sandbox).status_code == 200


def test_several_at_once(call):
    with Sandbox() as one, Sandbox() as two:
        assert one.port != two.port
        one.control.add_webhook()
        one.control.order_fault(answer="drop", times=None)
        assert two.control.webhooks() == []
        assert call(two).status_code == 200
        with pytest.raises(requests.ConnectionError):
            call(one)


def test_stop_is_fast_with_calls_under_way(caplog, call):
    with Sandbox() as sandbox:
        control = sandbox.control
        control.order_fault(path="/users", delay=30, times=None)
        control.order_fault(path="/health", delay_after=30)
        control.order_fault(path="/webhooks", answer="trickle", pieces_every=30)
        control.order_fault(path="/whitelists", answer="trickle_headers", pieces_every=30)
        control.order_fault(path="/large", answer="large", size=2**31)
        failures = []

        def hang(path):
            try:
                call(sandbox, path, timeout=20)
            except requests.RequestException as error:
                failures.append(error)

        paths = ("/users/me", "/users/me", "/health", "/webhooks", "/whitelists/addresses")
        threads = [threading.Thread(target=hang, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        # One that reads nothing, and one that has not said all it has to say.
        stuck = socket.create_connection(("127.0.0.1", sandbox.port))
        stuck.sendall(b"GET /api/rest/v1/large HTTP/1.1\r\nHost: x\r\n\r\n")
        unfinished = socket.create_connection(("127.0.0.1", sandbox.port))
        unfinished.sendall(b"POST /api/rest/v1/webhooks HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
        while len(control.received()) < 6:
            time.sleep(0.01)
        begin = time.perf_counter()
        sandbox.stop()
        assert time.perf_counter() - begin < 0.5
        for thread in threads:
            thread.join(timeout=5)
        stuck.close()
        unfinished.close()
    assert len(failures) == len(paths)
    assert not caplog.records


def test_port_taken():
    before = set(threading.enumerate())
    with Sandbox() as sandbox, pytest.raises(SandboxError, match="cannot listen"):
        Sandbox(port=sandbox.port).start()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    "place", [{"port": 70_000}, {"host": "nowhere.invalid"}, {"host": "a..b"}, {"host": "203.0.113.1"}]
)
def test_bad_place(place):
    with pytest.raises(SandboxError, match="cannot listen"):
        Sandbox(**place).start()


def test_other_hosts(call):
    with Sandbox(host="0.0.0.0") as sandbox:
        assert sandbox.url == f"http://127.0.0.1:{sandbox.port}"
        assert call(sandbox).status_code == 200
    with Sandbox(host="localhost") as sandbox:
        assert sandbox.url == f"http://localhost:{sandbox.port}"
        assert call(sandbox).status_code == 200


def test_ipv6(call):
    try:
        sandbox = Sandbox(host="::1").start()
    except SandboxError:
        pytest.skip("no IPv6 here")
    assert sandbox.url == f"http://[::1]:{sandbox.port}"
    sandbox.control.order_fault(answer="drop")
    with pytest.raises(requests.ConnectionError):
        call(sandbox)
    assert call(sandbox).status_code == 200
    sandbox.stop()


def test_https(certificates, call):
    with Sandbox(certfile=certificates["server"]) as sandbox:
        assert sandbox.url.startswith("https://127.0.0.1:")
        assert call(sandbox, verify=certificates["ca"]).status_code == 200
        with pytest.raises(requests.exceptions.SSLError):
            call(sandbox)
        for answer in ("drop", "cut_body", "cut_headers", "trickle_headers"):
            sandbox.control.order_fault(answer=answer, **({"pieces_every": 0} if "trickle" in answer else {}))
            if answer == "trickle_headers":
                assert call(sandbox, verify=certificates["ca"]).status_code == 200
            elif answer == "cut_headers":
                assert call(sandbox, verify=certificates["ca"]).headers.get("content-length") is None
            else:
                with pytest.raises(requests.RequestException):
                    call(sandbox, verify=certificates["ca"])
        assert sandbox.control.faults() == []
        control = SandboxControl(sandbox.url, verify=str(certificates["ca"]))
        assert control.about()["sandbox"]
        control.close()


def test_https_with_separate_key(certificates, call):
    with Sandbox(certfile=certificates["chain"], keyfile=certificates["key"]) as sandbox:
        assert call(sandbox, verify=certificates["ca"]).status_code == 200


def test_client_certificates(certificates, call):
    with Sandbox(certfile=certificates["server"], client_ca=certificates["ca"]) as sandbox:
        assert call(sandbox, verify=certificates["ca"], cert=str(certificates["client"])).status_code == 200
        for wrong in (None, str(certificates["stranger"])):
            with pytest.raises(requests.RequestException):
                call(sandbox, verify=certificates["ca"], cert=wrong)
        assert len(sandbox.control.received()) == 1
        control = SandboxControl(sandbox.url, verify=str(certificates["ca"]), cert=str(certificates["client"]))
        assert control.about()["sandbox"]
        control.close()


def test_bad_certificates(certificates, tmp_path):
    before = set(threading.enumerate())
    for files in (
        {"certfile": tmp_path / "missing.pem"},
        {"certfile": certificates["ca"]},
        {"certfile": certificates["server"], "client_ca": tmp_path / "missing.pem"},
    ):
        with pytest.raises(SandboxError, match="certificate"):
            Sandbox(**files).start()
    with pytest.raises(SandboxError, match="certfile"):
        Sandbox(keyfile=certificates["key"])
    assert set(threading.enumerate()) == before


def test_state_is_kept(tmp_path, call, client_of):
    file = tmp_path / "state"
    with Sandbox(state=file) as first:
        control, token = first.control, first.token
        jwt = control.add_token(roles=["TPUser"], jwt=True)
        hook = control.add_webhook()
        control.update_health(check="vault", status="failure")
        control.set_currencies(["ADA"])
        control.set_version("3.15")
        api = client_of(first.url, token)
        number = api.post("/whitelists/addresses", {**ADDRESS, "blockchain": "ADA"}).json()["result"]["id"]
    with Sandbox(state=str(file)) as second:
        assert second.token == token
        assert call(second, "/health", token=jwt).status_code == 200
        assert call(second, "/health/hsm/vault").json()["health"]["status"] == "failure"
        assert second.control.webhooks()[0]["id"] == hook["id"]
        assert second.control.about()["version"] == "3.15"
        api = client_of(second.url, token)
        assert api.get(f"/whitelists/addresses/{number}").status_code == 200
        assert api.post("/whitelists/addresses", ADDRESS).status_code == 400
        again = api.post("/whitelists/addresses", {**ADDRESS, "blockchain": "ADA"}).json()["result"]["id"]
        assert int(again) == int(number) + 1
    with Sandbox(state=file, token="another") as third:
        assert call(third).status_code == 200
        assert call(third, token=token).status_code == 401


def test_one_sandbox_for_one_file(tmp_path):
    with Sandbox(state=tmp_path / "state"), pytest.raises(SandboxError, match="another sandbox"):
        Sandbox(state=tmp_path / "state").start()


def test_files_of_others_are_left_alone(tmp_path):
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("my notes, which are long enough to be looked at" * 20)
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    for file in (text, database):
        before = file.read_bytes()
        with pytest.raises(SandboxError, match="cannot use the state file"):
            Sandbox(state=file).start()
        assert file.read_bytes() == before


def test_importing_is_light():
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
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert "pip install 'airflow-provider-custody[sandbox]'" in done.stdout
    assert "no attribute 'nothing'" in done.stdout


def test_stop_while_calls_come_in(call, caplog):
    for _ in range(5):
        sandbox = Sandbox().start()
        ended = threading.Event()

        def keep_calling(sandbox=sandbox, ended=ended):
            while not ended.is_set():
                with contextlib.suppress(requests.RequestException):
                    call(sandbox, timeout=2)

        threads = [threading.Thread(target=keep_calling) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        begin = time.perf_counter()
        sandbox.stop()
        took = time.perf_counter() - begin
        ended.set()
        for thread in threads:
            thread.join(timeout=5)
        assert took < 0.5
    gc.collect()
    assert not caplog.records
