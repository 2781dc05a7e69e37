"""The messages that the servers of Slack and e-mail receive from notifiers in real Airflow, with the guide's texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from airflow.providers.common.compat.sdk import AirflowTaskTimeout
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from support.airflow.airflow_runs import AIRFLOW, load, new_dag, run_dag
from support.airflow.approvals import Office, open_office
from support.airflow.task_log import TaskLog
from support.service.message_servers import slack_server, smtp_server
from support.service.people import connect_approvers

from airflow_custody.operators.whitelist_plan import CustodyPlanWhitelistOperator
from airflow_custody.sandbox import Sandbox
from airflow_custody.sensors.health import CustodyHealthSensor

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "example_dags"
FILE = EXAMPLES / "custody_whitelist.yaml"
#: The URL of Airflow, with a path, as behind a proxy of several applications.
AIRFLOW_URL = "https://airflow.example.com/treasury"
SECRETS = ("T0/B0/a-slack-webhooks-token", "xoxb-a-slack-apps-token", "the password of the mail server")
QUESTION = "Apply the whitelist plan: create 4, delete 0?"

pytestmark = [pytest.mark.usefixtures("connection", "airflow_db"), pytest.mark.filterwarnings("ignore")]
with_approvals = pytest.mark.skipif(AIRFLOW < (3, 3), reason="it has no approvals that dag.test() waits for")
with_watchers = pytest.mark.skipif(AIRFLOW < (3,), reason="it has no asset watchers")
with_deadlines = pytest.mark.skipif(AIRFLOW < (3, 2), reason="it has no deadlines that call back in an executor")


@pytest.fixture(autouse=True)
def airflow_url(monkeypatch: pytest.MonkeyPatch) -> None:
    section = "API" if AIRFLOW >= (3,) else "WEBSERVER"
    monkeypatch.setenv(f"AIRFLOW__{section}__BASE_URL", AIRFLOW_URL)


@pytest.fixture
def slack(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Define the connections of Slack's webhook and of its API, and return the received messages."""
    webhook, token, _ = SECRETS
    with slack_server() as (port, received):
        url = f"http://127.0.0.1:{port}"
        connections = {
            "SLACK_DEFAULT": {"conn_type": "slackwebhook", "host": f"{url}/services", "password": webhook},
            "SLACK_API_DEFAULT": {"conn_type": "slack", "password": token, "extra": {"base_url": f"{url}/api/"}},
        }
        for name, value in connections.items():
            monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(value))
        yield received
    assert_no_secret(sandbox, json.dumps(received))


