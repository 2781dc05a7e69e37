"""The requests in an overview, and the view of a single request."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from airflow_custody.client import CustodyClient, CustodyNotFoundError, CustodyRequestError
from airflow_custody.client.signers import PemSigner
from airflow_custody.client.verification.trust import NOT_PINNED
from airflow_custody.client.whitelist.signing.sending import RequestSigner
from airflow_custody.overview import read_overview, read_request
from airflow_custody.overview.models import Overview, RequestRow, RequestsView, SignatureCounts
from airflow_custody.overview.verdict import judge_overview
from airflow_custody.sandbox import Sandbox

Create = Callable[..., str]
Prepare = Callable[[Sandbox, str], object]
ADDRESSES = "/whitelists/addresses"
FOR_APPROVAL = f"{ADDRESSES}/for-approval"


def view(overview: Overview, section: str = "pending") -> RequestsView:
    assert overview.requests.value is not None
    found = getattr(overview.requests.value, section)
    assert isinstance(found, RequestsView)
    return found


def one(overview: Overview, section: str = "pending") -> RequestRow:
    (row,) = view(overview, section).rows
    return row


def show(sandbox: Sandbox, path: str, *rows: Any) -> None:
    """Make the service list exactly these rows."""
    body = {"result": list(rows), "totalItems": str(len(rows))}
    sandbox.control.add_fault("status", status=200, body=body, path=path, times=None)


# --- states and trust ----------------------------------------------------------------------------------------


def sign(sandbox: Sandbox, number: str) -> None:
    sandbox.control.sign_whitelist_requests([number])


def changed(sandbox: Sandbox, number: str) -> None:
    sign(sandbox, number)
    sandbox.control.change_whitelist_request(number, label="another")


def status(word: str) -> Prepare:
    return lambda sandbox, number: sandbox.control.set_whitelist_status(number, word)


def listed_as_expired(sandbox: Sandbox, number: str) -> None:
    sandbox.control.configure(status_words={"pending": "EXPIRED"})


def another_hash(sandbox: Sandbox, number: str) -> None:
    sandbox.control.set_whitelist_metadata(number, hash="0" * 64)


def only_for_approval(sandbox: Sandbox, number: str) -> None:
    sandbox.control.add_fault(path=FOR_APPROVAL, times=None)
    show(sandbox, ADDRESSES)


NOT_CHECKED = ("not checked", "")
DOUBT = "and the listing it appears in do not prove whether it is in effect"
UNKNOWN_WORD = "its status 'WEIRD' is unknown, so it does not count as in effect; add the word to 'effective_statuses'"
UNSIGNED = "no signature covers its text"
BAD_HASH = "does not have the hash"


@pytest.mark.parametrize(
    ("prepare", "section", "state", "without_pins", "with_pins", "verification"),
    [
        # The trust and the problem of each request, without pinned keys and with them.
        (lambda *_: None, "pending", "pending", NOT_CHECKED, ("unsigned", ""), "It has no signatures yet."),
        (sign, "recent", "effective", NOT_CHECKED, ("verified", ""), "Verified: signed by signer-1@example.test under"),
        (changed, "recent", "effective", NOT_CHECKED, ("unverified", UNSIGNED), UNSIGNED),
        (status("APPROVED"), "recent", "effective", NOT_CHECKED, ("unverified", UNSIGNED), UNSIGNED),
        (status("rejected"), "", "rejected", NOT_CHECKED, NOT_CHECKED, "The service reports it as rejected"),
        (status("WEIRD"), "unknown", "unknown", ("not checked", UNKNOWN_WORD), ("unverified", UNSIGNED), UNSIGNED),
        # A request that is listed as pending is pending, whatever its status.
        (listed_as_expired, "pending", "pending", ("not checked", DOUBT), ("unsigned", DOUBT), "It has no signatures"),
        (only_for_approval, "pending", "pending", NOT_CHECKED, ("unsigned", ""), "It has no signatures yet."),
        (another_hash, "pending", "pending", ("not checked", BAD_HASH), ("unverified", BAD_HASH), BAD_HASH),
    ],
    ids=[
        "pending",
        "signed",
        "changed",
        "no signature",
        "rejected",
        "unknown word",
        "pending with another word",
        "only for approval",
        "another hash",
    ],
)
def test_state_and_trust_are_the_same_in_the_listing_and_for_one_request(
    sandbox: Sandbox,
    client: CustodyClient,
    pinning: CustodyClient,
    create: Create,
    prepare: Prepare,
    section: str,
    state: str,
    without_pins: tuple[str, str],
    with_pins: tuple[str, str],
    verification: str,
) -> None:
    number = create(1)
    prepare(sandbox, number)
    for each, (trust, problem) in ((client, without_pins), (pinning, with_pins)):
        shown, overview = read_request(each, number), read_overview(each)
        row = shown.row
        assert row.id == number
        assert row.state == state
        if trust == "unverified":
            assert row.judged == "unverified"
        else:
            assert row.judged == ("unreadable" if problem is BAD_HASH else state)
        assert row.trust == trust
        assert problem in row.problem
        assert bool(problem) == bool(row.problem)
        assert (verification if each is pinning else NOT_PINNED) in shown.verification
        # A text that does not match its hash is not shown.
        assert bool(shown.payload) is bool(row.address) is (problem is not BAD_HASH)
        found = {name: [row.id for row in view(overview, name).rows] for name in ("pending", "recent", "unknown")}
        assert found == {name: [number] if name == section else [] for name in found}
        wrong = judge_overview(overview).texts("wrong")
        assert len(wrong) == bool(problem)
        if section:
            listed = one(overview, section)
            assert listed.state == state
            assert listed.trust == trust
            assert listed.problem == row.problem


def test_a_deletion_of_what_is_in_effect_is_pending(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    sign(sandbox, identifier)
    show(sandbox, FOR_APPROVAL, {**client.get_whitelist_request(identifier).wire, "action": "delete"})
    for each, trust in ((client, "not checked"), (pinning, "verified")):
        overview = read_overview(each)
        shown = read_request(each, identifier).row
        assert shown.state == "effective"
        for row in (one(overview, "pending"), one(overview, "recent"), shown):
            assert (row.id, row.deletion_pending, row.trust, row.problem) == (identifier, True, trust, "")
        assert judge_overview(overview).ok
        (note,) = (found for found in judge_overview(overview).findings if found.kind == "note")
        pending = f"the deletion of whitelisting request {identifier} is pending approval"
        assert note.text == f"{pending}; the address stays whitelisted until then"
        assert (note.level, note.request_ids) == ("warning", (identifier,))


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


@pytest.mark.parametrize("text", ['{"currency":"ETH"}', '{"currency":"ETH","address":["x"]}'])
def test_a_text_without_an_address(sandbox: Sandbox, client: CustodyClient, create: Create, text: str) -> None:
    digest = hashlib.sha256(text.encode()).hexdigest()
    sandbox.control.set_whitelist_metadata(create(1), payloadAsString=text, hash=digest)
    assert one(read_overview(client)).problem == "its payload has no readable address"


# --- order and bounds ----------------------------------------------------------------------------------------


def test_many_pending_requests_are_bounded_and_the_oldest_come_first(sandbox: Sandbox, client: CustodyClient) -> None:
    rows = [{"label": f"L{n}", "address": f"0x{n:040x}", "blockchain": "ETH"} for n in range(250)]
    ids = sandbox.control.add_whitelist_requests(rows, status="pending")
    sandbox.control.set_whitelist_age(ids[-1], 9000)
    pending = view(read_overview(client))
    assert len(pending.rows) == 200
    assert pending.total == 250
    assert [each.id for each in pending.rows[:3]] == [ids[-1], ids[0], ids[1]]


def test_all_requests_in_effect_are_verified_and_faulty_ones_come_first(
    sandbox: Sandbox, pinning: CustodyClient, create: Create
) -> None:
    ids = [create(number) for number in range(40)]
    sandbox.control.sign_whitelist_requests(ids[30:])
    for each in ids[:30]:
        # The dates, which are not signed, say that it was long ago.
        sandbox.control.set_whitelist_age(each, 360_000)
        sandbox.control.set_whitelist_status(each, "APPROVED")
    overview = read_overview(pinning)
    recent = view(overview, "recent")
    assert {row.id for row in recent.rows} <= {*ids[:30]}
    assert (len(recent.rows), recent.total, recent.faulty) == (20, 40, 30)
    *named, others = judge_overview(overview).texts("wrong")
    assert len(named) == 20
    assert others == "and 10 more requests with problems"


def test_an_unreadable_request_hides_no_other(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    unreadable, unverified, good = (create(number) for number in range(3))
    sandbox.control.set_whitelist_envelope(unreadable, trails="none")
    sandbox.control.set_whitelist_metadata(unverified, hash="0" * 64, payload={"address": "0xevil", "label": "evil"})
    overview = read_overview(pinning)
    found = [(row.id, row.trust) for row in view(overview).rows]
    assert found == [(unverified, "unverified"), (unreadable, "not checked"), (good, "unsigned")]
    assert view(overview).rows[1].problem.startswith("it cannot be read")
    assert view(overview).faulty == 2
    assert view(overview).oldest_at is None
    # The unsigned copy of the text is not shown either.
    assert "evil" not in str(overview)


def test_texts_are_kept_and_bounded(sandbox: Sandbox, client: CustodyClient, create: Create) -> None:
    identifier = create(1, label="<script>alert(1)</script>")
    create(2, label="L" * 5000)
    assert [row.label for row in view(read_overview(client)).rows] == ["<script>alert(1)</script>", "L" * 3999 + "…"]
    trails = [{"action": "a", "comment": "c" * 5000, "userId": "9", "date": "?"}] * 2
    signatures: list[Any] = [{"signature": {"userId": 5, "comment": ["x"] * 5000}}, None, {"signature": "junk"}]
    sandbox.control.set_whitelist_envelope(identifier, trails=trails, signedAddress={"signatures": signatures})
    shown = read_request(client, identifier)
    first, _ = shown.trail
    assert (first["at"], first["user"]) == (None, "9")
    assert [each["user"] for each in shown.signatures] == ["5", "", ""]
    assert len(first["comment"]) == len(shown.signatures[0]["comment"]) == 4000


def test_a_destination_that_is_in_effect_twice_is_named(
    sandbox: Sandbox, client: CustodyClient, create: Create
) -> None:
    # A pending request does not count.
    create(1)
    same = {"label": "L", "address": f"0x{1:040x}", "blockchain": "ETH"}
    rows = [same, same | {"network": "mainnet"}, same | {"memo": "7"}, same | {"network": "sepolia"}]
    # On ETH, another network may be another chain.
    one, two, _, _ = sandbox.control.add_whitelist_requests(rows)
    overview = read_overview(client)
    assert overview.requests.value is not None
    assert overview.requests.value.in_effect_twice == ((one, two),)
    assert judge_overview(overview).texts("note") == (
        f"whitelisting requests {one} and {two} are in effect for the same address",
    )
    assert judge_overview(overview).ok


# --- one request ---------------------------------------------------------------------------------------------


def test_the_details_of_a_request(client: CustodyClient, create: Create) -> None:
    view = read_request(client, create(1, memo="m", linked_wallet_ids=["7"], network="mainnet"))
    assert [*view.payload] == ["currency", "network", "address", "memo", "label", "linkedWallets"]
    assert view.payload["linkedWallets"] == '[{"id": 7, "name": "Wallet 7", "path": "m/44\'/60\'/7\'"}]'
    assert [view.around[name] for name in ("Action", "Network", "Tenant")] == ["create", "mainnet", "1"]
    assert [(each["action"], each["at"]) for each in view.trail] == [("created", view.row.created_at)]


def test_each_signature_is_checked(sandbox: Sandbox, pinning: CustodyClient, create: Create) -> None:
    identifier = create(1)
    sign(sandbox, identifier)
    view = read_request(pinning, identifier)
    (signature,) = view.signatures
    assert signature["valid"] is True
    assert signature["problem"] == ""
    assert signature["comment"] == "signed by the sandbox"
    sandbox.control.change_whitelist_request(identifier, label="another")
    view = read_request(pinning, identifier)
    assert [(each["valid"], "not cover the current text" in each["problem"]) for each in view.signatures] == [
        (False, True)
    ]


def test_signatures_are_counted_by_group_where_that_is_known(
    sandbox: Sandbox, client: CustodyClient, pinning: CustodyClient, create: Create
) -> None:
    ann, bob = sandbox.control.add_signers(["ann", "bob"])
    identifier = create(1)
    with CustodyClient(sandbox.url, ann["token"]) as approving:
        signer = PemSigner(lambda: ann["private_key"], name="ann")
        RequestSigner(approving, signer, log=logging.getLogger(__name__)).sign([identifier], None, "checked")
    paths = ((SignatureCounts(ann["group"], 1, 1), SignatureCounts(bob["group"], 0, 1)),)
    shown = read_request(pinning, identifier)
    for row in (one(read_overview(pinning)), shown.row):
        assert (row.state, row.trust, row.signatures, row.paths) == ("pending", "verified", 1, paths)
    assert shown.verification.startswith("All of its signatures are valid, ")
    # Without rules, the members of the groups are unknown.
    row = one(read_overview(client))
    assert (row.signatures, row.paths) == (1, ())
    # If the request is listed without rules, the rules in force are used.
    sandbox.control.set_whitelist_envelope(identifier, rulesContainer=None, rulesSignatures=None)
    assert read_request(pinning, identifier).row.paths == paths
    sandbox.control.add_fault("status", status=404, path="/rules", body={"message": "m", "error": "e"})
    shown = read_request(pinning, identifier)
    assert (shown.row.trust, shown.row.paths) == ("unverified", ())
    assert [each["valid"] for each in shown.signatures] == [None]


def test_a_request_that_is_not_listed_or_does_not_exist(
    sandbox: Sandbox, client: CustodyClient, create: Create
) -> None:
    identifier = create(1)
    with pytest.raises(CustodyNotFoundError) as caught:
        read_request(client, "999")
    assert caught.value.from_service
    with pytest.raises(CustodyRequestError):
        read_request(client, "../users")
    sandbox.control.configure(listings={"whitelist": {"orders": [[]], "totals": [None]}})
    row = read_request(client, identifier).row
    assert row.state == "unknown"
    assert row.problem.endswith(DOUBT)
