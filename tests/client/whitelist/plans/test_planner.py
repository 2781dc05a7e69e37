"""How rows of a file and requests at the service are matched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from support.whitelist.whitelist_plans import (
    ADDRESS,
    LEGACY,
    OTHER,
    PENDING,
    ask,
    listed,
    plan,
    snapshot_of,
    states,
    unreadable,
)

from airflow_custody.client import CustodyRequestError, WhitelistEnvelope, WhitelistRequest
from airflow_custody.client.text import MAX_NAMED
from airflow_custody.client.whitelist.models import FileRow
from airflow_custody.client.whitelist.plans.plan import (
    CHANGES,
    ROW_STATES,
    PlanLimits,
    advice_on_differences,
    changes_text,
    check_only,
)
from airflow_custody.client.whitelist.plans.planner import make_plan
from airflow_custody.client.whitelist.plans.report import plan_to_json, plan_to_markdown, plan_to_text

ALICE = "alice::1220" + "ab" * 16
CANTON: dict[str, Any] = {"blockchain": "Canton", "address": ALICE}
SHOWN: dict[str, Any] = {"currency": "Canton", "address": ALICE}

# --- one row, one request ----------------------------------------------------------------------------------


WALLET: dict[str, Any] = {"linked_wallet_ids": ["7"]}


@pytest.mark.parametrize(
    ("asked", "shown", "state", "fields"),
    [
        ({}, {}, "unchanged", ()),
        ({}, {"wire": PENDING}, "pending", ()),
        ({}, {"wire": {"status": None}}, "pending", ()),
        ({}, {"wire": {"status": "Rejected"}}, "rejected", ()),
        ({}, {"wire": {"status": "Rejected"}, "label": "Other"}, "rejected", ("label",)),
        ({}, {"label": "treasury"}, "differs", ("label",)),
        ({}, {"wire": PENDING, "label": "Other"}, "differs", ("label",)),
        # On a chain that is not in the table, upper and lower case may or may not matter.
        (CANTON, {**SHOWN, "address": ALICE.replace("a", "A", 1)}, "differs", ("address",)),
        ({"network": "mainnet"}, {}, "differs", ("network",)),
        ({"network": "mainnet"}, {"network": "mainnet", "wire": {"network": "testnet"}}, "differs", ("envelope",)),
        # Values that the service fills in, and values that it leaves out.
        ({}, {"network": "mainnet", "addressType": "individual", "tnParticipantID": "p", "x": ""}, "unchanged", ()),
        ({}, {"wire": {"network": "sepolia", **PENDING}}, "differs", ("network",)),
        ({}, {"tag": "99"}, "differs", ("tag",)),
        ({}, {"a.b": 1}, "differs", ("'a.b'",)),
        (WALLET, {"linkedWallets": [{"id": 7, "name": "Hot", "path": "m/1", "label": None}]}, "unchanged", ()),
        (WALLET, {"linkedWallets": [{"id": 7, "limit": 9}]}, "differs", ("linkedWallets.limit",)),
        ({"exchange_account_id": "9"}, {"exchangeAccountId": 9}, "unchanged", ()),
        ({"exchange_account_id": "1"}, {"exchangeAccountId": True}, "differs", ("exchange_account_id",)),
        ({"visibility_group_id": "g"}, {}, "differs", ("envelope",)),
        # Envelopes that contradict the text, or have unknown keys.
        ({}, {"wire": {"action": "ARCHIVE"}}, "differs", ("envelope.action",)),
        ({}, {"wire": {"action": "destroy", "blockchain": "BTC"}}, "differs", ("envelope", "envelope.action")),
        ({}, {"wire": {"action": "delete"}}, "differs", ("envelope",)),
    ],
)
def test_a_listed_request_is_neither_created_nor_deleted(
    asked: dict[str, Any], shown: dict[str, Any], state: str, fields: tuple[str, ...]
) -> None:
    for prune in (False, True):
        found = plan(ask(**asked), listed(**shown), prune=prune)
        (row,) = found.rows
        assert row.state == state
        assert row.action is None
        assert row.request_id == "3711"
        assert row.where == "line 2"
        assert sorted(row.fields) == sorted(fields)
        assert set(row.shown) == {*fields} - {"envelope", "linkedWallets.limit", "'a.b'"}
        assert row.hash == listed(**shown).hash
        assert found.has_changes == (state in CHANGES)
        assert found.counts == {each: int(each == state) for each in ROW_STATES}
        assert found.operations == ()


def test_says_what_the_service_has_instead() -> None:
    links = [{"id": 8, "name": "x"}]
    envelope = listed(label="Cold", customerId=None, linkedWallets=links, wire={"action": "delete"})
    (row,) = plan(ask(customer_id="c", linked_wallet_ids=["7"]), envelope).rows
    assert row.shown == {"label": "Cold", "customer_id": "", "linked_wallet_ids": "8"}
    assert {*row.fields} == {*row.shown, "envelope"}
    assert "its envelope's action 'delete' is not a known word for a creation" in row.note
    (row,) = plan(ask(), listed(network="mainnet", contractType="x")).rows
    assert row.note == "filled in by the service: network, contractType"
    (row,) = plan(ask(), listed(wire=PENDING)).rows
    assert row.note == "already requested, status PENDING"


def test_a_status_that_nobody_knows_is_a_difference() -> None:
    (row,) = plan(ask(), listed(wire={"status": "FROZEN"}), settled=["3711"]).rows
    assert row.fields == ("status",)
    assert row.shown == {"status": "FROZEN"}
    assert "its status 'FROZEN' is unknown, so it does not count as in effect" in row.note
    assert "add the word to 'effective_statuses' or 'rejected_statuses'" in row.note


# --- several rows, several requests ------------------------------------------------------------------------


def test_the_best_request_is_a_rows() -> None:
    pending, other = listed(2, wire=PENDING), listed(3, label="Other")
    rejected, effective, again = listed(1, wire={"status": "rejected"}), listed(10), listed(9)
    assert states(plan(ask(), [rejected, other])) == [("differs", None, "3")]
    assert states(plan(ask(), [rejected, other, pending])) == [("pending", None, "2"), ("undeclared", None, "3")]
    found = plan(ask(), [rejected, pending, effective, again], prune=True)
    assert states(found) == [("unchanged", None, "9"), ("undeclared", None, "2"), ("duplicate", "delete", "10")]
    row = "line 2, which has request 9 (unchanged)"
    assert found.rows[1].note == f"pending approval; it is for the same destination as {row}, so it is not deleted"
    assert found.has_changes


# --- replacing, and duplicates -----------------------------------------------------------------------------


BOTH: dict[str, Any] = {"prune": True, "replace": True}
OLD: dict[str, Any] = {"label": "Old"}


@pytest.mark.parametrize(
    ("asked", "there", "fields"),
    [
        ({}, [listed(1, **OLD)], ("label",)),
        ({"linked_wallet_ids": ["7"]}, [listed(1)], ("linked_wallet_ids",)),
        # The existing request has values that the file no longer has.
        ({}, [listed(1, exchangeAccountId="9")], ("exchange_account_id",)),
        ({"network": "testnet"}, [listed(1, network="testnet", **OLD)], ("label",)),
        # Rejected requests are ignored.
        ({}, [listed(1, **OLD), listed(2, wire={"status": "rejected"})], ("label",)),
        # One request was already replaced, and the row has changed again.
        ({}, [listed(1, **OLD), listed(2, label="Older")], ("label",)),
        ({"visibility_group_id": "g"}, [listed(1, **OLD, wire={"visibilityGroupID": "g"})], ("label",)),
    ],
)
def test_a_request_that_differs_in_its_content_is_replaced(
    asked: dict[str, Any], there: list[WhitelistEnvelope], fields: tuple[str, ...]
) -> None:
    effective = tuple(each.id for each in there if each.status == "APPROVED")
    assert not plan(ask(**asked), there, prune=True).operations
    for options in ({"replace": True}, BOTH):
        found = plan(ask(**asked), there, **options)
        row = found.rows[0]
        assert row.state == "replace"
        assert row.action == "create"
        assert row.fields == fields
        assert row.others == effective
        assert row.note.endswith(" deleted once the new request is in effect")
        # Nothing is deleted in the same plan.
        assert not found.with_action("delete")
        assert PlanLimits(max_creates=0).faults(found)
        # The approval of the plan covers the replaced requests.
        assert found.plan_hash not in (plan(ask(**asked), []).plan_hash, plan(ask(**asked), there).plan_hash)


def test_the_hash_covers_which_requests_are_replaced() -> None:
    hashes = {plan(ask(), listed(number, **OLD), replace=True).plan_hash for number in (1, 2)}
    hashes.add(plan(ask(), [listed(1, **OLD), listed(2, **OLD)], replace=True).plan_hash)
    assert len(hashes) == 3


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        # Two pending requests would both be signed.
        ({}, [listed(1, **OLD, wire=PENDING)]),
        ({}, [listed(1, **OLD), listed(2, label="Other", wire=PENDING)]),
        ({}, [listed(1, **OLD, wire={"action": "ARCHIVE"})]),
        ({}, [listed(1, **OLD, tag="99")]),
        ({"network": "mainnet"}, [listed(1, **OLD)]),
        # Without a network, a new request may be for another network.
        ({}, [listed(1, network="testnet", **OLD)]),
        ({}, [listed(1, **OLD), listed(2, network="mainnet", **OLD)]),
        (CANTON, [listed(1, **{**SHOWN, "address": ALICE.upper(), **OLD})]),
        (CANTON, [listed(1, **SHOWN, **OLD), listed(2, **{**SHOWN, "currency": "CC"})]),
        ({}, [listed(1, **OLD), unreadable(None)]),
        ({}, [listed(1, **OLD, wire={"visibilityGroupID": "g"})]),
        # An earlier replacement did not result in the file's content either.
        ({}, [listed(number, **OLD) for number in (1, 2, 3)]),
        # The request belongs to another customer.
        ({"customer_id": "a"}, [listed(1, customerId="b")]),
    ],
)
def test_an_uncertain_request_is_not_replaced(asked: dict[str, Any], there: list[WhitelistEnvelope]) -> None:
    found = plan(ask(**asked), there, **BOTH)
    assert found.rows[0].state == "differs"
    if "network" not in found.rows[0].fields:
        assert "not replaced" in found.rows[0].note
    assert not found.operations


@pytest.mark.parametrize(
    ("there", "deleted_with"),
    [
        # If both are the same, the request with the lowest id is kept.
        ([listed(9), listed(10)], ("prune",)),
        # The request that equals the row is kept, whatever its id is.
        ([listed(10, **OLD), listed(9)], ("prune", "replace")),
        ([listed(10, **OLD), listed(9), listed(2, wire=PENDING)], ("prune", "replace")),
        # Only a request that is in effect, and certainly for the same destination, is a duplicate.
        ([listed(9), listed(10, wire=PENDING)], ()),
        ([listed(9), listed(10, wire={"action": "ARCHIVE"})], ()),
        ([listed(9), listed(10, tag="99")], ()),
        ([listed(9), listed(10, wire={"visibilityGroupID": "g"})], ()),
        ([listed(9), listed(10, label="\u200bx")], ()),
        # No request equals the row.
        ([listed(9, **OLD), listed(10, label="Older")], ()),
        ([listed(9, wire=PENDING), listed(10, **OLD)], ()),
    ],
)
def test_a_duplicate_can_be_deleted_but_never_the_last_request(
    there: list[WhitelistEnvelope], deleted_with: tuple[str, ...]
) -> None:
    for names in ((), ("prune",), ("replace",), ("prune", "replace")):
        options: dict[str, Any] = dict.fromkeys(names, True)
        found = plan(ask(), there, **options)
        deleted = [row.request_id for row in found.with_action("delete")]
        assert deleted == (["10"] if {*options} & {*deleted_with} else [])
        for row in found.with_action("delete"):
            assert (row.state, row.others) == ("duplicate", ("9",))
            assert found.plan_hash != plan(ask(), [*there, listed(8)], **options).plan_hash
    both = plan([ask(), ask(network="mainnet")], [listed(9, network="mainnet"), listed(10, network="mainnet")], **BOTH)
    assert not both.operations
    # A request that does not name its network may be on another network.
    assert not plan(ask(network="mainnet"), [listed(9, network="mainnet"), listed(10)], **BOTH).operations


@pytest.mark.parametrize(
    ("there", "difference", "way"),
    [
        ([listed(9), listed(10)], "this request is the same", "use 'prune'"),
        ([listed(9), listed(10, **OLD)], "this request differs in label", "use 'prune' or 'replace'"),
    ],
    ids=["the same", "another label"],
)
def test_a_duplicate_that_stays_says_how_to_delete_it(
    there: list[WhitelistEnvelope], difference: str, way: str
) -> None:
    found = plan(ask(), there)
    note = found.rows[1].note
    assert f"request 9 matches the file, and is kept; {difference}; to delete it, {way}" in note
    assert "prune=True deletes all duplicates" in advice_on_differences(found, replace=False)
    advice = advice_on_differences(plan(ask(), there, prune=True), replace=False)
    assert advice.startswith("Applying this plan deletes the duplicates")


def test_a_request_that_is_about_to_be_deleted_is_not_the_one_to_keep() -> None:
    leaving = listed(9, wire={"action": "delete"})
    found = plan(ask(), [listed(9), listed(10)], deletions=[leaving], prune=True)
    assert states(found) == [("unchanged", None, "9"), ("duplicate", None, "10")]
    assert "the deletion of 9 is pending" in found.rows[1].note


# --- what a plan is about ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("only", "ours", "theirs"),
    [
        ({"blockchain": "Polygon"}, {"blockchain": "MATIC"}, {"currency": "ETH"}),
        ({"customer_id": ["a", 7]}, {"customer_id": "7"}, {"customerId": "b"}),
        ({"customer_id": "a"}, {"customer_id": "a"}, {}),
        ({"visibility_group_id": ["g"]}, {"visibility_group_id": "g"}, {"wire": {"visibilityGroupID": "h"}}),
        ({"blockchain": ["eth"], "customer_id": "a"}, {"customer_id": "a"}, {"currency": "BTC", "customerId": "a"}),
    ],
)
def test_a_plan_may_be_about_one_teams_rows(only: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    limit = check_only(only)
    their = listed(5, address=OTHER, **theirs)
    assert states(plan(ask(**ours), their, only=limit, prune=True)) == [("create", "create", "")]
    assert states(plan(ask(**ours), their, prune=True))[1:] == [("undeclared", "delete", "5")]
    with pytest.raises(CustodyRequestError, match=r"is limited to .* the file has other rows: line 3; nothing"):
        plan([ask(**ours), ask(blockchain="SOL", address="x")], [], only=limit)
    # It is unknown which row the request belongs to.
    assert states(plan([], unreadable(None), only=limit, prune=True)) == [("unreadable", None, "3799")]
    # The approval of the plan covers it.
    assert plan(ask(**ours), [], only=limit).plan_hash != plan(ask(**ours), []).plan_hash


def test_only_chains_have_canonical_names() -> None:
    word = "ethereum"
    found = check_only({"blockchain": word, "customer_id": word, "visibility_group_id": [word, word]})
    assert found == {"blockchain": ["eth"], "customer_id": [word], "visibility_group_id": [word]}


def test_two_teams_files_at_one_service() -> None:
    only = {"customer_id": ["a"]}
    there = [listed(1, customerId="a"), listed(2, address=OTHER, customerId="b")]
    found = plan(ask(customer_id="a"), there, only=only, **BOTH)
    assert [each.state for each in found.rows] == ["unchanged"]
    assert not found.has_changes
    for text in (plan_to_markdown(found), plan_to_text(found)):
        assert re.search("This plan is limited to: `?customer_id a", text)
    assert plan_to_json(found)["only"] == only
    # A request of another team is neither created again nor replaced, and its duplicates are not deleted.
    found = plan(ask(customer_id="a", address=OTHER), [*there[1:], listed(3, address=OTHER)], only=only, **BOTH)
    assert [(row.state, row.action, row.fields) for row in found.rows] == [("differs", None, ("customer_id",))]


@pytest.mark.parametrize(
    "only", [{}, [], "ETH", {"label": "x"}, {"blockchain": []}, {"blockchain": ""}, {"blockchain": None},
             {"blockchain": ["None"]}, {"customer_id": {"a": 1}}, {"customer_id": [True]}, {1: "x"}], ids=str
)  # fmt: skip
def test_malformed_limits_of_a_plan_are_refused(only: Any) -> None:
    with pytest.raises(CustodyRequestError, match=r"^only") as caught:
        check_only(only)
    assert caught.value.setting == "only"


def test_two_candidates_stop() -> None:
    named, unnamed = ask(network="testnet"), ask()

    def found(requests: list[WhitelistRequest], *envelopes: WhitelistEnvelope) -> Sequence[str]:
        rows = plan(requests, envelopes, prune=True).rows
        assert not any(row.action == "delete" for row in rows)
        return [row.state for row in rows if row.where]

    testnet, mainnet = listed(1, network="testnet"), listed(2, network="mainnet")
    # It is unknown which of the two is meant, so nothing is created.
    assert found([unnamed], testnet, mainnet) == ["differs"]
    assert found([unnamed], listed(3), mainnet) == ["differs"]
    assert found([named], listed(3)) == ["differs"]
    # A rejected request on another network is not a candidate.
    assert found([unnamed], mainnet, listed(3, network="testnet", wire={"status": "rejected"})) == ["unchanged"]
    # The same applies to two rows: one of them must name its network.
    assert found([named, unnamed], testnet, mainnet) == ["unchanged", "differs"]
    assert found([named, unnamed]) == ["create", "differs"]
    assert found([named, ask(network="mainnet")], listed(3)) == ["differs", "differs"]
    # An ignored request is not a candidate either, unless it is certainly for the row.
    sepolia = listed(3, network="sepolia")
    for envelopes, ignored, state in (
        ([sepolia, listed(4)], "3", "unchanged"),
        ([sepolia], "3", "create"),
        ([mainnet], "2", "unchanged"),
    ):
        (row, *others) = plan(unnamed, envelopes, ignore=ignored, **BOTH).rows
        assert row.state == state
        assert [each.action for each in others] == [None] * len(others)
    # Two parties that differ only in case.
    pair = [ask(**CANTON), ask(**{**CANTON, "address": ALICE.upper()})]
    assert found(pair) == ["differs", "differs"]
    assert found(pair, listed(3, **SHOWN)) == ["unchanged", "differs"]


def test_two_rows_for_one_destination_are_refused() -> None:
    with pytest.raises(CustodyRequestError, match="line 2 and line 3 are for the same destination"):
        plan([ask(), ask(address=ADDRESS.upper(), label="Other", blockchain="eth")], [])
    with pytest.raises(CustodyRequestError, match="line 2 and line 3 are for the same destination"):
        plan([ask(network="main"), ask(blockchain="Ethereum", network="mainnet")], [])
    others = [ask(memo="1"), ask(blockchain="MATIC"), *(ask(memo="2", network=each) for each in ("mainnet", "sepolia"))]
    assert {row.state for row in plan(others, []).rows} == {"create"}


def test_the_place_of_a_row_does_not_identify_it() -> None:
    unnamed, named = (FileRow(ask(**fields), "line 1") for fields in ({}, {"network": "sepolia"}))
    for other in (FileRow(ask(label="Other"), "line 1"), unnamed):
        with pytest.raises(CustodyRequestError, match="line 1 and line 1 are for the same destination"):
            make_plan([unnamed, other], snapshot_of([]))
    stopped, created = make_plan([unnamed, named], snapshot_of([])).rows
    assert stopped.action is None
    assert "may be for the same destination as line 1; add the network to both rows" in stopped.note
    assert created.action == "create"


# --- what cannot be read -----------------------------------------------------------------------------------


def test_an_unreadable_request_stops_every_row_without_a_request() -> None:
    requests = [ask(), ask(label="Second", address=LEGACY, blockchain="BTC")]
    envelope = unreadable(None)
    *rows, last = plan(requests, envelope, prune=True).rows
    assert [(row.where, row.state) for row in rows] == [("line 2", "unreadable"), ("line 3", "unreadable")]
    assert (last.state, last.action, last.request_id, last.where) == ("unreadable", None, "3799", "")
    assert "request 3799 cannot be read, and may be for this row" in rows[0].note
    assert "add its id to 'ignore' (--ignore)" in advice_on_differences(plan(requests, envelope), replace=False)
    # An ignored request needs no advice.
    assert advice_on_differences(plan(requests, envelope, ignore=["3799"]), replace=False) == ""
    # The request exists all the same.
    assert plan(ask(), [envelope, listed()]).rows[0].state == "unchanged"


def test_a_person_may_have_what_cannot_be_read_ignored() -> None:
    broken = unreadable(None)
    found = plan(ask(), broken, ignore=["3799"])
    assert states(found) == [("create", "create", ""), ("unreadable", None, "3799")]
    assert "ignored" in found.rows[1].note
    assert found.ignored == ("3799",)
    for text in (plan_to_markdown(found), plan_to_text(found)):
        assert re.search("Ignored requests, which may be for rows of the file: `?3799", text)
    for wrong in (" ", [None], [True], {"3799": 1}):
        with pytest.raises(CustodyRequestError, match=r"ignore\[0\] "):
            plan(ask(), broken, ignore=wrong)
    # An id may be any text.
    odd = listed(wire={"id": "abc-7", "metadata": None})
    assert states(plan(ask(), odd, ignore=["abc-7", 7])) == [("create", "create", ""), ("unreadable", None, "abc-7")]
    # The approval of the plan covers the ignored ids.
    assert found.plan_hash != plan(ask(), []).plan_hash
    assert plan(ask(), [], ignore=["3799"]).plan_hash == plan(ask(), []).plan_hash
    # A readable request is not ignored.
    assert states(plan(ask(), listed(), ignore="3711")) == [("unchanged", None, "3711")]
    second = listed(3800, wire={"metadata": None})
    assert plan(ask(), [broken, second], ignore="3799").rows[0].state == "unreadable"


# --- unknown names of chains -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "shown", "field", "name"),
    [
        ({}, {"currency": "ETHX"}, "blockchain", "ETHX"),
        ({"network": "mainnet"}, {"network": "ethereum-1"}, "network", "ethereum-1"),
        ({"network": "sepolia", "memo": "7"}, {"network": "testnet", "memo": "7"}, "network", "testnet"),
    ],
)
def test_a_name_that_nobody_knows_may_be_any(
    asked: dict[str, Any], shown: dict[str, Any], field: str, name: str
) -> None:
    there = listed(**shown)
    found = plan(ask(**asked), there, **BOTH)
    assert states(found) == [("differs", None, "3711")]
    assert found.rows[0].shown[field] == name
    assert "this request may be for the row, under another name" in found.rows[0].note
    # The request belongs to no other row, and is not deleted, if the row has a request.
    both = plan(ask(**asked), [there, listed(5, network=asked.get("network"), memo=asked.get("memo", ""))], **BOTH)
    assert states(both) == [("unchanged", None, "5"), ("undeclared", None, "3711")]
    assert "so it is not deleted" in both.rows[1].note
    # A rejected request has no effect, and an ignored request stops no row.
    assert plan(ask(**asked), listed(**shown, wire={"status": "rejected"})).operations
    ignored = plan(ask(**asked), there, ignore="3711", prune=True)
    assert states(ignored) == [("create", "create", ""), ("undeclared", None, "3711")]
    assert ignored.ignored == ("3711",)
    assert ignored.plan_hash != plan(ask(**asked), []).plan_hash
    # It is not deleted, even if the file lacks the row.
    assert plan([], there, ignore="3711", prune=True).operations == ()


def test_the_advice_on_a_row_whose_destination_is_uncertain_neither_deletes_nor_replaces() -> None:
    there = [listed(network="sepolia", **OLD), listed(5, address=OTHER, **OLD)]
    found = plan(ask(), there[:1], **BOTH)
    assert states(found) == [("differs", None, "3711")]
    advice = advice_on_differences(found, replace=False)
    assert "add the missing network" in advice
    assert "'ignore' (--ignore)" in advice
    assert "delete" not in advice
    assert "replace" not in advice
    # Another row that differs has its own advice.
    both = plan([ask(), ask(address=OTHER)], there)
    advice = advice_on_differences(both, replace=False)
    assert "Rows that differ (1) are left as they are at the service.\nChange the file" in advice
    assert "replace=True (--replace)" in advice
    assert "replace=True" not in advice_on_differences(both, replace=True)


# --- deleting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envelope", "state", "action"),
    [
        (listed(), "undeclared", "delete"),
        (listed(wire=PENDING), "undeclared", "delete"),
        (listed(wire={"action": "delete"}), "undeclared", None),
        (listed(wire={"action": "ARCHIVE"}), "undeclared", None),
        (listed(wire={"blockchain": "BTC"}), "undeclared", None),
        (listed(label="\u200bx"), "undeclared", None),
        (listed(customerId={"x": 1}), "undeclared", None),
        (unreadable("{"), "unreadable", None),
    ],
    ids=["in effect", "pending", "leaving", "odd action", "two chains", "hidden letter", "odd customer", "unreadable"],
)
def test_deletes_only_what_is_in_no_file_and_contradicts_nothing(
    envelope: WhitelistEnvelope, state: str, action: str | None
) -> None:
    found = plan([], envelope, prune=True)
    assert states(found) == [(state, action, envelope.id)]
    assert found.rows[0].where == ""
    assert found.has_changes
    assert states(plan([], envelope)) == [(state, None, envelope.id)]
    assert len(found.operations) == (action is not None)


@pytest.mark.parametrize(
    ("new", "action"),
    [
        (listed(7), "delete"),
        (None, "delete"),
        (listed(7, wire=PENDING), None),
        (listed(7, wire={"status": "rejected"}), None),
        (unreadable("{"), None),
    ],
    ids=["in effect", "created by this plan", "pending", "rejected", "unreadable"],
)
def test_a_request_in_effect_is_kept_until_each_row_is_in_effect(
    new: WhitelistEnvelope | None, action: str | None
) -> None:
    """The row may have the new address of the destination whose old address the file no longer has."""
    old, withdrawn = listed(5, address=OTHER), listed(6, address="0x" + "ef" * 20, wire=PENDING)
    found = plan(ask(), [old, withdrawn, *([new] if new else [])], prune=True)
    actions = {each.request_id: each.action for each in found.rows if each.request_id}
    assert (actions["5"], actions["6"]) == (action, "delete")
    if action is None:
        assert any("not deleted until these rows are in effect" in each.note for each in found.rows)


def test_a_deletion_that_is_pending_is_not_requested_again() -> None:
    old, again = listed(5, address=OTHER), listed(3712)
    pending = [listed(5, address=OTHER, wire={"action": "delete"}), listed(3712, wire={"action": "delete"})]
    found = plan(ask(), [listed(), old, again], deletions=pending, prune=True)
    assert states(found) == [("unchanged", None, "3711"), ("undeclared", None, "5"), ("duplicate", None, "3712")]
    assert all("its deletion is already pending" in each.note for each in found.rows[1:])


@pytest.mark.parametrize(("status", "shown"), [("FROZEN", "FROZEN"), ("", "empty"), (None, "empty")])
def test_a_deletion_begins_with_the_status_if_it_is_unknown(status: str | None, shown: str) -> None:
    (row,) = plan([], listed(wire={"status": status}), settled=["3711"], prune=True).rows
    assert row.note.startswith(f"its status is {shown}, so it is unknown whether it is in effect")


@pytest.mark.parametrize(
    ("rows", "end"), [(1, "line 2 create"), (MAX_NAMED, "create"), (MAX_NAMED + 2, "; and 2 more")]
)
def test_a_summary_names_the_first_rows(rows: int, end: str) -> None:
    found = plan([ask(address=f"0x{number:040x}") for number in range(rows)], [])
    text = changes_text(found, CHANGES)
    assert text.endswith(end)
    assert text.count(" create") == 1 + min(rows, MAX_NAMED)


def test_a_row_that_was_removed_is_deleted_beside_one_that_is_like_it() -> None:
    for network in (None, "mainnet"):
        envelopes = [
            listed(1, network=network),
            listed(2, currency="MATIC", network=network),
            listed(3, address=OTHER, network=network),
        ]
        assert states(plan(ask(), envelopes, prune=True))[1:] == [("undeclared", "delete", each) for each in "23"]


def test_a_rejected_request_without_a_row_is_left_out() -> None:
    assert states(plan([], listed(wire={"status": "rejected"}), prune=True)) == []


def test_a_request_that_no_file_can_express_is_shown() -> None:
    (row,) = plan([], listed(label="", memo="7", network="mainnet")).rows
    assert row.request is None
    assert row.shown == {"blockchain": "ETH", "network": "mainnet", "address": ADDRESS, "memo": "7", "label": ""}
    assert "cannot be written in a file" in row.note


def test_unknown_keys_and_words_are_accepted_by_name() -> None:
    envelope = listed(tag="99", wire={"action": "ARCHIVE"})
    (row,) = plan(ask(), envelope).rows
    assert row.state == "differs"
    assert row.fields == ("tag", "envelope.action")
    assert row.shown == {"tag": "99", "envelope.action": "ARCHIVE"}
    assert "not requested: tag; if the service fills them in, add them to 'accept_fields'" in row.note
    assert "'envelope.action' in 'accept_fields' accepts it" in row.note
    (row,) = plan(ask(), envelope, accept_fields="tag").rows
    assert row.fields == ("envelope.action",)
    (row,) = plan(ask(), envelope, accept_fields=["tag", "envelope.action"]).rows
    assert row.state == "unchanged"
    assert row.note == "filled in by the service: tag"
    # Words that say that something is taken away are not accepted at all.
    (row,) = plan(ask(), listed(wire={"action": "revoke"}), accept_fields=["envelope.action"]).rows
    assert row.state == "differs"
    # Fields that name the destination are compared nevertheless.
    assert plan(ask(), listed(memo="7"), accept_fields=["memo"]).rows[0].state == "create"
    accepted = plan([], listed(wire={"action": "ARCHIVE"}), prune=True, accept_fields=["envelope.action"])
    assert states(accepted) == [("undeclared", "delete", "3711")]


def test_a_deletion_covers_the_content_and_not_how_links_are_described() -> None:
    hashes = {
        plan([], listed(linkedWallets=[{"id": 7, "name": name}]), prune=True).plan_hash for name in ("Hot", "Warm")
    }
    assert len(hashes) == 1
    assert plan([], listed(linkedWallets=[{"id": 8, "name": "Hot"}]), prune=True).plan_hash not in hashes
