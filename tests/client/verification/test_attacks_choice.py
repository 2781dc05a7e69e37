"""Which rule decides, and which of its paths: rows 9, 10, 12 and 15 of the attack list, and what "Which rule" says."""

from __future__ import annotations

from typing import Any

import pytest
from whitelist_forge import (
    ANY,
    DEFAULT_RULE,
    DEMO_LINE,
    ETH_PATHS,
    ETH_RULE,
    GROUPS,
    INTERNAL_ADDRESS,
    INTERNAL_WALLET,
    LINKED_ADDRESS,
    RULES,
    TEXT_A,
    TEXT_B,
    USERS,
    WALLET,
    b64,
    container,
    envelope,
    field,
    group,
    line,
    path,
    retext,
    rule,
    text_of,
    user,
    wallet_cell,
)
from whitelist_verdicts import MAINNET, PINS, SUPERADMINS, accept, refuse, signers

from airflow_custody.client.verification.verifier import VerificationPins

BOTH = ("alice", "bob")


def signed_a(**changes: Any) -> dict[str, Any]:
    """Return address A, signed by alice and bob."""
    return envelope(TEXT_A, *BOTH, **changes)


# Row 9: a chain with weaker rules

WEAK_XLM = rule("XLM", path(("ops", 1)))


@pytest.mark.parametrize("blockchain", ["XLM", "eth", "ETH ", "Eth", "", None, "Any", 5, ["ETH"]])
def test_row_9_the_envelope_names_another_chain(blockchain: Any) -> None:
    rules = container(rules=(*RULES, WEAK_XLM, rule("eth", path(("ops", 1)))))
    accept(signed_a(rules=rules))
    for names in (("alice",), BOTH):
        refuse(envelope(TEXT_A, *names, rules=rules, blockchain=blockchain))


def test_row_9_the_envelope_does_not_name_a_chain() -> None:
    unnamed = signed_a()
    del unnamed["blockchain"]
    refuse(unnamed)


# Row 10: what the envelope says about approvers


@pytest.mark.parametrize(
    "changes",
    [
        {"approvers": None},
        {"approvers": {"parallel": [{"sequential": [{"externalGroupID": "ops", "minimumSignatures": 1}]}]}},
        {"approvers": "everybody", "rule": "none", "trails": None, "attributes": 5, "scores": [[]]},
        {"id": None, "tenantId": [], "status": "rejected", "action": {}},
    ],
)
def test_row_10_the_envelopes_own_thresholds_are_not_read(changes: dict[str, Any]) -> None:
    refuse(envelope(TEXT_A, "alice", **changes))
    assert signers(accept(signed_a(**changes))) == set(BOTH)


# Row 15: the networks, swapped

TWO_NETWORKS = container(
    rules=(rule("ETH", path(("ops", 2)), network="mainnet"), rule("ETH", path(("ops", 1)), network="testnet"))
)
TESTNET = VerificationPins(SUPERADMINS, 2, networks=["testnet"])
EITHER = VerificationPins(SUPERADMINS, 2, networks=["testnet", "mainnet"])


@pytest.mark.parametrize("network", ["mainnet", "testnet", "", None, "Mainnet", 5])
def test_row_15_no_network_in_the_text(network: Any) -> None:
    few = envelope(TEXT_A, "alice", rules=TWO_NETWORKS, network=network)
    enough = signed_a(rules=TWO_NETWORKS, network=network)
    for pins in (PINS, MAINNET, EITHER):
        refuse(few, pins)
    for pins, networks in ((MAINNET, {"mainnet"}), (TESTNET, {"testnet"}), (EITHER, {"mainnet", "testnet"})):
        (accept if network in networks else refuse)(enough, pins)
    (accept if network == "testnet" else refuse)(few, TESTNET)


def test_row_15_without_pinned_networks_each_rule_of_the_chain_must_be_met() -> None:
    result = accept(signed_a(rules=TWO_NETWORKS))
    assert {applied.network for applied in result.applied} == {"mainnet", "testnet"}
    fallback = container(rules=(rule("ETH", path(("ops", 1)), network="testnet"), rule("", path(("board", 1)))))
    refuse(envelope(TEXT_A, "alice", rules=fallback, network="testnet"))
    accept(envelope(TEXT_A, "alice", "carol", rules=fallback, network="testnet"))


def test_row_15_the_network_that_is_shown_has_no_rule() -> None:
    rules = container(rules=(rule("ETH", path(("ops", 1)), network="mainnet"),))
    accept(signed_a(rules=rules, network="mainnet"))
    for pins in (PINS, TESTNET, EITHER):
        refuse(signed_a(rules=rules, network="testnet"), pins)


