"""Compare requested contents with requests at the service. No I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.text import count
from airflow_custody.client.whitelist.addresses.checks import canonical_place, chain_name, network_name
from airflow_custody.client.whitelist.addresses.destinations import Destinations, Names
from airflow_custody.client.whitelist.comparison import ENVELOPE_ACTION, PAYLOAD_KEYS, Comparison, compare
from airflow_custody.client.whitelist.request import Request

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

_KEYS = {key.field: name for name, key in PAYLOAD_KEYS.items() if key.field}
_MAX_SHOWN = 1_000


# --- by destination ----------------------------------------------------------------------------------------


def index_requests(requests: Iterable[Request], known: Collection[Names] = ()) -> Destinations[Request]:
    """
    Return an index of requests by their destinations.

    :param requests: the requests.
    :param known: additional known names of chains and networks; see :func:`names_in`. Default: none.
    """
    index: Destinations[Request] = Destinations(known)
    for each in requests:
        if each.destination is None:
            index.unreadable.append(each)
        else:
            index.add(each.destination, each)
    return index


def find_duplicates(requests: Iterable[Request]) -> list[tuple[str, ...]]:
    """
    Return groups of requests for the same destination, by id.

    A request without a network matches any network.

    :param requests: requests in effect. Unreadable requests are left out.
    :return: the groups of at least two ids, each in the order of the requests.
    """
    readable = [each for each in requests if each.destination is not None]
    index = index_requests(readable)
    groups: dict[tuple[str, ...], frozenset[str]] = {}
    for each in readable:
        ids = tuple(other.id for other in index.same(each.destination))  # type: ignore[arg-type]
        if len(ids) > 1:
            groups[ids] = frozenset(ids)
    # Drop groups that are part of a larger one.
    return [ids for ids, group in groups.items() if not any(group < other for other in groups.values())]


# --- the other fields --------------------------------------------------------------------------------------


def compare_spelled(request: WhitelistRequest, payload: Mapping[str, Any], network: str | None) -> Comparison:
    """
    Compare a row with a payload, ignoring differences in spelling.

    Different spellings of the same chain, network or address count as equal.

    :param request: the row's request.
    :param payload: the payload.
    :param network: the envelope's network; None: it has none.
    """
    ours: dict[str, Any] = {key: asked for key, asked, _ in _respelled(request, payload, network)}
    if "network" in ours and not payload.get("network"):
        network = ours.pop("network")
    if isinstance(number := payload.get("exchangeAccountId"), int) and not isinstance(number, bool):
        ours["exchangeAccountId"] = str(number)
    return compare(request, {**payload, **ours}, network=network)


def _respelled(
    request: WhitelistRequest, payload: Mapping[str, Any], network: str | None
) -> Iterator[tuple[str, str | None, str | None]]:
    """
    Yield the keys that differ in spelling only, with both values.

    The keys are chain, network, address and memo. The requested value comes first, then the service's value.
    """
    chain = chain_name(request.chain)
    shown_network: Any = payload.get("network") or network
    currency = payload.get("currency")
    if isinstance(currency, str) and currency != request.chain and chain_name(currency) == chain:
        yield "currency", request.chain, currency
    asked_network = request.network
    if (
        asked_network
        and isinstance(shown_network, str)
        and shown_network != asked_network
        and network_name(shown_network, chain) == network_name(asked_network, chain)
    ):
        yield "network", asked_network, shown_network
    address, memo = payload.get("address"), payload.get("memo")
    if not isinstance(address, str) or not isinstance(memo, (str, type(None))):
        return
    shown_network = shown_network if isinstance(shown_network, str) else None
    # Compare address and memo together, because an X-address contains a tag. If the pairs differ, each address without
    # a memo may still be the same, and then only the memos differ.
    for asked_memo, shown_memo in ((request.memo, memo), (None, None)):
        ours = canonical_place(request.address, asked_memo, chain, request.network)
        theirs = canonical_place(address, shown_memo, chain, shown_network)
        if ours == theirs:
            if address != request.address:
                yield "address", request.address, address
            if (asked_memo or "") != (shown_memo or ""):
                yield "memo", asked_memo, shown_memo
            return


def spelled_as(request: WhitelistRequest, envelope: WhitelistEnvelope) -> WhitelistRequest:
    """
    Return a request in the service's spelling.

    A review before signing needs this, because it compares strictly.

    :param request: the requested content.
    :param envelope: a request at the service with the same content.
    """
    changes: dict[str, Any] = {
        key: shown or None for key, _, shown in _respelled(request, envelope.payload(), envelope.network)
    }
    if chain := changes.pop("currency", None):
        changes |= {name: chain for name in ("blockchain", "currency") if getattr(request, name)}
    return request.model_copy(update=changes)


def differing(comparison: Comparison, payload: Mapping[str, Any], accepted: Collection[str]) -> list[str]:
    """
    Return the differing fields of a comparison.

    :param comparison: the result of :func:`compare_spelled`.
    :param payload: the payload.
    :param accepted: keys that may have a value that was not requested. Keys without a value, and known keys that the
        service fills in itself, are always accepted. A network that was not requested must be the main network.
    """
    return [
        each.name
        for each in comparison.keys
        if each.fault
        and not (each.unasked and each.key in accepted)
        and not (each.unasked and each.by_service)
        and not (each.unasked and each.key not in PAYLOAD_KEYS and payload.get(each.key, 0) in (None, "", [], {}))
    ]


def differing_fields(asked: WhitelistRequest, request: Request, accepted: Collection[str] = ()) -> list[str]:
    """
    Return the fields in which a request differs from the requested content.

    Unknown keys are ignored.

    :param asked: the requested content.
    :param request: the request at the service.
    :param accepted: keys that may have a value that was not requested. Default: none.
    :return: the fields; empty if the request has the requested content.
    """
    network = None if request.envelope is None else request.envelope.network
    comparison = compare_spelled(asked, request.fields, network)
    unknown = [each for each in comparison.unaccounted if each not in PAYLOAD_KEYS]
    return differing(comparison, request.fields, [*accepted, *unknown])


def shown_values(envelope: WhitelistEnvelope, payload: Mapping[str, Any], fields: Iterable[str]) -> dict[str, str]:
    """Return the service's values of these fields, as text."""
    values = {
        **{name: payload.get(key) for name, key in _KEYS.items()},
        "network": payload.get("network") or envelope.network,
        "status": envelope.status,
        ENVELOPE_ACTION: envelope.action,
    }
    names = [each for each in fields if each in values or (each != "envelope" and "." not in each)]
    return {name: _value_text(values[name] if name in values else payload.get(name)) for name in names}


def _value_text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        value = ", ".join(str(each.get("id")) for each in value)
    if not isinstance(value, str):
        value = "" if value is None else json.dumps(value)
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}… ({count(len(value), 'character')})"
