from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_custody.client import (
    CustodyClient,
    CustodyRequestError,
    CustodyResponseError,
    WhitelistEnvelope,
    WhitelistRequest,
)
from airflow_custody.client.text import has_unprintable
from airflow_custody.client.timestamps import parse_timestamp
from airflow_custody.client.whitelist.envelopes import Signing
from airflow_custody.client.whitelist.models import check_request_id, check_request_ids
from airflow_custody.sandbox import Sandbox


@given(st.text())
def test_an_address_is_sent_unchanged_or_refused(address: str) -> None:
    if address != address.strip() or not address or has_unprintable(address):
        with pytest.raises(CustodyRequestError, match="address"):
            WhitelistRequest(label="a", address=address, blockchain="ETH")
    else:
        assert WhitelistRequest(label="a", address=address, blockchain="ETH").to_wire()["address"] == address


def test_wire_names_without_fields_that_were_not_given() -> None:
    request = WhitelistRequest(label="a", address="x", blockchain="ETH", currency="ETH", exchange_account_id=7)  # type: ignore[arg-type]
    assert request.to_wire() == {
        "label": "a",
        "address": "x",
        "blockchain": "ETH",
        "currency": "ETH",
        "exchangeAccountId": "7",
    }


TEXTS = [name for name in WhitelistRequest.model_fields if not name.startswith("linked")]
LISTS = [name for name in WhitelistRequest.model_fields if name.startswith("linked")]
REQUIRED: dict[str, Any] = {"label": "l", "address": "a", "blockchain": "ETH"}


@pytest.mark.parametrize(
    "value",
    [b"ETH", 16, 1.5, True, float("nan"), ["a"], {"a": 1}, object(), 10**5000],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("name", TEXTS)
def test_only_text_is_text(name: str, value: Any) -> None:
    if name == "exchange_account_id" and value == 16:
        return
    with pytest.raises(CustodyRequestError, match=f"{name} must be (text|an id)"):
        WhitelistRequest(**{**REQUIRED, name: value})


def test_the_error_says_how_text_lost_its_type() -> None:
    with pytest.raises(
        CustodyRequestError, match=r"memo must be text, not the int 16.*render_template_as_native_obj.*tojson"
    ):
        WhitelistRequest(**{**REQUIRED, "memo": 0x10})


@pytest.mark.parametrize(
    "value", ["1", 5, True, {"1": 1}, {"1"}, b"1", 1.5, pytest.param(object(), id="object")], ids=repr
)
@pytest.mark.parametrize("name", LISTS)
def test_only_a_list_is_a_list(name: str, value: Any) -> None:
    with pytest.raises(CustodyRequestError, match=f"{name} must be a list of ids"):
        WhitelistRequest(**{**REQUIRED, name: value})


@pytest.mark.parametrize(
    "element",
    [None, "", " ", " 1", 1.0, True, -1, 2**63, 10**5000, b"1", ["1"], {}],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("name", LISTS)
def test_an_element_that_is_no_id_is_named_by_its_position(name: str, element: Any) -> None:
    with pytest.raises(CustodyRequestError, match=rf"{name}\[1\]"):
        WhitelistRequest(**{**REQUIRED, name: ["7", element]})


def test_ids_may_be_whole_numbers_and_lazy() -> None:
    request = WhitelistRequest(**REQUIRED, linked_wallet_ids=(each for each in [12, "0x7", 2**63 - 1]))  # type: ignore[arg-type]
    assert request.linked_wallet_ids == ["12", "0x7", "9223372036854775807"]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner), st.sets(st.text()), st.tuples(inner)),
    max_leaves=5,
)


@given(st.sampled_from(list(WhitelistRequest.model_fields)), JSON)
def test_any_value_is_carried_as_it_is_or_refused(name: str, value: Any) -> None:
    wire_name = WhitelistRequest.model_fields[name].alias
    assert wire_name is not None
    try:
        wire = WhitelistRequest(**{"label": "l", "address": "a", "currency": "b", name: value}).to_wire()
    except CustodyRequestError:
        return
    if value is None:
        assert wire_name not in wire
    elif isinstance(value, (list, tuple)):
        assert wire[wire_name] == [str(each) for each in value]
        assert all(type(each) in (str, int) for each in value)
    else:
        assert wire[wire_name] == str(value)
        assert type(value) is str or (type(value) is int and name == "exchange_account_id")