@pytest.mark.parametrize("network", ["testnet", "mainnet", "", "MAINNET"])
def test_row_15_a_network_in_the_text(network: str) -> None:
    few = envelope(text_of(network="testnet"), "alice", rules=TWO_NETWORKS, network=network)
    for pins in (PINS, TESTNET, EITHER):
        (accept if network in ("testnet", "") else refuse)(few, pins)
    refuse(few, MAINNET)
    mainnet = text_of(network="mainnet")
    refuse(envelope(mainnet, "alice", rules=TWO_NETWORKS, network=network), EITHER)
    refuse(envelope(mainnet, *BOTH, rules=TWO_NETWORKS, network="mainnet"), TESTNET)
    accept(envelope(mainnet, *BOTH, rules=TWO_NETWORKS, network="mainnet"), EITHER)


# The tiers


def of(text: str, *rules: bytes, names: tuple[str, ...] = BOTH, pins: VerificationPins = PINS, **changes: Any) -> Any:
    """Return the only rule that decides on a text."""
    (applied,) = accept(envelope(text, *names, rules=container(rules=rules), **changes), pins).applied
    return applied.currency, applied.network, tuple(group.group_id for group in applied.path)


OPS, BOARD = path(("ops", 2)), path(("board", 1))
ON_MAINNET = text_of(network="mainnet")


def test_the_most_specific_rule_decides() -> None:
    exact = rule("ETH", OPS, network="mainnet")
    others = (rule("", BOARD), rule("ETH", BOARD), rule("ETH", BOARD, network="testnet"), rule("eth", BOARD))
    for text, pins in ((ON_MAINNET, PINS), (ON_MAINNET, MAINNET), (TEXT_A, MAINNET)):
        assert of(text, *others, exact, pins=pins) == ("ETH", "mainnet", ("ops",))
        refuse(envelope(text, "carol", rules=container(rules=(*others, exact))), pins)
        assert of(text, others[0], others[2], rule("ETH", OPS), pins=pins) == ("ETH", "", ("ops",))
        assert of(text, rule("", OPS), others[2], others[3], pins=pins)[2] == ("ops",)


@pytest.mark.parametrize("word", ["", "Any", "any", "ANY", "aNy"])
def test_wildcards(word: str) -> None:
    assert of(TEXT_A, rule(word, OPS))[2] == ("ops",)
    assert of(TEXT_A, rule(word, OPS, network=word))[2] == ("ops",)
    assert of(TEXT_A, rule("ETH", OPS, network=word), rule("", BOARD))[2] == ("ops",)
    refuse(signed_a(rules=container(rules=(rule(f"{word}.", OPS), rule("*", OPS), rule(" ", OPS), rule("Any ", OPS)))))


@pytest.mark.parametrize(
    "rules",
    [
        (ETH_RULE, ETH_RULE),
        (ETH_RULE, rule("ETH", path(("ops", 1)))),
        (ETH_RULE, rule("ETH", OPS, network="Any")),
        (rule("", OPS), rule("", OPS)),
        (rule("", OPS), rule("any", OPS)),
        (rule("", OPS, network="mainnet"), rule("Any", OPS, network="mainnet")),
        (rule("ETH", OPS, network="mainnet"), rule("ETH", OPS, network="mainnet"), rule("ETH", OPS)),
    ],
)
def test_two_rules_in_the_winning_tier(rules: tuple[bytes, ...]) -> None:
    for text, pins in ((TEXT_A, PINS), (TEXT_A, MAINNET), (ON_MAINNET, PINS)):
        refuse(envelope(text, *BOTH, "carol", rules=container(rules=rules)), pins)
        refuse(envelope(text, *BOTH, "carol", rules=container(rules=rules[::-1])), pins)


def test_two_rules_in_a_tier_that_does_not_win() -> None:
    assert of(ON_MAINNET, rule("", BOARD), rule("", BOARD), rule("ETH", OPS))[0] == "ETH"
    losers = (rule("ETH", BOARD), rule("ETH", BOARD, network="any"))
    assert of(ON_MAINNET, *losers, rule("ETH", OPS, network="mainnet"))[1] == "mainnet"


@pytest.mark.parametrize("network", ["testnet", "main", "Mainnet", "mainnet "])
def test_a_default_for_another_network_is_none(network: str) -> None:
    for currency in ("", "Any"):
        rules = container(rules=(rule(currency, OPS, network=network),))
        refuse(envelope(ON_MAINNET, *BOTH, rules=rules))
        refuse(signed_a(rules=rules), MAINNET)
    assert of(ON_MAINNET, rule("", OPS, network="mainnet"))[2] == ("ops",)


def test_no_rule() -> None:
    for rules in ((), (rule("BTC", OPS),), (rule("eth", OPS),), (rule("ETH", OPS, network="testnet"),)):
        refuse(envelope(ON_MAINNET, *BOTH, "carol", rules=container(rules=rules)))


