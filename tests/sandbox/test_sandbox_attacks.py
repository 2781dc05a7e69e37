from __future__ import annotations

import json
from typing import Any

import pytest
from sandbox_api import Api

from airflow_custody.sandbox import Sandbox, SandboxError

PATH = "/whitelists/addresses"
ADDRESS = "0x" + "ab" * 20
OTHER = "0x" + "cd" * 20
TWO_PEOPLE = [{"sequential": [{"externalGroupID": "approvers", "minimumSignatures": 2}]}]


def read(api: Api, number: str) -> dict[str, Any]:
    result: dict[str, Any] = api.get(f"{PATH}/{number}").json()["result"]
    return result


def listed(api: Api, **query: Any) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in api.get(PATH, params=query).json().get("result", [])}


@pytest.fixture(scope="module")
def names(running: Sandbox) -> list[str]:
    return [each["name"] for each in running.control.attacks()]


@pytest.fixture
def signed(sandbox: Sandbox) -> str:
    """Return a request to attack, which was signed together with others: for another address, and for the same."""
    sandbox.control.set_approvers(TWO_PEOPLE)
    row = {"label": "Treasury", "address": ADDRESS, "blockchain": "ETH", "network": "mainnet", "linkedWalletIds": ["7"]}
    rows = [row, {**row, "address": OTHER}, {**row, "linkedWalletIds": ["8"]}]
    return sandbox.control.add_whitelist_requests(rows, signed=True)[0]


def test_every_row_of_the_list_has_attacks(sandbox: Sandbox) -> None:
    attacks = sandbox.control.attacks()
    assert [each["row"] for each in attacks] == sorted(each["row"] for each in attacks)
    assert {each["row"] for each in attacks} == set(range(1, 19))
    assert {each["outcome"] for each in attacks} == {"refused", "not read", "compared", "not visible"}
    for each in attacks:
        assert each["description"].endswith(".")
        assert "\n" not in each["description"]


UNSUITABLE = {
    "replayed approval": "another request with the same text",
    "still approved": "already shown this way",
    "swapped network": "whose text has no network",
}


def test_each_attack_changes_what_is_served_until_it_ends(
    sandbox: Sandbox, api: Api, signed: str, names: list[str]
) -> None:
    lawful, others = read(api, signed), listed(api)
    normalized = api.get(PATH, params={"rulesContainerNormalized": "true"}).json()
    for name in names:
        if name in UNSUITABLE:
            with pytest.raises(SandboxError, match=UNSUITABLE[name]):
                sandbox.control.attack(signed, name)
            assert read(api, signed) == lawful
            continue
        sandbox.control.attack(signed, name)
        if name == "hidden":
            assert api.get(f"{PATH}/{signed}").status_code == 404
            assert listed(api).keys() == others.keys() - {signed}
            continue
        served = read(api, signed)
        assert served != lawful, name
        assert served["id"] == signed
        rows = listed(api)
        # Some sign anew each time.
        assert rows.pop(signed).keys() == served.keys()
        assert rows == {number: row for number, row in others.items() if number != signed}
    sandbox.control.attack(signed, None)
    assert read(api, signed) == lawful
    assert listed(api) == others
    assert api.get(PATH, params={"rulesContainerNormalized": "true"}).json() == normalized


@pytest.mark.parametrize(
    "name", ["older rules", "one super-administrator repeated", "URL-safe base64", "extended rules"]
)
def test_the_rules_of_an_attack_have_an_entry_of_their_own(sandbox: Sandbox, api: Api, signed: str, name: str) -> None:
    sandbox.control.attack(signed, name)
    page = api.get(PATH, params={"rulesContainerNormalized": "true"}).json()
    rules = {each["hash"]: each for each in page["rulesContainers"]}
    assert len(rules) == len(page["rulesContainers"]) == 2
    forged, *others = (rules[row["rulesContainerHash"]] for row in page["result"])
    lawful = read(api, str(int(signed) + 1))
    for each in others:
        assert (each["rulesContainer"], each["rulesSignatures"]) == (
            lawful["rulesContainer"],
            lawful["rulesSignatures"],
        )
    assert (forged["rulesContainer"], forged["rulesSignatures"]) != (
        lawful["rulesContainer"],
        lawful["rulesSignatures"],
    )
    assert "rulesContainer" not in page["result"][0]


def test_rules_that_are_no_text_stay_in_their_row(sandbox: Sandbox, api: Api, signed: str) -> None:
    sandbox.control.attack(signed, "null for the rules")
    page = api.get(PATH, params={"rulesContainerNormalized": "true"}).json()
    assert page["result"][0]["rulesContainer"] is None
    assert len(page["rulesContainers"]) == 1