@given(JSON)
def test_any_value_is_an_id_or_refused(value: Any) -> None:
    try:
        number = check_request_id(value)
    except CustodyRequestError:
        return
    assert number == str(value)
    assert type(value) in (str, int)
    assert 0 <= int(number) < 2**63


@given(JSON)
def test_any_value_is_a_batch_of_ids_or_refused(value: Any) -> None:
    try:
        ids = check_request_ids(value)
    except CustodyRequestError:
        return
    given_ids = [value] if isinstance(value, (str, int)) else list(value)
    assert sorted(map(str, given_ids)) == sorted(ids)


@pytest.mark.parametrize(
    "bad", [1.0, -1, "-1", "+1", "1_0", "٣", "²", "1.0", "9" * 20, str(2**63), 2**63, True, None, [1]]
)
def test_what_is_no_id_is_refused(bad: Any) -> None:
    with pytest.raises(CustodyRequestError, match="whole number"):
        check_request_id(bad)
    with pytest.raises(CustodyRequestError, match=r"request_ids\[1\] must be a whole number"):
        check_request_ids(["1", bad])


@pytest.mark.parametrize(
    "bad",
    [None, 1.5, float("nan"), {}, {"1": 1}, b"12", True, object(), [], (), [[1]], "", 10**5000],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_batch_is_refused(bad: Any) -> None:
    with pytest.raises(CustodyRequestError):
        check_request_ids(bad)


@given(JSON)
def test_any_value_is_a_list_of_ids_or_refused(value: Any) -> None:
    try:
        ids = check_request_ids(value, "request_id", limit=None, merge=True, may_be_empty=True)
    except CustodyRequestError:
        return
    given_ids = [value] if isinstance(value, (str, int)) else list(value)
    assert set(map(str, given_ids)) == set(ids)
    assert sorted(set(ids), key=int) == ids or len(set(map(int, ids))) < len(ids)


def test_what_is_repeated_is_refused_or_merged() -> None:
    with pytest.raises(CustodyRequestError, match=r"^request_ids: the id 7, 9 is repeated; nothing was sent "):
        check_request_ids(["9", "7", "12", 7, 9, 7], "request_ids")
    assert check_request_ids(["12", "7", 12, 7], merge=True) == ["7", "12"]


def test_there_may_be_none_where_that_means_something() -> None:
    with pytest.raises(CustodyRequestError, match="request_id is an empty list"):
        check_request_ids([], "request_id")
    assert check_request_ids((), may_be_empty=True) == []
    odd: list[Any] = [None, "", {}]
    for bad in odd:
        with pytest.raises(CustodyRequestError):
            check_request_ids(bad, may_be_empty=True)


class LazySequence(Sequence[Any]):
    """A list that fetches what it is asked for, as Airflow's of a mapped task."""

    def __init__(self, items: list[str]) -> None:
        self._items = items
        self.fetched = 0

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, key: Any) -> Any:
        self.fetched += 1
        return self._items[key]


def test_a_lazy_list_is_fetched_at_once() -> None:
    lazy = LazySequence([str(each) for each in range(5000)])
    assert check_request_ids(lazy, limit=None) == list(lazy._items)
    assert lazy.fetched == 1


def test_a_batch_of_one_is_not_a_list_of_digits() -> None:
    assert check_request_ids("3711") == check_request_ids(3711) == ["3711"]
    assert check_request_ids({"12", 7}) == ["7", "12"]


@pytest.mark.parametrize("name", ["label", "address"])
def test_a_required_field_that_is_none_is_missing(name: str) -> None:
    fields: dict[str, Any] = {"label": "l", "address": "a", "blockchain": "ETH", name: None}
    with pytest.raises(CustodyRequestError, match=f"{name} is missing"):
        WhitelistRequest(**fields)


# --- envelopes ---------------------------------------------------------------------------------------------

DATE = "2026-01-02T03:04:05Z"
LATER = "2026-01-03T03:04:05.000000001Z"
ZERO = "0001-01-01T00:00:00Z"