# Nothing passes by being empty


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param((), id="no path"),
        pytest.param((path(),), id="path without groups"),
        pytest.param((path(), path()), id="paths without groups"),
        pytest.param((path(("ghosts", 1)),), id="unknown group"),
        pytest.param((path(("ops", 1), ("ghosts", 0)),), id="unknown group beside a good one"),
        pytest.param((path(("", 1)),), id="group without a name"),
        pytest.param((path(("empty", 1)),), id="group without users"),
        pytest.param((path(("empty", 0)),), id="none of a group without users"),
        pytest.param((path(("ops", 2), ("empty", 0)),), id="none of it, beside a good one"),
        pytest.param((path(("ops", 3)),), id="more than the group has"),
        pytest.param((path(("ops", 2**31)),), id="2^31"),
        pytest.param((path(("ops", 2**32 - 1)),), id="2^32 - 1"),
        pytest.param((path(("ops", 2**32)),), id="2^32"),
        pytest.param((path(("ops", 2**32 + 1)),), id="2^32 + 1"),
        pytest.param((path(("ops", 2**63)),), id="2^63"),
        pytest.param((path(("ops", -1)),), id="-1"),
    ],
)
def test_empty_and_impossible_thresholds(paths: tuple[bytes, ...]) -> None:
    groups = (*GROUPS, group("empty"))
    given = envelope(TEXT_A, *BOTH, "carol", rules=container(rules=(rule("ETH", *paths),), groups=groups))
    refuse(given)
    on_a_line = rule("ETH", OPS, lines=[line("demo/7", *paths)])
    refuse(envelope(TEXT_B, *BOTH, "carol", rules=container(rules=(on_a_line,), groups=groups)))


def test_a_minimum_of_zero_is_one() -> None:
    rules = container(rules=(rule("ETH", path(("board", 0))),))
    refuse(signed_a(rules=rules))
    assert signers(accept(envelope(TEXT_A, "carol", rules=rules))) == {"carol"}
    rules = container(rules=(rule("ETH", path(("ops", 1), ("board", 0))),))
    refuse(signed_a(rules=rules))
    accept(envelope(TEXT_A, "alice", "carol", rules=rules))


@pytest.mark.parametrize("names", [("alice", "carol"), ("carol", "bob"), ("alice", "bob", "carol")])
def test_each_group_of_one_path_and_not_parts_of_two(names: tuple[str, ...]) -> None:
    paths = (path(("ops", 2), ("board", 1)), path(("dave", 1), ("ops", 1)))
    rules = container(rules=(rule("ETH", *paths),), groups=(*GROUPS, group("dave", "dave")))
    (accept if len(names) == 3 else refuse)(envelope(TEXT_A, *names, rules=rules))


@pytest.mark.parametrize("first", [0, 1])
def test_any_one_path_suffices(first: int) -> None:
    rules = container(rules=(rule("ETH", *(ETH_PATHS if first else ETH_PATHS[::-1])),))
    for names, group_id in ((BOTH, "ops"), (("carol",), "board"), (("alice", "carol"), "board")):
        (applied,) = accept(envelope(TEXT_A, *names, rules=rules)).applied
        assert [part.group_id for part in applied.path] == [group_id]


def test_one_person_in_two_groups() -> None:
    groups = (group("ops", "alice", "bob"), group("board", "alice", "carol"))
    rules = container(rules=(rule("ETH", path(("ops", 1), ("board", 1))),), groups=groups)
    (applied,) = accept(envelope(TEXT_A, "alice", rules=rules)).applied
    assert [(part.group_id, len(part.user_ids)) for part in applied.path] == [("ops", 1), ("board", 1)]
    refuse(envelope(TEXT_A, "bob", rules=rules))


def test_a_group_twice_in_a_path_needs_no_more_people() -> None:
    rules = container(rules=(rule("ETH", path(("ops", 1), ("ops", 2))),))
    refuse(envelope(TEXT_A, "alice", rules=rules))
    accept(envelope(TEXT_A, *BOTH, rules=rules))


# Row 12: another line of the rule


def by_line(*lines: bytes) -> bytes:
    """Return rules in which ETH has lines."""
    return container(rules=(rule("ETH", *ETH_PATHS, lines=lines), DEFAULT_RULE))


def test_a_line_weaker_than_its_rule() -> None:
    (applied,) = accept(envelope(TEXT_B, "alice")).applied
    assert (applied.wallet_path, applied.currency) == ("demo/7", "ETH")
    refuse(envelope(TEXT_B, "carol"))


def test_a_line_stronger_than_its_rule() -> None:
    rules = by_line(line("demo/7", path(("ops", 2), ("board", 1))))
    refuse(envelope(TEXT_B, *BOTH, rules=rules))
    refuse(envelope(TEXT_B, "carol", rules=rules))
    accept(envelope(TEXT_B, *BOTH, "carol", rules=rules))


