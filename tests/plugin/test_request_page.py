"""The page of one request, in Airflow's own app, for its users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow_pages import Pages, text_of
from airflow_runs import AIRFLOW, new_dag, run_dag
from apply_tries import address, write_rows
from connections import connection_json

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.idempotency import turn
from airflow_custody.idempotency.records import digest
from airflow_custody.operators.whitelist import CustodyCreateWhitelistRequestOperator
from airflow_custody.operators.whitelist_plan import CustodyApplyWhitelistPlanOperator, CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox

pytestmark = [
    pytest.mark.skipif(AIRFLOW < (3, 3), reason="this Airflow has no page, or keeps no state of tasks"),
    pytest.mark.usefixtures("connection"),
]
ROOT = "/custody/connections/custody_default/requests"
HOSTILE = "<script>alert(1)</script><b>\u202egnp\u200b'\"&"
FIELDS: dict[str, Any] = {"label": "Treasury", "address": address(1), "blockchain": "ETH"}


@pytest.fixture
def pages(server: Pages) -> Pages:
    """Return the API server, which knows of no task: the sandbox gives the same ids in each test."""
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    with create_session() as session:
        session.query(TaskStateStoreModel).delete()
    server.renew()
    return server


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[CustodyClient]:
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0) as client:
        yield client


def create_in_a_run(**changes: Any) -> Any:
    with new_dag() as dag:
        CustodyCreateWhitelistRequestOperator(**{"task_id": "create", **FIELDS, **changes})
    assert run_dag(dag).state == "success"
    return dag


def apply_in_a_run(folder: Path) -> Any:
    path = write_rows(folder / "whitelist.yaml", range(1, 4))
    with new_dag() as dag:
        plan: Any = CustodyPlanWhitelistOperator(task_id="plan", path=path).output
        CustodyApplyWhitelistPlanOperator(task_id="apply", path=path, plan_hash=plan["plan_hash"], lookup_wait=1)
    assert run_dag(dag).state == "success"
    return dag


def test_shows_a_request(pages: Pages, client: CustodyClient, sandbox: Sandbox) -> None:
    number = client.create_whitelist_request(WhitelistRequest(**FIELDS, memo="17"))
    response = pages.get(f"{ROOT}/{number}")
    assert response.status_code == 200
    text = text_of(response)
    for expected in (
        "Pending approval",
        "memo 17",
        address(1),
        "Treasury",
        "Nobody has signed it",
        "Not known: no task",
    ):
        assert expected in text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert 'href="/custody/connections/custody_default"' in response.text
    assert sandbox.token not in response.text


def test_a_request_that_was_signed(pages: Pages, client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.add_approvers(["Ann", "Bob"])
    number = client.create_whitelist_request(WhitelistRequest(**FIELDS))
    sandbox.control.sign_whitelist_requests([number])
    text = text_of(pages.get(f"{ROOT}/{number}"))
    assert "In effect" in text
    assert "not checked" in text
    assert NOT_PINNED in text


def test_verified_by_pinned_keys(
    pages: Pages, client: CustodyClient, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.control.add_approvers(["Ann", "Bob"])
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", connection_json(sandbox, **sandbox.control.pins()))
    numbers = [client.create_whitelist_request(WhitelistRequest(**FIELDS)) for _ in range(2)]
    sandbox.control.sign_whitelist_requests(numbers)
    sandbox.control.change_whitelist_request(numbers[1], address=address(9))
    assert "In effect Verified" in text_of(pages.get(f"{ROOT}/{numbers[0]}"))
    assert "In effect, not verified" in text_of(pages.get(f"{ROOT}/{numbers[1]}"))


def test_what_other_people_wrote_is_text(pages: Pages, client: CustodyClient, sandbox: Sandbox) -> None:
    number = client.create_whitelist_request(WhitelistRequest(**FIELDS))
    trail = {"externalUserId": HOSTILE, "action": HOSTILE, "comment": HOSTILE, "date": "2026-01-02T03:04:05Z"}
    signature = {"signature": {"userId": HOSTILE, "comment": HOSTILE, "signature": "x"}, "hashes": []}
    sandbox.control.set_whitelist_envelope(
        number, trails=[trail], status=HOSTILE, action=HOSTILE, signedAddress={"signatures": [signature]}
    )
    response = pages.get(f"{ROOT}/{number}")
    assert "2026-01-02 03:04 UTC" in text_of(response)
    assert 'title="2026-01-02 03:04:05 UTC"' in response.text
    assert response.text.count("U+202E") >= 8
    check_escaped(response.text)


def check_escaped(html: str) -> None:
    """Check that other people's text is shown, and is nothing but text."""
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&lt;b&gt;" in html
    assert "\u202e" not in html
    assert "\u200b" not in html
    assert "U+202E" in html


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        ("4711", 404, "no whitelisting request with this id"),
        ("abc", 404, "is a whole number"),
        ("9" * 30, 404, "is a whole number"),
        ("..%2f..%2fhealth", 404, ""),
        ("%3Cscript%3E", 404, "is a whole number"),
    ],
)
def test_an_id_that_is_none(pages: Pages, sandbox: Sandbox, number: str, status: int, words: str) -> None:
    response = pages.get(f"{ROOT}/{number}")
    assert response.status_code == status
    assert words in text_of(response)
    assert "<script" not in response.text