def trail(date: Any, user: str = "7") -> dict[str, Any]:
    return {"userId": user, "externalUserId": f"{user}@example.test", "date": date}


@pytest.mark.parametrize(
    ("trails", "date", "user"),
    [
        ([trail(DATE)], DATE, "7"),
        ([trail(LATER, "8"), trail(DATE)], DATE, "7"),
        ([], None, None),
        (None, None, None),
        # A date that no request can have is not known, and so the first entry is not, either.
        ([trail(ZERO)], None, "7"),
        ([trail("2008-12-31T23:59:59Z")], None, "7"),
        ([trail(None)], None, "7"),
        ([trail("yesterday")], None, "7"),
        ([trail(ZERO), trail(DATE, "8")], None, None),
        ([trail(DATE, "8"), trail("")], None, None),
        ([trail(DATE), trail(DATE, "8")], DATE, None),
        ([{"date": DATE}], DATE, None),
    ],
)
def test_who_created_a_request_and_when(trails: Any, date: str | None, user: str | None) -> None:
    envelope = WhitelistEnvelope({"id": "1", "trails": trails})
    assert envelope.created_at == parse_timestamp(date)
    assert envelope.created_by == (frozenset() if user is None else {user, f"{user}@example.test"})


def test_the_service_shows_who_created_a_request(sandbox: Sandbox) -> None:
    request = WhitelistRequest(label="L", address="0x" + "a" * 40, blockchain="ETH", visibility_group_id="12")
    with CustodyClient(sandbox.url, sandbox.token) as client:
        envelope = client.get_whitelist_request(client.create_whitelist_request(request))
        me = client.get_current_user()
    assert envelope.created_by == {me["id"], me["externalUserId"]}
    assert (envelope.visibility_group_id, envelope.tenant_id, envelope.action) == ("12", me["tenantId"], "create")
    assert (envelope.blockchain, envelope.network, envelope.signings) == ("ETH", None, ())


def test_a_signature_without_a_user_is_nobodys() -> None:
    hashes = ["ab", "cd"]
    wire: Any = {
        "signatures": [{"hashes": hashes}, {"signature": {"userId": "a", "signature": "s"}}, {"signature": None}]
    }
    envelope = WhitelistEnvelope({"id": "1", "signedAddress": wire})
    assert envelope.signings == (Signing("", "", ("ab", "cd")), Signing("a", "s", ()), Signing("", "", ()))
    assert envelope.signed_by == {"a"}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"A":2}',
        '{"x":[{"a":1,"A":2}]}',
        '{"Address":"x"}',
        '{"x":{"LABEL":"x"}}',
        '{"networ\u212a":"x"}',
        '{"addre\u017fs":"x"}',
        '{"memo":NaN}',
        '{"memo":-Infinity}',
        '{"memo":"\ud800"}',
    ],
)
def test_a_payload_that_can_be_read_in_two_ways_is_refused(text: str) -> None:
    hash_ = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    with pytest.raises(CustodyResponseError, match="cannot be verified"):
        WhitelistEnvelope({"id": "1", "metadata": {"payloadAsString": text, "hash": hash_}}).payload()


def test_only_a_label_may_have_an_emoji_that_says_so() -> None:
    fields: dict[str, Any] = {"label": "I ❤️ it", "address": "0x" + "a" * 40, "blockchain": "ETH"}
    assert WhitelistRequest(**fields).label == "I ❤️ it"
    assert WhitelistRequest(**fields | {"label": "Fast ⚡️ ⭐️"}).label == "Fast ⚡️ ⭐️"
    for each in ("1\ufe0f\u20e3", "❤\ufe0f\u200d🔥"):
        with pytest.raises(CustodyRequestError, match="emoji that are joined of several and keycaps do: use one that"):
            WhitelistRequest(**fields | {"label": each})
    hidden = "contains a control or invisible character"
    for name in ("address", "blockchain", "memo", "network", "customer_id", "label"):
        with pytest.raises(CustodyRequestError, match=f"{name} {hidden}"):
            WhitelistRequest(**fields | {name: "12+\ufe0f34"})
        if name != "label":
            with pytest.raises(CustodyRequestError, match=f"{name} {hidden}"):
                WhitelistRequest(**fields | {name: "❤\ufe0f"})