def test_the_first_line_of_a_wallet_counts() -> None:
    strong = line("demo/7", path(("ops", 2), ("board", 1)))
    refuse(envelope(TEXT_B, *BOTH, rules=by_line(strong, DEMO_LINE)))


OTHER = WALLET | {"id": 8, "path": "demo/8"}
LINKED = {"id": "12", "address": LINKED_ADDRESS, "label": ""}


@pytest.mark.parametrize(
    "links",
    [
        {"linkedWallets": [WALLET, OTHER]},
        {"linkedWallets": [WALLET, WALLET]},
        {"linkedWallets": [WALLET], "linkedInternalAddresses": [LINKED]},
        {"linkedWallets": [OTHER]},
        {"linkedWallets": [WALLET | {"path": "demo/70"}]},
        {"linkedWallets": [WALLET | {"path": "demo/"}]},
        {"linkedWallets": [WALLET | {"path": "Demo/7"}]},
        {"linkedWallets": [{"id": 7, "name": "demo/7"}]},
        {"linkedInternalAddresses": [LINKED]},
        {},
    ],
)
def test_row_12_no_line_for_other_links(links: dict[str, Any]) -> None:
    text = text_of(**links)
    refuse(envelope(text, "alice"))
    (applied,) = accept(envelope(text, *BOTH)).applied
    assert applied.wallet_path is None


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([], id="no cell"),
        pytest.param([field(1, ANY), wallet_cell("demo/7")], id="not the first"),
        pytest.param([b"", wallet_cell("demo/7")], id="empty cell first"),
        pytest.param([field(1, INTERNAL_ADDRESS) + field(2, field(2, "demo/7"))], id="an address's path"),
        pytest.param([field(1, INTERNAL_ADDRESS) + field(2, field(1, "demo/7"))], id="an address"),
        pytest.param([field(2, field(1, "demo/7"))], id="no type"),
        pytest.param([field(1, INTERNAL_WALLET)], id="no path"),
        pytest.param([wallet_cell("")], id="empty path"),
        pytest.param([field(1, 17) + field(2, field(1, "demo/7"))], id="unknown type"),
    ],
)
def test_row_12_cells_that_are_not_the_wallets(cells: list[bytes]) -> None:
    rules = by_line(line("", path(("ops", 1)), cells=cells))
    refuse(envelope(TEXT_B, "alice", rules=rules))
    refuse(envelope(text_of(linkedWallets=[{"id": 7, "name": "hot"}]), "alice", rules=rules))


def test_a_line_with_more_cells() -> None:
    cells = [wallet_cell("demo/7"), field(1, ANY), field(1, 5) + field(2, field(1, "0xA") + field(2, "memo"))]
    accept(envelope(TEXT_B, "alice", rules=by_line(line("", path(("ops", 1)), cells=cells))))


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(b"\xff", id="no message"),
        pytest.param(field(1, INTERNAL_WALLET) + b"\x12\x7f", id="beyond the end"),
        pytest.param(field(1, INTERNAL_WALLET) + field(2, b"\x0a\x7f"), id="payload beyond the end"),
        pytest.param(field(1, INTERNAL_WALLET) + field(2, field(1, b"\xff\xfe")), id="path not UTF-8"),
        pytest.param(field(1, "wallet"), id="type is text"),
    ],
)
@pytest.mark.parametrize("more", [[], [wallet_cell("demo/7")]])
def test_a_cell_that_cannot_be_decoded(cell: bytes, more: list[bytes]) -> None:
    refuse(envelope(TEXT_B, *BOTH, rules=by_line(line("", path(("ops", 1)), cells=[cell, *more]))))


def test_row_12_links_are_read_from_the_signed_text() -> None:
    good = signed_a()
    refuse(retext(envelope(TEXT_A, "alice"), text_of(linkedWallets=[WALLET])))
    weak = envelope(TEXT_A, "alice", linkedWallets=[WALLET])
    weak["metadata"]["payload"] = {"linkedWallets": [WALLET]}
    weak["signedAddress"]["payload"] = b64(field(11, field(1, 7) + field(2, "hot") + field(3, "demo/7")))
    refuse(weak)
    two = envelope(text_of(linkedWallets=[WALLET, OTHER]), "alice")
    refuse(retext(two, TEXT_B))
    assert accept(good).applied[0].wallet_path is None


# Ids that stand for two


def test_an_id_that_two_users_or_two_groups_have() -> None:
    for users in ((*USERS, USERS[0]), (*USERS, user("alice", key="")), (user("dave"), *USERS, user("dave"))):
        refuse(signed_a(rules=container(users=users)))
    for groups in ((*GROUPS, GROUPS[0]), (*GROUPS, group("ops", "carol")), (*GROUPS, group("x"), group("x"))):
        refuse(signed_a(rules=container(groups=groups)))