def test_a_404_of_a_gateway_is_not_taken_for_the_services_own(pages: Pages, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", method="GET", status=404, body="<h1>nginx</h1>")
    response = pages.get(f"{ROOT}/4711")
    assert response.status_code == 200
    assert "is not the custody service" in text_of(response)
    assert "<h1>nginx" not in response.text


def test_a_service_that_refuses(pages: Pages, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox) -> None:
    connection = json.loads(connection_json(sandbox)) | {"password": "wrong-token"}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", json.dumps(connection))
    response = pages.get(f"{ROOT}/4711")
    assert "This request cannot be shown" in text_of(response)
    assert "401" in text_of(response)
    assert "wrong-token" not in response.text


@pytest.mark.parametrize(("user", "status"), [(None, 401), ("vera", 404), ("ulf", 404), ("olga", 200), ("adam", 200)])
@pytest.mark.parametrize("path", [f"{ROOT}/3711", f"{ROOT}?ids=3711"])
def test_who_may_see_it(pages: Pages, client: CustodyClient, user: str | None, status: int, path: str) -> None:
    client.create_whitelist_request(WhitelistRequest(**FIELDS))
    response = pages.get(path, user)
    assert response.status_code == status
    assert (address(1) in response.text) is (status == 200)


@pytest.mark.parametrize("path", [f"{ROOT}/3711", f"{ROOT}/4711", f"{ROOT}?ids=3711"])
def test_the_way_back(pages: Pages, client: CustodyClient, path: str) -> None:
    client.create_whitelist_request(WhitelistRequest(**FIELDS))
    alone, framed = pages.get(path), pages.get(path, sec_fetch_dest="iframe")
    assert '<a href="/">Airflow</a>' in alone.text
    assert '<a href="/">Airflow</a>' not in framed.text
    for response in (alone, framed):
        assert '<a href="/custody/">Custody</a>' in response.text
        assert '<a href="/custody/connections/custody_default">' in response.text


@pytest.mark.parametrize("path", [f"{ROOT}/3711", f"{ROOT}?ids=3711"])
def test_a_service_that_does_not_respond_in_time(pages: Pages, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_custody.plugin.cache import Reading, Readings

    async def read(self: Any, question: Any) -> Any:
        return Reading(late=True)

    monkeypatch.setattr(Readings, "read", read)
    assert "No response yet" in text_of(pages.get(path))


@pytest.mark.parametrize("path", [f"{ROOT}/3711", f"{ROOT}?ids=3711"])
def test_an_earlier_reading_says_so(
    pages: Pages, client: CustodyClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from airflow_custody.plugin.cache import Readings

    client.create_whitelist_request(WhitelistRequest(**FIELDS))
    read, problem = Readings.read, "So many readings that the service was not asked."

    async def late(self: Any, question: Any) -> Any:
        return replace(await read(self, question), problem=problem, late=True)

    monkeypatch.setattr(Readings, "read", late)
    text = text_of(pages.get(path))
    assert f"This may have changed {problem} Below is what it showed before." in text
    assert "cannot be shown" not in text
    assert "The reading goes on" not in text
    assert address(1) in text
    problem = ""
    assert "not responded yet. Below is what it showed before. The reading goes on" in text_of(pages.get(path))


def test_an_unknown_connection(pages: Pages) -> None:
    assert pages.get("/custody/connections/other/requests/3711").status_code == 404


def test_a_connection_whose_id_has_slashes(pages: Pages, sandbox: Sandbox, client: CustodyClient) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    number = client.create_whitelist_request(WhitelistRequest(**FIELDS))
    with create_session() as session:
        session.add(
            Connection(
                "team/a#1", conn_type="custody", host=sandbox.url, password=sandbox.token, extra={"max_retries": 0}
            )
        )
    try:
        for path in (f"requests/{number}", f"requests?ids={number}"):
            response = pages.get(f"/custody/connections/team%2Fa%231/{path}")
            assert response.status_code == 200, response.text
            assert address(1) in response.text
            assert 'href="/custody/connections/team%2Fa%231"' in response.text
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "team/a#1").delete()


class TestWhichTaskCreatedIt:
    def test_a_task_that_creates_one(self, pages: Pages) -> None:
        dag = create_in_a_run(custody_conn_id="{{ 'custody' }}_default", linked_wallet_ids=["12"])
        response = pages.get(f"{ROOT}/3711")
        text = text_of(response)
        assert f"Task create of DAG {dag.dag_id}" in text
        assert f'href="/dags/{dag.dag_id}/runs/manual__' in response.text
        assert '/tasks/create"' in response.text
        assert "It is what the task asked for." in text
        assert "label Treasury Treasury same" in text
        assert "linked_wallet_ids 12 12 same" in text

    def test_mapped_tasks(self, pages: Pages) -> None:
        with new_dag() as dag:
            CustodyCreateWhitelistRequestOperator.partial(task_id="create", blockchain="ETH").expand_kwargs(
                [{"label": "a", "address": address(1)}, {"label": "b", "address": address(2)}]
            )
        run = run_dag(dag)
        number = run.xcom("create", 1)
        response = pages.get(f"{ROOT}/{number}")
        assert '/tasks/create/mapped/1"' in response.text
        assert "label b b same" in text_of(response)

    def test_a_task_that_applies_a_file(self, pages: Pages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(turn, "SETTLE", 0.1)
        apply_in_a_run(tmp_path)
        response = pages.get(f"{ROOT}/3712")
        assert '/tasks/apply"' in response.text
        assert "It is what the task asked for." in text_of(response)

    def test_what_differs_from_what_was_asked_for(self, pages: Pages, sandbox: Sandbox) -> None:
        create_in_a_run()
        sandbox.control.change_whitelist_request("3711", label=HOSTILE)
        response = pages.get(f"{ROOT}/3711")
        assert "It is not what the task asked for" in text_of(response)
        assert "differs" in text_of(response)
        check_escaped(response.text)

    def test_a_request_of_another_connection_with_the_same_id(
        self, pages: Pages, client: CustodyClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Sandbox() as another:
            monkeypatch.setenv("AIRFLOW_CONN_OTHER", connection_json(another))
            dag = create_in_a_run(custody_conn_id="other")
            client.create_whitelist_request(WhitelistRequest(**FIELDS))
            assert "Not known: no task" in text_of(pages.get(f"{ROOT}/3711"))
            assert dag.dag_id in text_of(pages.get("/custody/connections/other/requests/3711"))

    @pytest.mark.parametrize("is_applied", [False, True])
    def test_a_task_whose_connection_led_to_another_service(
        self, pages: Pages, sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_applied: bool
    ) -> None:
        from airflow.models.task_state_store import TaskStateStoreModel as State
        from airflow.utils.session import create_session

        if is_applied:
            monkeypatch.setattr(turn, "SETTLE", 0.1)
            dag = apply_in_a_run(tmp_path)
        else:
            dag = create_in_a_run()
        assert "It is what the task asked for." in text_of(pages.get(f"{ROOT}/3711"))
        # What stored it before its service was stored with it.
        with create_session() as session:
            for each in session.query(State):
                stored = json.loads(each.value)
                for within in (stored, stored.get("content", {}), stored.get("window", {})):
                    within.pop("service", None)
                each.value = json.dumps(stored)
        text = text_of(pages.get(f"{ROOT}/3711"))
        assert f"of DAG {dag.dag_id}" in text
        assert "maybe at another service" in text
        assert "asked for." not in text
        with create_session() as session:
            for each in session.query(State):
                stored = json.loads(each.value)
                for within in (stored.get("content"), stored.get("window"), stored if "rows" in stored else None):
                    if within is not None:
                        within["service"] = digest("https://before.example.com")
                each.value = json.dumps(stored)
        text = text_of(pages.get(f"{ROOT}/3711"))
        assert "Not known: no task" in text
        assert "asked for." not in text

    @pytest.mark.parametrize("refused", ["dag", "xcom"])
    def test_of_a_dag_that_the_user_may_not_read(
        self, pages: Pages, refused: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
        from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

        dag = create_in_a_run()
        allowed = SimpleAuthManager.is_authorized_dag

        def is_authorized_dag(self: Any, *, access_entity: Any = None, details: Any = None, **kwargs: Any) -> bool:
            if kwargs["user"].username == "olga" and details.id == dag.dag_id:
                return refused == "xcom" and access_entity != DagAccessEntity.XCOM
            return allowed(self, access_entity=access_entity, details=details, **kwargs)

        monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)
        theirs, hers = pages.get(f"{ROOT}/3711", "adam"), pages.get(f"{ROOT}/3711", "olga")
        assert "It is what the task asked for." in text_of(theirs)
        assert "asked for." not in text_of(hers)
        assert (dag.dag_id in hers.text) is (refused == "xcom")

    def test_where_airflow_has_dropped_the_rendered_fields(self, pages: Pages) -> None:
        from airflow.models.renderedtifields import RenderedTaskInstanceFields as Rendered
        from airflow.utils.session import create_session

        dag = create_in_a_run()
        with create_session() as session:
            session.query(Rendered).filter(Rendered.dag_id == dag.dag_id).delete()
        assert dag.dag_id in pages.get(f"{ROOT}/3711").text

    def test_only_the_newest_are_searched(self, pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
        from airflow_custody.plugin import origins

        dag = create_in_a_run()
        create_in_a_run(address=address(2))
        monkeypatch.setattr(origins, "MAX_SEARCHED", 1)
        assert "Not known: no task" in text_of(pages.get(f"{ROOT}/3711"))
        monkeypatch.setattr(origins, "MAX_SEARCHED", 100)
        assert dag.dag_id in pages.get(f"{ROOT}/3711").text


class TestSeveralRequests:
    def test_shows_them(self, pages: Pages, client: CustodyClient) -> None:
        made = [
            client.create_whitelist_request(
                WhitelistRequest(**FIELDS | {"label": HOSTILE.replace("\u202e", ".").replace("\u200b", "")})
            )
            for _ in range(3)
        ]
        response = pages.get(f"{ROOT}?ids={','.join(made)},999&total=250")
        text = text_of(response)
        assert response.status_code == 200
        assert "The first 4 of 250 are shown" in text
        assert "The service does not list it" in text
        assert "<script" not in response.text
        for number in made:
            assert f'href="{ROOT}/{number}"' in response.text
        assert f'href="{ROOT}?ids={",".join(made)},999&amp;total=250"' in response.text

    @pytest.mark.parametrize("ids", ["", "x", "1,,2", "1,-2", ",".join(map(str, range(101)))])
    def test_what_are_no_ids(self, pages: Pages, sandbox: Sandbox, ids: str) -> None:
        sandbox.control.clear_request_log()
        response = pages.get(f"{ROOT}?ids={ids}&total=x")
        assert response.status_code == 404
        assert "whole numbers" in text_of(response)
        assert sandbox.control.request_log() == []
