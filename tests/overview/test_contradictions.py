"""A service that contradicts itself, or leaves something out, is not well, and says so everywhere."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from attacks import attack

from airflow_custody.cli.output import Output
from airflow_custody.cli.show import listed_as
from airflow_custody.cli.status import describe_overview
from airflow_custody.client import CustodyClient, CustodyResponseError
from airflow_custody.client.verification.trust import EFFECTIVE_STATUSES, REJECTED_STATUSES
from airflow_custody.client.whitelist.listing import fetch_listing, find_all
from airflow_custody.client.whitelist.planner import make_plan
from airflow_custody.client.whitelist.progress import find_listed
from airflow_custody.overview import read_overview, read_request
from airflow_custody.overview.budget import Budget
from airflow_custody.overview.models import Overview
from airflow_custody.overview.verdict import judge_overview, to_json
from airflow_custody.plugin.cards import make_card
from airflow_custody.plugin.readings import Reading
from airflow_custody.sandbox import Sandbox

Create = Callable[..., str]
ADDRESSES = "/whitelists/addresses"
EXPIRED = "he service lists it for approval although its status is EXPIRED"


def text_of(overview: Overview) -> str:
    stream = io.StringIO()
    Output("table", stream).data({}, describe_overview(overview))
    return stream.getvalue()


def finding_of(overview: Overview) -> str:
    return make_card("c", Reading(overview), datetime.now(timezone.utc)).verdict


def hide_all_but_for_approval(sandbox: Sandbox) -> None:
    sandbox.control.add_fault(path=f"{ADDRESSES}/for-approval", times=None)
    body = {"result": [], "totalItems": "0"}
    sandbox.control.add_fault("status", status=200, body=body, path=ADDRESSES, times=None)


class _Row:
    """A row of a whitelist file that asks for what a request asks for."""

    where = "line 1"

    def __init__(self, client: CustodyClient, number: int) -> None:
        from airflow_custody.client import WhitelistRequest

        self.request = WhitelistRequest(label=f"L{number}", address=f"0x{number:040x}", blockchain="ETH")


@pytest.mark.parametrize("by_status", [True, False])
def test_a_request_that_is_only_listed_for_approval_is_pending(
    sandbox: Sandbox, client: CustodyClient, create: Create, by_status: bool
) -> None:
    identifier = create(1)
    hide_all_but_for_approval(sandbox)
    listing = fetch_listing(client, by_status=by_status)
    assert [each.id for each in listing.pending(EFFECTIVE_STATUSES, REJECTED_STATUSES)] == [identifier]
    (row,) = make_plan([_Row(client, 1)], listing).rows
    assert (row.state, row.action, row.request_id) == ("pending", None, identifier)
    # Where a create whose response was lost is searched for, too.
    assert [each.id for each in find_all(client)] == [identifier]
    listed = find_listed(client, [identifier, "99"])
    assert listed[identifier].state(EFFECTIVE_STATUSES) == "pending"
    assert listed["99"].envelope is None


def test_a_request_that_is_only_listed_for_approval_is_shown(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    hide_all_but_for_approval(sandbox)
    for each, trust in ((client, "not checked"), (pinning, "unsigned")):
        view = read_overview(each).pending.value
        assert view is not None
        assert [(row.id, row.trust) for row in view.rows] == [(identifier, trust)]


def test_one_that_cannot_be_read_is_named(sandbox: Sandbox, client: CustodyClient) -> None:
    body = {"result": [{"id": "7", "metadata": 5}], "totalItems": "1"}
    sandbox.control.add_fault("status", status=200, body=body, path=f"{ADDRESSES}/for-approval", times=None)
    hide_all_but_for_approval(sandbox)
    overview = read_overview(client)
    assert judge_overview(overview).wrong[0].startswith("whitelisting request 7 (pending): It cannot be read")
    plan = make_plan([_Row(client, 1)], fetch_listing(client))
    assert [row.state for row in plan.rows] == ["unreadable", "unreadable"]
    assert plan.operations == ()


@pytest.mark.parametrize("status", ["EXPIRED", "Rejected"])
def test_what_is_listed_for_approval_is_pending_whatever_its_status(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create, status: str
) -> None:
    identifier = create(1)
    sandbox.control.configure(status_words={"pending": status})
    says = EXPIRED.replace("EXPIRED", status)
    for each, trust in ((client, "not checked"), (pinning, "unsigned")):
        overview = read_overview(each)
        assert overview.pending.value is not None
        (row,) = overview.pending.value.rows
        assert (row.id, row.state, row.trust, row.problem) == (identifier, "pending", trust, f"T{says}.")
        assert overview.rejected == 0
        assert judge_overview(overview).wrong == (f"whitelisting request {identifier} (pending): T{says}.",)
        assert f"{identifier}  {status}  " in text_of(overview)
        assert finding_of(overview) == f"Whitelisting request {identifier} (pending): T{says}."
        shown = read_request(each, identifier)
        assert (shown.row.state, shown.row.trust, shown.row.problem) == ("pending", trust, f"T{says}.")
    (planned,) = make_plan([_Row(client, 1)], fetch_listing(client)).rows
    assert (planned.state, planned.action) == ("pending", None)
    assert f"t{says}" in planned.note
    # Nobody prunes what is for a person to look at.
    (other,) = make_plan([], fetch_listing(client), prune=True).rows
    assert (other.state, other.action) == ("undeclared", None)
    assert listed_as(client, client.get_whitelist_request(identifier)) == "pending"


def test_a_whitelist_that_is_too_large_says_it_too(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    create(1)
    sandbox.control.configure(status_words={"pending": "EXPIRED"})
    view = read_overview(client, max_listed=0).pending.value
    assert view is not None
    assert [row.problem for row in view.rows] == [f"T{EXPIRED}."]


def test_a_status_of_one_in_effect_that_only_pending_ones_have(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    create(1)
    sandbox.control.configure(status_words={"pending": "APPROVED"})
    body = {"result": [], "totalItems": "0"}
    sandbox.control.add_fault("status", status=200, body=body, path=f"{ADDRESSES}/for-approval", times=None)
    for each in (client, pinning):
        overview = read_overview(each)
        assert overview.pending.value is not None
        (row,) = overview.pending.value.rows
        assert row.problem == "The service lists it with pending ones only although its status is APPROVED."
        assert not judge_overview(overview).ok


def test_what_nobody_may_approve_and_has_such_a_word_was_rejected(
    sandbox: Sandbox, client: CustodyClient, create: Create
) -> None:
    sandbox.control.set_whitelist_status(create(1), "EXPIRED")
    overview = read_overview(client)
    assert (overview.rejected, judge_overview(overview).ok) == (1, True)


def test_no_address_is_unreadable(sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient) -> None:
    texts = ['{"currency":"ETH"}', '{"currency":"ETH","address":""}', '{"currency":"ETH","address":["x"]}']
    rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in range(len(texts))]
    for identifier, text in zip(sandbox.control.add_whitelist_requests(rows), texts, strict=True):
        sandbox.control.set_whitelist_metadata(identifier, payloadAsString=text, hash=_sha256(text))
    for each in (client, pinning):
        overview = read_overview(each)
        assert overview.recent.value is not None
        assert overview.recent.value.faulty == 3
        assert len(re.findall("^  [0-9]+ .*has no address in its payload", text_of(overview), re.MULTILINE)) == 3
        assert judge_overview(overview).wrong[0].endswith("has no address in its payload [custody/request-differs]")


def _sha256(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def test_a_network_that_is_not_signed_is_marked(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    (shown,) = client.find_whitelist_requests(ids=[identifier])
    for network, each, chain in (
        ("mainnet", client, "ETH mainnet"),
        ("mainnet", pinning, "ETH (mainnet: not signed)"),
        (None, pinning, "ETH"),
    ):
        row = {**shown.wire, "network": network}
        sandbox.control.add_fault(path=f"{ADDRESSES}/for-approval", times=None)
        body = {"result": [row], "totalItems": "1"}
        sandbox.control.add_fault("status", status=200, body=body, path=ADDRESSES, times=None)
        view = read_overview(each).pending.value
        assert view is not None
        assert view.rows[0].chain == chain
        sandbox.control.clear_faults()


def test_webhooks_are_judged_before_they_are_cut_off(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [{"id": f"d{n}", "type": "aaa", "url": "https://x.test", "status": "disabled"} for n in range(99)]
    later = {"timeoutUntil": "2999-01-01T00:00:00Z", "status": "enabled"}
    rows += [{"id": f"e{n}", "type": "bbb", "url": "https://x.test", "status": "enabled"} for n in range(101)]
    rows += [{"id": f"cool{n}", "type": "zzz", "url": "https://x.test", **later} for n in range(3)]
    # All on one page.
    sandbox.control.add_fault("status", status=200, body={"calls": []}, path="/webhooks/calls", times=None)
    sandbox.control.add_fault("status", status=200, body={"webhooks": rows}, path="/webhooks", times=None)
    overview = read_overview(client)
    assert overview.webhooks.value is not None
    assert [each.id for each in overview.webhooks.value[:4]] == ["cool0", "cool1", "cool2", "d0"]
    assert (len(overview.webhooks.value), overview.more_webhooks, overview.more_faulty_webhooks) == (200, 3, 0)
    assert len(judge_overview(overview).wrong) == 3
    assert "more_webhooks: 3\n" in text_of(overview)
    assert to_json(overview)["more_webhooks"] == 3
    assert "Webhook cool0: It is cooling down" in finding_of(overview)


def test_webhooks_that_are_wrong_and_cut_off_are_counted(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [{"id": f"w{n}", "type": "t", "url": "https://x.test", "status": "odd"} for n in range(205)]
    sandbox.control.add_fault("status", status=200, body={"calls": []}, path="/webhooks/calls", times=None)
    sandbox.control.add_fault("status", status=200, body={"webhooks": rows}, path="/webhooks", times=None)
    overview = read_overview(client)
    assert judge_overview(overview).wrong[-1] == "and 185 other webhooks with such a problem"
    assert overview.more_faulty_webhooks == 5


@pytest.mark.parametrize("text", ["garbage", "1999999999", "2999-01-01 00:00:00Z"])
def test_a_webhook_whose_cooling_down_cannot_be_read(sandbox: Sandbox, client: CustodyClient, text: str) -> None:
    sandbox.control.add_webhook(timeout_until=text)
    says = f"It is cooling down until a time that cannot be read ({text!r}), as deliveries failed."
    overview = read_overview(client)
    assert overview.webhooks.value is not None
    assert [each.problem for each in overview.webhooks.value] == [says]
    assert not judge_overview(overview).ok


@pytest.mark.parametrize("status", ["EN\u0041BLED", "enable\u017f"])
def test_a_webhook_is_enabled_only_with_the_letters_of_ascii(
    sandbox: Sandbox, client: CustodyClient, status: str
) -> None:
    sandbox.control.add_webhook(status=status)
    assert judge_overview(read_overview(client)).ok is status.isascii()


def test_a_journal_without_calls_that_has_more(sandbox: Sandbox, client: CustodyClient) -> None:
    body = {"calls": [], "cursor": {"currentPage": "x", "hasNext": True}}
    sandbox.control.add_fault("status", status=200, body=body, path="/webhooks/calls", times=None)
    overview = read_overview(client)
    assert "a page is empty and not the last" in overview.journal.problem
    assert not judge_overview(overview).ok


@pytest.mark.parametrize("group", [None, {"checks": [{"status": "failed"}]}, {"healthCheck": []}])
def test_a_group_that_cannot_be_read_is_named(sandbox: Sandbox, client: CustodyClient, group: object) -> None:
    sandbox.control.set_health_response({"groups": {"hsm-2": group, "empty": {"healthChecks": []}, "none": {}}})
    health = read_overview(client).health.value
    assert health is not None
    assert not health.healthy
    assert [(each.group, each.problem) for each in health.checks] == [
        ("hsm-2", "the group could not be read: it has no 'healthChecks'")
    ]


def test_the_age_of_the_oldest_result_is_not_known(sandbox: Sandbox, client: CustodyClient) -> None:
    sandbox.control.update_health(check="vault", lastUpdateDate="2001-01-01 00:00:00Z")
    overview = read_overview(client)
    assert overview.health.value is not None
    assert overview.health.value.oldest_at is None
    assert "oldest result: not known, as not all checks say readably when they last ran" in text_of(overview)


def test_a_listing_that_changes_until_the_time_is_over_says_so(sandbox: Sandbox, client: CustodyClient) -> None:
    body = {"result": [{"id": "1"}, {"id": "1"}], "totalItems": "2"}
    sandbox.control.add_fault("status", status=200, body=body, path=ADDRESSES, times=None)
    with pytest.raises(CustodyResponseError, match="the id 1 came twice") as caught:
        fetch_listing(client, sleep=Budget(0.3).sleep)
    assert "There was no time to read it again." in str(caught.value)


# --- deletions that are pending --------------------------------------------------------------------------------


def show_deletion(sandbox: Sandbox, client: CustodyClient, identifier: str) -> None:
    """Have the service list the deletion of an address in effect for approval."""
    row = {**client.get_whitelist_request(identifier).wire, "action": "delete"}
    body = {"result": [row], "totalItems": "1"}
    sandbox.control.add_fault("status", status=200, body=body, path=f"{ADDRESSES}/for-approval", times=None)


@pytest.mark.parametrize("max_listed", [5000, 0])
def test_a_deletion_of_what_is_in_effect_is_pending(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create, max_listed: int
) -> None:
    identifier = create(1)
    sandbox.control.sign_whitelist_requests([identifier])
    says = f"he deletion of whitelisting request {identifier} is pending approval: it is in effect until then"
    show_deletion(sandbox, client, identifier)
    for each, trust in ((client, "not checked"), (pinning, "verified")):
        overview = read_overview(each, max_listed=max_listed)
        for section in (overview.pending, *((overview.recent,) if max_listed else ())):
            assert section.value is not None
            (row,) = section.value.rows
            assert (row.id, row.deletion_pending, row.trust, row.problem) == (identifier, True, trust, "")
        assert judge_overview(overview).ok is bool(max_listed)
        assert f"PENDING: t{says}\n" in text_of(overview)
        assert text_of(overview).count("DELETION PENDING") == (2 if max_listed else 1)
        card = make_card("c", Reading(overview), datetime.now(timezone.utc))
        (finding,) = (found for found in card.findings if "deletion" in found.text)
        assert (finding.level, finding.text, finding.request_ids) == ("warning", f"T{says}", (identifier,))
        shown = read_request(each, identifier).row
        assert (shown.state, shown.deletion_pending, shown.trust) == ("effective", True, trust)


def test_several_deletions(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    ids = [create(number) for number in range(4)]
    sandbox.control.sign_whitelist_requests(ids)
    rows = [{**client.get_whitelist_request(each).wire, "action": "delete"} for each in ids]
    body = {"result": rows, "totalItems": "4"}
    sandbox.control.add_fault("status", status=200, body=body, path=f"{ADDRESSES}/for-approval", times=None)
    assert "the deletion of 4 whitelisting requests (" in text_of(read_overview(client))
    sandbox.control.clear_faults()
    assert "deletion" not in text_of(read_overview(client)).lower()


def test_what_a_user_of_a_large_whitelist_has_approved_is_not_pending(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    done, open_ = create(1), create(2)
    sandbox.control.sign_whitelist_requests([done])
    both = [client.get_whitelist_request(each).wire for each in (done, open_)]
    for rows, query in ((both, {"includeAlreadySignedByUser": "true"}), ([], {})):
        body = {"result": rows, "totalItems": str(len(rows))}
        path = f"{ADDRESSES}/for-approval"
        sandbox.control.add_fault("status", status=200, body=body, path=path, query=query, times=None)
    for each in (client, pinning):
        for max_listed in (5000, 0):
            view = read_overview(each, max_listed=max_listed).pending.value
            assert view is not None
            assert [(row.id, row.problem) for row in view.rows] == [(open_, "")]


def test_a_legacy_form_is_named_and_only_what_is_signed_is_shown(
    sandbox: Sandbox, pinning: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    sandbox.control.sign_whitelist_requests([identifier])
    attack(sandbox.control, sandbox.token, identifier, "invented contract type")
    assert read_request(pinning, identifier).row.legacy == ""
    says = "in a legacy form: what is received as contractType is not signed"
    pins = {**sandbox.control.pins(), "allow_legacy_signatures": True}
    with CustodyClient(sandbox.url, sandbox.token, timeout=60, max_retries=0, **pins) as allowing:
        view = read_request(allowing, identifier)
        overview = read_overview(allowing)
    assert (view.row.trust, view.row.legacy) == ("verified", says)
    assert "contractType" not in dict(view.fields)
    assert view.verification.endswith(f", {says}.")
    assert "in a legacy form: " in text_of(overview)
