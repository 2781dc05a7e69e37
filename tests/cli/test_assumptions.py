"""The check of the package's assumptions about the service, against services that read the interface in other ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from support.cli_runs import Create, Ran, Run

from airflow_custody.client import CustodyClient
from airflow_custody.client.http.responses import Observation
from airflow_custody.sandbox import Sandbox

ALL = (
    "operations",
    "refusals",
    "status words",
    "own pending requests",
    "who made requests",
    "listing by offset",
    "texts",
    "signatures",
    "clock",
    "webhook calls",
)
NOW = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
LISTING = "/whitelists/addresses"


@pytest.fixture
def busy(sandbox: Sandbox, create: Create, signed: Create) -> list[str]:
    """Fill the service: three requests that are really signed, five that are pending, and calls; return their ids."""
    sandbox.control.add_webhook_calls(5, age=7200, spacing=60)
    return [*map(signed, range(3)), *(create(number, status="pending") for number in range(3, 8))]


def states(ran: Ran) -> dict[str, str]:
    return {each["assumption"]: each["state"] for each in ran.data["assumptions"]}


def seen(ran: Ran, name: str) -> str:
    (found,) = [each for each in ran.data["assumptions"] if each["assumption"] == name]
    return f"{json.dumps(found['seen'])} {found['error']} {found['advice']}"


@pytest.mark.usefixtures("busy")
def test_all_assumptions_hold_for_the_published_service(custody: Run, pins: list[str], sandbox: Sandbox) -> None:
    sandbox.control.clear_request_log()
    ran = custody("check", "--assumptions", *pins, "-o", "json")
    assert ran.code == 0
    assert ran.err == ""
    assert states(ran) == dict.fromkeys(ALL, "holds")
    assert {each["method"] for each in sandbox.control.request_log()} == {"GET"}
    text = custody("check", "--assumptions", *pins).out
    assert "status, not pending: 3 APPROVED; status, pending: 5 pending; action, not pending: 3 create" in text
    assert "rules in force: verified; in effect: 3 verified; pending: 5 unsigned" in text
    assert "assumptions:" not in custody("check", *pins).out


def test_an_empty_listing_proves_no_assumption(custody: Run, pins: list[str]) -> None:
    ran = custody("check", "--assumptions", *pins, "-o", "json")
    assert ran.code == 0
    told = ("operations", "refusals", "clock")
    assert states(ran) == {name: "holds" if name in told else "cannot tell" for name in ALL}


def configured(**settings: Any) -> Callable[[Sandbox, list[str]], object]:
    return lambda sandbox, ids: sandbox.control.configure(**settings)


def fault(kind: str, path: str, **options: Any) -> Callable[[Sandbox, list[str]], object]:
    return lambda sandbox, ids: sandbox.control.add_fault(kind, path=path, times=None, **options)


def envelope(**fields: Any) -> Callable[[Sandbox, list[str]], object]:
    return lambda sandbox, ids: sandbox.control.set_whitelist_envelope(ids[0], **fields)


def of_another_user(sandbox: Sandbox, ids: list[str]) -> None:
    """Let another user have made all requests, one whose external id is this user's number."""
    with CustodyClient(sandbox.url, sandbox.token) as client:
        trail = {"userId": "999", "externalUserId": client.get_current_user()["id"], "action": "create"}
    for each in ids:
        sandbox.control.set_whitelist_envelope(each, trails=[trail])


def respelled(sandbox: Sandbox, ids: list[str]) -> None:
    sandbox.control.set_whitelist_metadata(ids[0], payloadAsString='{"currency":"ETH"}')


def written_late(sandbox: Sandbox, ids: list[str]) -> None:
    sandbox.control.configure(calls={"order": "written"})
    sandbox.control.add_webhook_calls(1, age=9000)


HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "cannot tell"


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("reading", "name", "state", "excerpt"),
    [
        # Behaviour that the interface does not define.
        (configured(status_words={"APPROVED": "0xab12"}), "status words", FAILS, '{"(other text)": 3}'),
        (
            configured(status_words={"APPROVED": "ACTIVE"}),
            "status words",
            FAILS,
            "to --effective-statuses or --rejected",
        ),
        (configured(creator_sees_own=False), "own pending requests", UNKNOWN, '"pending, made by this user": 0'),
        (envelope(trails=None), "who made requests", FAILS, '"requests": 8, "with a creator": 7'),
        (of_another_user, "own pending requests", UNKNOWN, '"pending, made by this user": 0'),
        (configured(listings={"whitelist": {"totals": [None]}}), "listing by offset", UNKNOWN, "response-unusable"),
        (configured(listings={"whitelist": {"totals": ["9"]}}), "listing by offset", FAILS, '"hidden": 1'),
        (configured(listings={"whitelist": {"ignored": ["offset"]}}), "listing by offset", FAILS, "listing-changed"),
        (respelled, "texts", FAILS, '"without a published text that matches the hash": 1'),
        (lambda sandbox, ids: sandbox.control.configure(forged=ids[:1]), "signatures", FAILS, '"unverified": 1'),
        (written_late, "webhook calls", FAILS, '"by time": false'),
        (configured(version="3.13"), "operations", FAILS, '"not offered": ["list health checks"]'),
        # Services that fail, or respond late.
        (fault("status", "/webhooks/calls", status=403), "webhook calls", UNKNOWN, '"status": 403'),
        (fault("rate_limit", LISTING, retry_after=1), "status words", UNKNOWN, "rate-limited"),
        (fault("html", f"{LISTING}/{2**62}", status=404), "refusals", FAILS, '"body": "another program'),
    ],
    ids=[
        "a status word that is an address",
        "a status word that is unknown",
        "creator does not see own requests",
        "no trail",
        "made by another user",
        "no total",
        "wrong total",
        "offset ignored",
        "payload in another form",
        "forged request",
        "calls in the order of writing",
        "an old version",
        "calls are forbidden",
        "rate limit",
        "a 404 of a gateway",
    ],
)
def test_each_deviation_is_reported(
    custody: Run,
    pins: list[str],
    sandbox: Sandbox,
    busy: list[str],
    reading: Callable[[Sandbox, list[str]], object],
    name: str,
    state: str,
    excerpt: str,
) -> None:
    reading(sandbox, busy)
    ran = custody("check", "--assumptions", *pins, "-o", "json")
    assert states(ran)[name] == state, ran.out
    assert excerpt in seen(ran, name), ran.out
    assert ran.code == (1 if FAILS in states(ran).values() or not ran.data["ok"] else 0)


@pytest.mark.parametrize(("seconds", "state"), [(-1, HOLDS), (60, HOLDS), (-5, FAILS)])
def test_clocks(custody: Run, monkeypatch: pytest.MonkeyPatch, seconds: int, state: str) -> None:
    date = NOW + timedelta(seconds=seconds)
    monkeypatch.setattr(Observation, "of", lambda response: Observation(200, NOW, date))
    assert states(custody("check", "--assumptions", "-o", "json"))["clock"] == state
    # The check stops when the token is refused.
    monkeypatch.setenv("CUSTODY_TOKEN", "unknown-token")
    ran = custody("check", "--assumptions", "-o", "json")
    assert ran.code == 1
    assert ran.data["assumptions"] is None


def test_a_report_does_not_identify_the_service(
    custody: Run, pins: list[str], sandbox: Sandbox, create: Create, tmp_path: Path
) -> None:
    """If the service may write any text where a word is expected, the text is a value of the request itself."""
    secrets = {"label": "Treasury of Example", "memo": "Example-Bank", "customer_id": "customer-4711"}
    identifier = create(1, status="pending", **secrets)
    address = f"0x{1:040x}"
    sandbox.control.set_whitelist_envelope(identifier, status=address, action=secrets["label"])
    sandbox.control.set_whitelist_metadata(identifier, payloadAsString=json.dumps({address: 1, "currency": "ETH"}))
    sandbox.control.send_event("requestStatus.updated", {"note": secrets["label"]})
    file = tmp_path / "report.json"
    ran = custody("check", "--assumptions", *pins, "--report", str(file))
    assert "Read the words before you attach it" in ran.err
    text = file.read_text()
    host = sandbox.url.partition("//")[2]
    user = "user-1@example.test"
    for value in (*secrets.values(), address, f'"{identifier}"', host, host.partition(":")[2], user, sandbox.token):
        assert value not in text
    assert {each["assumption"] for each in json.loads(text)["assumptions"]} == {*ALL}
    again = custody("check", "--assumptions", "--report", str(file))
    assert again.code == 1
    assert "report.json cannot be written: File exists. Choose the path of a new file." in again.err
    assert "--report needs --assumptions" in custody("check", "--report", str(file)).err