def test_a_request_that_nobody_signed(sandbox: Sandbox, api: Api) -> None:
    (number,) = sandbox.control.add_whitelist_requests(
        [{"label": "L", "address": ADDRESS, "blockchain": "ETH"}], status="pending"
    )
    assert number not in listed(api)
    sandbox.control.attack(number, "unsigned")
    assert listed(api)[number]["status"] == read(api, number)["status"] == "APPROVED"
    sandbox.control.attack(number, None)
    assert number not in listed(api)
    assert read(api, number)["status"] == "pending"


@pytest.mark.parametrize("status", ["rejected", "removed"])
def test_a_request_that_is_no_longer_in_effect(sandbox: Sandbox, api: Api, signed: str, status: str) -> None:
    sandbox.control.set_whitelist_status(signed, status)
    assert signed not in listed(api)
    sandbox.control.attack(signed, "still approved")
    assert listed(api)[signed]["status"] == read(api, signed)["status"] == "APPROVED"
    assert len(read(api, signed)["signedAddress"]["signatures"]) == 2
    sandbox.control.attack(signed, None)
    assert signed not in listed(api)


def test_signatures_of_an_earlier_request_for_the_same(sandbox: Sandbox, api: Api, signed: str) -> None:
    fields = {
        "label": "Treasury",
        "address": ADDRESS,
        "blockchain": "ETH",
        "network": "mainnet",
        "linkedWalletIds": ["7"],
    }
    sandbox.control.set_whitelist_status(signed, "removed")
    (number,) = sandbox.control.add_whitelist_requests([fields], status="pending")
    sandbox.control.attack(number, "replayed approval")
    row = listed(api)[number]
    assert row["status"] == "APPROVED"
    assert row["metadata"]["hash"] in row["signedAddress"]["signatures"][0]["hashes"]
    sandbox.control.attack(number, None)
    assert "signedAddress" not in read(api, number)


def test_a_network_that_is_not_signed(sandbox: Sandbox, api: Api) -> None:
    sandbox.control.set_network_is_hashed(False)
    row = {"label": "L", "address": ADDRESS, "blockchain": "ETH", "network": "mainnet"}
    (number,) = sandbox.control.add_whitelist_requests([row], signed=True)
    sandbox.control.attack(number, "swapped network")
    assert read(api, number)["network"] == "testnet"
    with pytest.raises(SandboxError, match="whose text has a network"):
        sandbox.control.attack(number, "another network")
    assert read(api, number)["network"] == "mainnet"


def test_an_old_text_whose_memo_disappears(sandbox: Sandbox, api: Api) -> None:
    row = {"label": "L", "address": ADDRESS, "blockchain": "ETH", "memo": "4242"}
    (number,) = sandbox.control.add_whitelist_requests([row], signed=True)
    sandbox.control.attack(number, "backslash values")
    text = read(api, number)["metadata"]["payloadAsString"]
    assert "memo" not in json.loads(text)
    assert json.loads(text)["contractType"] == '"4242'


@pytest.mark.parametrize(
    ("status", "name", "reason"),
    [
        ("pending", "one user repeated", "it takes a request with 2 signatures"),
        ("pending", "hash added", "it takes a signed request"),
        ("pending", "another envelope", "another request that is signed"),
        ("pending", "hash in an old signature", "another request that is signed"),
        ("pending", "wallets dropped", "with linked wallets"),
        ("pending", "no such attack", "'no such attack' is not an attack: .*older rules"),
    ],
)
def test_what_an_attack_takes(sandbox: Sandbox, api: Api, status: str, name: str, reason: str) -> None:
    row = {"label": "L", "address": ADDRESS, "blockchain": "ETH"}
    (number,) = sandbox.control.add_whitelist_requests([row], status=status)
    lawful = read(api, number)
    with pytest.raises(SandboxError, match=reason):
        sandbox.control.attack(number, name)
    assert read(api, number) == lawful


def test_attacks_that_take_more(sandbox: Sandbox, api: Api) -> None:
    row = {"label": "L", "address": ADDRESS, "blockchain": "ETH"}
    (number,) = sandbox.control.add_whitelist_requests([row], signed=True)
    with pytest.raises(SandboxError, match="signed together with another"):
        sandbox.control.attack(number, "hashes reordered")
    sandbox.control.set_superadmins(2, 1)
    with pytest.raises(SandboxError, match="two super-administrators"):
        sandbox.control.attack(number, "one super-administrator mirrored")
    with pytest.raises(SandboxError, match="1"):
        sandbox.control.attack("1", "own rules")


def test_an_attack_that_no_longer_fits_changes_nothing(sandbox: Sandbox, api: Api, signed: str) -> None:
    sandbox.control.attack(signed, "wallets dropped")
    sandbox.control.change_whitelist_request(signed, linkedWalletIds=[])
    assert "linkedWallets" not in read(api, signed)["metadata"]["payload"]
