"""The example with a deadline: somebody is told what is pending, by what the scheduler would run."""

from __future__ import annotations

import logging
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow_runs import AIRFLOW, load

from airflow_custody.client import CustodyClient, CustodyError, WhitelistRequest
from airflow_custody.sandbox import Sandbox

EXAMPLE = Path(__file__).parent.parent.parent / "example_dags" / "custody_pending_approvals.py"

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]


@pytest.mark.skipif(AIRFLOW >= (3, 0), reason="Airflow 2 has no deadlines")
def test_no_dag_is_defined_on_airflow_2() -> None:
    assert not hasattr(load(EXAMPLE), "dag")


@pytest.mark.skipif(AIRFLOW < (3, 3), reason="deadlines call functions of a DAG file from Airflow 3.3 on")
def test_somebody_is_told_what_is_pending(sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.dagbag import DBDagBag
    from airflow.models.deadline import Deadline
    from airflow.sdk.execution_time.callback_supervisor import execute_callback
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType
    from sqlalchemy import select

    with CustodyClient(sandbox.url, sandbox.token) as client:
        identifier = client.create_whitelist_request(
            WhitelistRequest(label="L", address=f"0x{1:040x}", blockchain="ETH")
        )
    shutil.copy(EXAMPLE, tmp_path)
    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)  # type: ignore[no-untyped-call]
    bag = BundleDagBag(dag_folder=tmp_path, bundle_path=tmp_path, bundle_name="dags-folder")
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    now = datetime.now(timezone.utc)
    with create_session() as session:
        dag: Any = DBDagBag().get_latest_version_of_dag("custody_pending_approvals", session=session)
        run = dag.create_dagrun(
            run_id="manual__deadline",
            run_after=now,
            conf={"label": "Settlement", "address": f"0x{2:040x}", "blockchain": "ETH"},
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.QUEUED,
            session=session,
        )
        session.flush()
        (deadline,) = session.scalars(select(Deadline).where(Deadline.dagrun_id == run.id)).all()
        assert abs(deadline.deadline_time - now - timedelta(hours=4)) < timedelta(seconds=30)
        # As the scheduler does once the time is over, and an executor then.
        deadline.handle_miss(session)
        data: dict[str, Any] = deadline.callback.data
        assert str(deadline.callback.state) == "pending"
        capsys.readouterr()
        log = logging.getLogger(__name__)
        done = execute_callback(data["path"], data["kwargs"], EXAMPLE.name, tmp_path, _Log(log))  # type: ignore[arg-type]
        session.rollback()
    assert done == (True, None)
    out = capsys.readouterr().out
    assert "custody_pending_approvals, run manual__deadline: not signed by " in out
    assert f"pending: request {identifier} since 20" in out
    assert "pending in all: 1; 1 shown" in out


def test_it_is_said_before_the_service_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_DEFAULT", "{}")
    context = {"dag_run": {"dag_id": "dag", "dag_run_id": "run"}, "deadline": {"deadline_time": "noon"}}
    with pytest.raises(CustodyError):
        load(EXAMPLE).tell_somebody(context)
    assert "dag, run run: not signed by noon" in capsys.readouterr().out


class _Log:
    """A log that takes facts as keywords, as Airflow's do."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def __getattr__(self, level: str) -> Any:
        return lambda event, **facts: self._log.info("%s %s", event, facts)