@pytest.fixture
def mail(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EmailMessage]]:
    """Define the connection of the mail server, and return the received e-mails."""
    with smtp_server() as (port, received):
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "airflow@example.com", "retry_limit": 0}
        # Without a login, the hook sends no password.
        value = {"conn_type": "smtp", "host": "127.0.0.1", "port": port, "password": SECRETS[2], "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(value))
        yield received
    assert_no_secret(sandbox, "".join(each.as_string() for each in received))


def assert_no_secret(sandbox: Sandbox, text: str) -> None:
    assert [each for each in (*SECRETS, sandbox.token) if each in text] == []


def html_of(message: EmailMessage) -> str:
    """Return the body of an e-mail."""
    body = message.get_body(("html",))
    assert body is not None
    return str(body.get_content())


def guide() -> Any:
    """Import the code of the guide."""
    return load(ROOT / "docs" / "snippets" / "notifications.py")


def end_task(context: object) -> None:
    """Stand for a notifier during which the worker is stopped."""
    raise AirflowTaskTimeout("stopped")


def plan_dag(**approval: Any) -> Any:
    """Return the guide's task group, for the sample file."""
    dag = guide().approve_plan
    dag.get_task("whitelist.plan").path = str(FILE)
    for name, value in approval.items():
        setattr(dag.get_task("whitelist.approve"), name, value)
    return dag


@pytest.fixture
def signers(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the guide's signers, who sign one after the other."""
    sandbox.control.set_approvers([{"sequential": connect_approvers(sandbox, monkeypatch)}])


@pytest.fixture(scope="module")
def office(airflow_db: None) -> Office:
    return open_office()


# These tests are slow, because starting Airflow's API takes long.
@pytest.mark.slow
@with_approvals
@pytest.mark.usefixtures("signers")
class TestApproval:
    def test_a_plan_that_waits_is_announced_once_with_its_counts_and_its_form(
        self, office: Office, slack: list[dict[str, Any]], mail: list[EmailMessage]
    ) -> None:
        announced: list[int] = []

        def respond() -> None:
            announced.extend((len(slack), len(mail)))
            office.approve()

        run = office.run(plan_dag(), respond)
        assert run.state == "success", run.states
        assert announced == [1, 1]
        ((message,), (letter,)) = slack, mail
        assert run.xcom("whitelist.plan")["counts"]["create"] == 4
        place = office.question["task_instance"]
        run_url = f"{AIRFLOW_URL}/dags/{place['dag_id']}/runs/{quote(place['dag_run_id'])}"
        form = f"{run_url}/tasks/whitelist.approve/required_actions"
        assert message == {"text": f"{QUESTION} <{form}?try_number=1|Respond>"}
        assert letter["Subject"] == QUESTION
        assert letter["To"] == "approvers@example.com"
        assert html_of(letter).strip() == f'<a href="{form}?try_number=1">Respond</a>'

    def test_a_later_try_announces_nothing(self, slack: list[dict[str, Any]]) -> None:
        from airflow.providers.slack.notifications.slack import SlackNotifier

        text = "{{ task.subject }} {{ task.plan.counts.create }} {{ task.form_url(ti) }}"
        notifiers = [SlackNotifier(channel="#treasury", text=text), end_task]
        run = run_dag(plan_dag(notifiers=notifiers, retries=1, retry_delay=timedelta(0)))
        assert run.state == "failed"
        assert run.tries["whitelist.approve", -1] == 2
        (message,) = slack
        assert message["channel"] == "#treasury"
        assert re.fullmatch(
            rf"{re.escape(QUESTION)} 4 {AIRFLOW_URL}/\S+/whitelist.approve/required_actions\?try_number=1",
            message["text"],
        )

    @pytest.mark.parametrize("subject", ["", "{{ '{{ 7 * 7 }} <!channel>' }}"], ids=["by default", "of the author"])
    def test_data_is_neither_announced_nor_rendered(
        self, slack: list[dict[str, Any]], tmp_path: Path, subject: str
    ) -> None:
        hostile = "{{ 7 * 7 }} <!channel> <https://example.com|approved> @here"
        row = {"label": hostile, "address": "0x" + "1" * 40, "blockchain": "ETH"}
        path = tmp_path / "<!channel> @here.json"
        path.write_text(json.dumps({"version": 1, "addresses": [row]}))
        notifiers = [*plan_dag().get_task("whitelist.approve").notifiers[:1], end_task]
        dag = plan_dag(notifiers=notifiers, subject=subject)
        dag.get_task("whitelist.plan").path = str(path)
        run_dag(dag)
        (message,) = slack
        expected = "{{ 7 * 7 }} <!channel>" if subject else "Apply the whitelist plan: create 1, delete 0?"
        assert message["text"].partition(f" <{AIRFLOW_URL}/dags/")[0] == expected

    def test_a_notifier_that_fails_is_logged_and_the_approval_is_requested(
        self, office: Office, mail: list[EmailMessage], task_log: TaskLog
    ) -> None:
        # There is no connection to Slack.
        run = office.run(plan_dag(), office.approve)
        assert run.state == "success", run.states
        assert run.pushed("whitelist.approve", "plan_hash") == run.xcom("whitelist.plan")["plan_hash"]
        assert "SlackWebhookNotifier failed. The approval is requested nevertheless." in task_log.text
        assert "slack_default" in task_log.text
        assert [each["Subject"] for each in mail] == [QUESTION]

    def test_a_request_that_waits_is_announced_by_its_id(self, office: Office, slack: list[dict[str, Any]]) -> None:
        run = office.run(guide().approve_request, office.approve)
        assert run.state == "success", run.states
        (message,) = slack
        number = run.xcom("create_request")
        assert re.fullmatch(
            rf"Sign request {number}\? <{AIRFLOW_URL}/dags/\w+/runs/\S+/tasks/decide\?try_number=1\|Respond>",
            message["text"],
        )


@with_watchers
class TestHealth:
    def test_an_alert_is_sent_if_the_service_stays_unhealthy(
        self, sandbox: Sandbox, slack: list[dict[str, Any]]
    ) -> None:
        sandbox.control.update_health(group="hsm", status="failure")
        dag = guide().unhealthy
        task = dag.get_task("wait_until_healthy")
        assert task.timeout == 600
        task.timeout = task.poke_interval = 1
        run = run_dag(dag)
        assert run.state == "failed"
        (message,) = slack
        assert re.fullmatch(
            "Custody service: unhealthy for ten minutes, or cannot be checked. "
            rf"<{AIRFLOW_URL}/dags/{dag.dag_id}/runs/\S+/tasks/wait_until_healthy\?try_number=1\|Log>",
            message["text"],
        )

    def test_no_alert_is_sent_if_the_service_recovers(self, slack: list[dict[str, Any]]) -> None:
        assert run_dag(guide().unhealthy).state == "success"
        assert slack == []

    @pytest.mark.parametrize("recovers", [True, False])
    def test_the_example_alerts_if_the_service_stays_unhealthy(
        self, sandbox: Sandbox, capsys: pytest.CaptureFixture[str], recovers: bool
    ) -> None:
        sandbox.control.update_health(group="hsm", status="success" if recovers else "failure")
        dag = load(EXAMPLES / "custody_unhealthy_watcher.py").dag
        task = dag.get_task("wait_until_healthy")
        assert task.timeout == 600
        task.timeout = task.poke_interval = 1
        assert run_dag(dag).state_of("wait_until_healthy") == ("success" if recovers else "failed")
        alert = f"The custody service is unhealthy or cannot be checked: {AIRFLOW_URL}/dags/{dag.dag_id}/runs/"
        assert capsys.readouterr().out.count(alert) == (not recovers)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_gate_that_stays_closed_sends_an_email(sandbox: Sandbox, mail: list[EmailMessage], deferrable: bool) -> None:
    """The default text of these e-mails has a second link, to mark the task as successful: not for a gate."""
    sandbox.control.update_health(group="hsm", status="failure")
    with new_dag() as dag:
        plan = CustodyPlanWhitelistOperator(task_id="plan", path=str(FILE))
        gate = CustodyHealthSensor(
            task_id="wait_until_healthy",
            deferrable=deferrable,
            poke_interval=1,
            timeout=1,
            retries=2,
            on_failure_callback=SmtpNotifier(
                to="oncall@example.com",
                subject="{{ ti.task_id }}: still unhealthy",
                html_content="{{ ti.log_url }} {{ ti.xcom_pull(task_ids='plan', key='counts') }}",
            ),
        )
        plan >> gate
    assert run_dag(dag).state == "failed"
    (letter,) = mail
    assert letter["To"] == "oncall@example.com"
    assert letter["Subject"] == "wait_until_healthy: still unhealthy"
    link, _, counts = html_of(letter).strip().partition(" ")
    assert "'create': 4," in counts
    assert link.startswith(f"{AIRFLOW_URL}/dags/{dag.dag_id}/")
    assert "wait_until_healthy" in link


@with_deadlines
def test_a_deadline_that_passes_sends_a_link_to_the_run(sandbox: Sandbox, slack: list[dict[str, Any]]) -> None:
    """A scheduler notices the deadline, and an executor calls back. The test does the same with Airflow's functions."""
    import structlog
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline
    from airflow.sdk.execution_time.callback_supervisor import execute_callback
    from airflow.utils.session import create_session

    dag = guide().signed_in_time
    # On Airflow 3.3.2, dag.test() cannot end a run that has a deadline.
    (alert,), dag.deadline = dag.deadline, []
    assert run_dag(dag).state == "success"
    with create_session() as session:
        run = session.query(DagRun).filter_by(dag_id=dag.dag_id).order_by(DagRun.id.desc()).limit(1).one()
        deadline = Deadline(datetime.now(timezone.utc), alert.callback, run.id, None, dag.dag_id)
        session.add(deadline)
        session.flush()
        deadline.handle_miss(session)
        data, run_id = deadline.callback.data, run.run_id
        session.rollback()
    assert execute_callback(data["path"], data["kwargs"], Path(), None, structlog.get_logger()) == (True, None)
    link = f"https://airflow.example.com/dags/{dag.dag_id}/runs/{run_id}"
    assert slack == [{"text": f"Not completed within four hours: <{link}|run>"}]
