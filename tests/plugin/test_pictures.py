"""The pictures of the docs: the pages that they show still have all texts of the pictures. No browser is needed."""

from __future__ import annotations

import json
import logging
import runpy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import DAG
from support.airflow.airflow_runs import AIRFLOW
from support.browser.airflow_pages import Pages, text_of
from support.browser.page_services import colleagues, healthy, troubled
from support.browser.picture_words import FOLDER, digest, find_outdated, read_words

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.sandbox import Sandbox

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 3), reason="the pictures are of Airflow 3.3")
EXAMPLES = Path(__file__).parents[2] / "example_dags"
RENEW = "run make pictures"


def test_each_picture_has_a_record_of_its_texts() -> None:
    pictures = {path.stem: digest(path.stem) for path in FOLDER.glob("*.png")}
    assert {name: entry["sha256"] for name, entry in read_words().items()} == pictures, RENEW
    assert all(entry["airflow"] or entry["custody"] for entry in read_words().values())


@pytest.fixture
def two_services(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ExitStack() as stack:
        treasury, default = stack.enter_context(Sandbox()), stack.enter_context(Sandbox())
        troubled(treasury.control)
        healthy(default.control)
        variables = {
            "AIRFLOW_CONN_CUSTODY_TREASURY": treasury.connection(pins=True),
            "AIRFLOW_CONN_CUSTODY_DEFAULT": default.connection(pins=True),
        }
        for name, value in {**variables, **colleagues(treasury)}.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.usefixtures("two_services")
def test_the_page_with_a_service_in_trouble(pages: Pages) -> None:
    shown = text_of(pages.get("/custody/"))
    assert find_outdated("page-in-airflow", "custody", [shown]) == [], RENEW


def test_the_request_of_the_first_dag(pages: Pages, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    signers = sandbox.control.add_signers(["alice", "bob"])
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", sandbox.connection(pins=True))
    request = WhitelistRequest(
        label="Settlement", address="0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb", blockchain="ETH"
    )
    with CustodyClient(sandbox.url, sandbox.token) as client:
        request_id = client.create_whitelist_request(request)
    for user in signers:
        with CustodyClient(sandbox.url, user["token"]) as client:
            signer = PemSigner(lambda user=user: user["private_key"], name=user["name"])  # type: ignore[misc]
            RequestSigner(client, signer, log=logging.getLogger(__name__)).sign([request_id], None, "checked")
    shown = text_of(pages.get(f"/custody/connections/custody_default/requests/{request_id}"))
    assert find_outdated("start-request", "custody", [shown]) == [], RENEW


def test_the_tasks_of_the_first_dag() -> None:
    (dag,) = (each for each in runpy.run_path(str(EXAMPLES / "custody_first_dag.py")).values() if isinstance(each, DAG))
    assert {task.label for task in dag.tasks} <= {*read_words()["start-run"]["airflow"]}, RENEW


def test_the_labels_of_the_connection_form() -> None:
    labels = get_provider_info()["connection-types"][0]["ui-field-behaviour"]["relabeling"].values()
    shown = json.dumps(read_words()["connection-form"]["airflow"], ensure_ascii=False)
    assert [label for label in labels if label not in shown] == [], RENEW
