"""A test of a DAG, beside ``conftest.py``."""

import runpy
from pathlib import Path

PATH = Path(__file__).parent / "dags" / "custody_first_dag.py"


def test_a_lost_response_creates_no_second_request(custody_sandbox):
    custody_sandbox.control.add_fault("drop", method="POST", path="/whitelists/addresses", work=True)
    conf = {"label": "Settlement", "address": "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb", "blockchain": "ETH"}
    run = runpy.run_path(str(PATH))["dag"].test(run_conf=conf)
    assert run.state == "success"
    assert len(custody_sandbox.control.whitelist_requests()) == 1
