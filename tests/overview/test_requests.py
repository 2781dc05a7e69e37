"""What an overview says of the whitelisting requests that the service lists."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pinned_keys import pinned

from airflow_custody.client import CustodyClient
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.whitelist.signing import RequestSigner
from airflow_custody.overview import read_overview, read_request
from airflow_custody.overview.models import GroupSignatures, Overview, RequestRow, RequestsView
from airflow_custody.overview.verdict import judge_overview
from airflow_custody.sandbox import Sandbox

Create = Callable[..., str]
ADDRESSES = "/whitelists/addresses"
FOR_APPROVAL = f"{ADDRESSES}/for-approval"


def view(overview: Overview, section: str = "pending") -> RequestsView:
    found = getattr(overview, section).value
    assert isinstance(found, RequestsView)
    return found


def one(overview: Overview, section: str = "pending") -> RequestRow:
    (row,) = view(overview, section).rows
    return row


def show(sandbox: Sandbox, path: str, *rows: Any) -> None:
    """Have the service list these rows there, and no others."""
    body = {"result": list(rows), "totalItems": str(len(rows))}
    sandbox.control.add_fault("status", status=200, body=body, path=path, times=None)


# --- states --------------------------------------------------------------------------------------------------


def test_each_request_that_is_listed_is_in_one_place(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    ids = [create(number) for number in range(5)]
    for each, status in zip(ids, ("APPROVED", "REJECTED", "WEIRD", "expired"), strict=False):
        sandbox.control.set_whitelist_status(each, status)
    overview = read_overview(client)
    found = [[row.id for row in view(overview, name).rows] for name in ("pending", "recent", "unknown")]
    assert found == [[ids[4]], [ids[0]], [ids[2]]]


@pytest.mark.parametrize("status", ["WEIRD", "", "APPROVED_"])
def test_a_status_word_that_is_not_known(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create, status: str
) -> None:
    identifier = create(1)
    sandbox.control.sign_whitelist_requests([create(2)])
    sandbox.control.set_whitelist_status(identifier, status)
    for each, trust in ((client, "not checked"), (pinning, "unverified")):
        overview = read_overview(each)
        row = one(overview, "unknown")
        assert (row.id, row.status, row.state, row.trust) == (identifier, status, "unknown", trust)
        (wrong,) = judge_overview(overview).texts("wrong")
        assert wrong.startswith(f"whitelisting request {identifier} (status not known): ")
        assert (f"Its status, {status!r}, and where it is listed do not say" in wrong) is (trust == "not checked")


@pytest.mark.parametrize(("word", "for_approval"), [("EXPIRED", True), ("Rejected", True), ("APPROVED", False)])
def test_what_is_listed_as_pending_is_pending_whatever_its_status(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create, word: str, for_approval: bool
) -> None:
    identifier = create(1)
    sandbox.control.configure(status_words={"pending": word})
    if not for_approval:
        show(sandbox, FOR_APPROVAL)
    says = f"Its status, {word!r}, and where it is listed do not say whether it is in effect."
    for each, trust in ((client, "not checked"), (pinning, "unsigned")):
        overview = read_overview(each)
        row = one(overview)
        assert (row.id, row.state, row.trust, row.problem) == (identifier, "pending", trust, says)
        assert judge_overview(overview).texts("wrong") == (f"whitelisting request {identifier} (pending): {says}",)
        shown = read_request(each, identifier).row
        assert (shown.state, shown.trust, shown.problem) == ("pending", trust, says)


def test_what_is_only_listed_for_approval_is_pending(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    sandbox.control.add_fault(path=FOR_APPROVAL, times=None)
    show(sandbox, ADDRESSES)
    for each, trust in ((client, "not checked"), (pinning, "unsigned")):
        row = one(read_overview(each))
        assert (row.id, row.trust) == (identifier, trust)


def test_a_deletion_of_what_is_in_effect_is_pending(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    sandbox.control.sign_whitelist_requests([identifier])
    show(sandbox, FOR_APPROVAL, {**client.get_whitelist_request(identifier).wire, "action": "delete"})
    for each, trust in ((client, "not checked"), (pinning, "verified")):
        overview = read_overview(each)
        for section in ("pending", "recent"):
            row = one(overview, section)
            assert (row.id, row.deletion_pending, row.trust, row.problem) == (identifier, True, trust, "")
        assert judge_overview(overview).ok
        (note,) = (found for found in judge_overview(overview).findings if found.kind == "note")
        says = f"the deletion of whitelisting request {identifier} is pending approval: it is in effect until then"
        assert (note.level, note.text, note.request_ids) == ("warning", says, (identifier,))
        shown = read_request(each, identifier).row
        assert (shown.state, shown.deletion_pending, shown.trust) == ("effective", True, trust)


def test_a_network_that_is_not_signed_is_marked(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    (shown,) = client.find_whitelist_requests(ids=[create(1)])
    for network, each, chain in (
        ("mainnet", client, "ETH mainnet"),
        ("mainnet", pinning, "ETH (mainnet: not signed)"),
        (None, pinning, "ETH"),
    ):
        sandbox.control.add_fault(path=FOR_APPROVAL, times=None)
        show(sandbox, ADDRESSES, {**shown.wire, "network": network})
        assert one(read_overview(each)).chain == chain
        sandbox.control.clear_faults()


# --- trust ---------------------------------------------------------------------------------------------------


def test_all_that_are_listed_are_verified_and_what_fails_comes_first(
    sandbox: Sandbox, pinning: CustodyClient, create: Create
) -> None:
    ids = [create(number) for number in range(25)]
    # The unsigned dates say that it was long ago.
    sandbox.control.set_whitelist_age(ids[0], 360_000)
    sandbox.control.set_whitelist_status(ids[0], "APPROVED")
    sandbox.control.sign_whitelist_requests(ids[1:])
    overview = read_overview(pinning)
    recent = view(overview, "recent")
    assert (recent.rows[0].id, recent.rows[0].trust) == (ids[0], "unverified")
    assert "no signature covers its text" in recent.rows[0].problem
    assert (len(recent.rows), recent.total, recent.faulty) == (20, 25, 1)
    (wrong,) = judge_overview(overview).texts("wrong")
    assert wrong.startswith(f"whitelisting request {ids[0]} (in effect): ")


def test_other_pins_verify_nothing(sandbox: Sandbox, create: Create) -> None:
    sandbox.control.sign_whitelist_requests([create(1)])
    with CustodyClient(sandbox.url, sandbox.token, **pinned(1, 2)) as client:
        assert one(read_overview(client), "recent").trust == "unverified"


def test_what_fails_and_is_not_shown_counts(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in range(30)]
    for each in sandbox.control.add_whitelist_requests(rows):
        sandbox.control.set_whitelist_metadata(each, hash="0" * 64)
    overview = read_overview(client)
    recent = view(overview, "recent")
    assert (len(recent.rows), recent.faulty) == (20, 30)
    # A text without its hash is not shown.
    assert {(row.address, row.label, row.chain) for row in recent.rows} == {("", "", "")}
    assert "does not have the hash" in recent.rows[0].problem
    assert judge_overview(overview).texts("wrong")[-1] == "and 10 other requests with such a problem"


def test_what_cannot_be_read_hides_nothing(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    unreadable, unverified, good = (create(number) for number in range(3))
    sandbox.control.set_whitelist_envelope(unreadable, trails="none")
    sandbox.control.set_whitelist_metadata(unverified, hash="0" * 64, payload={"address": "0xevil", "label": "evil"})
    overview = read_overview(pinning)
    found = [(row.id, row.trust) for row in view(overview).rows]
    assert found == [(unverified, "unverified"), (unreadable, "not checked"), (good, "unsigned")]
    assert view(overview).rows[1].problem.startswith("It cannot be read")
    assert (view(overview).faulty, view(overview).oldest_at) == (2, None)
    # Neither is the copy beside the text shown.
    assert "evil" not in str(overview)


def test_a_text_without_an_address_and_an_id_that_is_no_number(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient
) -> None:
    texts = ['{"currency":"ETH"}', '{"currency":"ETH","address":""}', '{"currency":"ETH","address":["x"]}']
    rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in range(len(texts))]
    for identifier, text in zip(sandbox.control.add_whitelist_requests(rows), texts, strict=True):
        digest = hashlib.sha256(text.encode()).hexdigest()
        sandbox.control.set_whitelist_metadata(identifier, payloadAsString=text, hash=digest)
    assert {row.problem for row in view(read_overview(client), "recent").rows} == {"It has no address in its payload."}
    (shown,) = client.find_whitelist_requests(ids=[row.id for row in view(read_overview(client), "recent").rows[:1]])
    show(sandbox, FOR_APPROVAL)
    show(sandbox, ADDRESSES, {**shown.wire, "id": "3711a", "status": "APPROVED"})
    problems = [row.problem for row in view(read_overview(pinning), "recent").rows]
    assert problems == ["whitelisting request 3711a is not verified: its id is no number [custody/not-verified]"]


# --- signatures ----------------------------------------------------------------------------------------------


def test_signatures_are_counted_by_group_where_that_is_known(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    ann, bob = sandbox.control.add_signers(["ann", "bob"])
    identifier = create(1)
    assert (one(read_overview(pinning)).trust, one(read_overview(pinning)).signatures) == ("unsigned", 0)
    with CustodyClient(sandbox.url, ann["token"]) as approving:
        signer = PemSigner(lambda: ann["private_key"], name="ann")
        RequestSigner(approving, signer, log=logging.getLogger(__name__)).sign([identifier], None, "checked")
    row = one(read_overview(pinning))
    assert (row.trust, row.signatures) == ("verified", 1)
    assert row.paths == ((GroupSignatures(ann["group"], 1, 1), GroupSignatures(bob["group"], 0, 1)),)
    # Without rules, nobody says who is in which group.
    assert (one(read_overview(client)).signatures, one(read_overview(client)).paths) == (1, ())


def test_texts_are_kept_and_bounded(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    identifier = create(1, label="<script>alert(1)</script>")
    create(2, label="L" * 5000)
    assert [row.label for row in view(read_overview(client)).rows] == ["<script>alert(1)</script>", "L" * 3999 + "…"]
    trails = [{"action": "a" * 500, "comment": "c" * 5000, "userId": "9", "date": "?"}] * 300
    signatures: list[Any] = [{"signature": {"userId": 5, "comment": ["x"] * 5000}}, None, {"signature": "junk"}]
    sandbox.control.set_whitelist_envelope(identifier, trails=trails, signedAddress={"signatures": signatures})
    shown = read_request(client, identifier)
    assert (len(shown.trails), shown.trails[0].at, shown.trails[0].user) == (300, None, "9")
    assert [each.user for each in shown.signatures] == ["5", "", ""]
    assert len(shown.trails[0].comment) == len(shown.signatures[0].comment) == 4000
    assert json.loads(dict(shown.fields).get("linkedWallets", "[]")) == []


@pytest.mark.parametrize(
    ("rows", "groups"),
    [
        ([{}, {"label": "again"}], [(0, 1)]),
        ([{}, {}, {"memo": "7"}, {"blockchain": "BTC"}], [(0, 1)]),
        # An address of this chain is the same in any case; a network that is not named may be any.
        ([{"address": f"0x{'ab' * 20}"}, {"address": f"0x{'AB' * 20}"}], [(0, 1)]),
        ([{}, {"network": "mainnet"}, {"network": "sepolia"}], [(0, 1, 2)]),
        ([{"network": "mainnet"}, {"network": "sepolia"}], []),
    ],
)
def test_a_destination_that_is_in_effect_twice_is_named(
    sandbox: Sandbox, pinning: CustodyClient, rows: list[dict[str, str]], groups: list[tuple[int, ...]]
) -> None:
    same = {"label": "L", "address": f"0x{1:040x}", "blockchain": "ETH"}
    # One that is pending does not count.
    sandbox.control.add_whitelist_requests([same], status="pending")
    ids = sandbox.control.add_whitelist_requests([same | row for row in rows], signed=True)
    overview = read_overview(pinning)
    assert overview.in_effect_twice == tuple(tuple(ids[place] for place in group) for group in groups)
    verdict = judge_overview(overview)
    named = [" and ".join(filter(None, (", ".join(each[:-1]), each[-1]))) for each in overview.in_effect_twice]
    assert verdict.texts("note") == tuple(
        f"whitelisting requests {each} are in effect for the same address" for each in named
    )
    assert verdict.ok
