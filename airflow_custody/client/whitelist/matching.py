"""
Matching of rows of a whitelist file with requests at the service, by one key: chain, network, address, memo.

The address counts in its canonical form, no memo is the empty memo, and a network that one side does not name matches
any. An unknown name of a chain or network may mean any, and what cannot be read may be anything. Nothing else is
guessed. Pure functions, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.whitelist.addresses import (
    CHAIN_NAMES,
    are_two_networks,
    canonical_address,
    chain_name,
    network_name,
)
from airflow_custody.client.whitelist.review import ENVELOPE_ACTION, PAYLOAD_KEYS, Comparison, compare

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

Place = TypeVar("Place")
#: A chain, and the name of one of its networks, or the empty text for the chain as a whole; and the address, without
#: case, and the memo that they are used for.
Names = tuple[str, str, str, str]

_KEYS = {key.field: name for name, key in PAYLOAD_KEYS.items() if key.field}
_MAX_SHOWN = 1_000


# --- the key -----------------------------------------------------------------------------------------------


class Destination(NamedTuple):
    """
    The key by which rows and requests are matched.

    :param chain: the chain, by one name for all of its names.
    :param network: the network, by one name for all of its names; empty: not named, so any.
    :param address: the address in its canonical form.
    :param is_case_known: whether an address that differs only in case is another one.
    :param memo: the memo; empty for none.
    """

    chain: str
    network: str
    address: str
    is_case_known: bool
    memo: str


def destination(chain: str, network: str | None, address: str, memo: str | None) -> Destination:
    """Return the key of a destination, however it is spelled."""
    chain = chain_name(chain)
    address, is_case_known = canonical_address(address, chain)
    return Destination(chain, network_name(network, chain) if network else "", address, is_case_known, memo or "")


def destination_of(request: WhitelistRequest) -> Destination:
    """Return the destination that is asked for."""
    return destination(request.chain, request.network, request.address, request.memo)


def read_destination(envelope: WhitelistEnvelope, payload: Mapping[str, Any]) -> Destination:
    """
    Return the destination of a request at the service.

    :param envelope: the request, whose network counts if the payload has none.
    :param payload: its payload.
    :raises CustodyResponseError: if the payload does not show it.
    """
    memo = payload.get("memo")
    shown: dict[str, Any] = {
        "chain": payload.get("currency"),
        "network": payload.get("network") or envelope.network or "",
        "address": payload.get("address"),
        "memo": "" if memo is None else memo,
    }
    for name, value in shown.items():
        if not isinstance(value, str) or (name in ("chain", "address") and not value.strip()):
            raise CustodyResponseError(
                f"whitelisting request {sanitize(envelope.id, 40)} has no {name} in its payload that can be read",
                code="request-differs",
            )
    return destination(**shown)


class Destinations(Generic[Place]):
    """
    An index by destination: of rows of a file, or of requests at the service.

    :param known: the names that are known beside those of the table: see :func:`names_in`. Default: none.
    """

    def __init__(self, known: Collection[Names] = ()) -> None:
        self._known = frozenset(known)
        # By what all texts have in common that may be the same.
        self._found: dict[tuple[str, str], list[tuple[Destination, Place]]] = {}
        #: What cannot be read, and may be for any destination.
        self.unreadable: list[Place] = []

    def add(self, destination: Destination, place: Place) -> Place:
        """Add a destination, and what is there; return what was there first, with the network named alike."""
        group = self._found.setdefault((destination.address.casefold(), destination.memo), [])
        group.append((destination, place))
        return next(other for each, other in group if each == destination)

    def same(self, destination: Destination) -> list[Place]:
        """Return what is there for a destination. A network that one side does not name matches any."""
        group = self._found.get((destination.address.casefold(), destination.memo), ())
        return [place for each, place in group if is_same(each, destination)]

    def may_be(self, destination: Destination, address: str) -> list[Place]:
        """
        Return what is not the same for certain, and may be all the same.

        :param destination: the destination.
        :param address: its address as it was given, which is the same text there but for its case.
        :return: what differs only in the case of the address, where that may be the same; what has the address and memo
            under a name of a chain or network that is not known; and what cannot be read.
        """
        texts = {address.casefold(), destination.address.casefold()}
        groups = [self._found.get((text, destination.memo), ()) for text in sorted(texts)]
        found = [place for group in groups for each, place in group if self._may_be(each, destination)]
        return [*found, *self.unreadable]

    def _may_be(self, each: Destination, destination: Destination) -> bool:
        if each.chain != destination.chain:
            return each.chain not in CHAIN_NAMES and _names(each)[0] not in self._known
        is_other_text = each.address != destination.address
        if is_other_text and destination.is_case_known:
            return False
        if _may_share(each, destination):
            return is_other_text
        # Rows for one address that name two networks mean two networks.
        if {_names(each)[1], _names(destination)[1]} <= self._known:
            return False
        return not are_two_networks(each.network, destination.network, each.chain)


def names_in(destinations: Iterable[Destination]) -> frozenset[Names]:
    """Return the names of chains and networks that are used for each address: each means another chain or network."""
    return frozenset(name for each in destinations for name in _names(each))


def _names(destination: Destination) -> tuple[Names, Names]:
    """Return the names of the chain and of the network, each with the address and memo that it is used for."""
    place = destination.address.casefold(), destination.memo
    return (destination.chain, "", *place), (destination.chain, destination.network, *place)


def _may_share(one: Destination, other: Destination) -> bool:
    """Tell whether two destinations may be on one network."""
    return one.network == other.network or not one.network or not other.network


def is_same(one: Destination, other: Destination) -> bool:
    """Tell whether two destinations are the same. A network that one side does not name matches any."""
    return one.chain == other.chain and one.address == other.address and _may_share(one, other)


def is_network_certain(asked: Destination, shown: Destination) -> bool:
    """Tell whether a request with the same key is certainly on the requested network; not named, that is the main."""
    return shown.network in (asked.network, "mainnet")


class RequestsByDestination:
    """
    Requests at the service, to find those that may be what was asked for.

    :param envelopes: the requests.
    :param known: the names that are known beside those of the table: see :func:`names_in`.
    """

    def __init__(self, envelopes: Iterable[WhitelistEnvelope], known: Collection[Names] = ()) -> None:
        self._index: Destinations[WhitelistEnvelope] = Destinations(known)
        for each in envelopes:
            try:
                self._index.add(read_destination(each, each.payload()), each)
            except CustodyResponseError:
                self._index.unreadable.append(each)

    def candidates(self, request: WhitelistRequest) -> list[WhitelistEnvelope]:
        """
        Return the requests that may be what was asked for.

        :param request: the request that was asked for.
        :return: those with its chain, network, address in canonical form, and memo, where a network that one side does
            not name matches any; and those that :meth:`Destinations.may_be` finds.
        """
        wanted = destination_of(request)
        return [*self._index.same(wanted), *self._index.may_be(wanted, request.address)]


def find_duplicates(requests: Iterable[tuple[str, Destination]]) -> list[tuple[str, ...]]:
    """
    Return the ids of the requests for one destination, in groups. A network that one does not name matches any.

    :param requests: the ids of requests in effect, each with what :func:`read_destination` returns.
    :return: the groups of more than one, each in the order of the requests.
    """
    found = [*requests]
    index: Destinations[str] = Destinations()
    for identifier, where in found:
        index.add(where, identifier)
    groups = {group: frozenset(group) for _, where in found if len(group := tuple(index.same(where))) > 1}
    # Of a group that is part of another one, the other one tells.
    return [group for group, ids in groups.items() if not any(ids < other for other in groups.values())]


# --- the other fields --------------------------------------------------------------------------------------


def compare_spelled(request: WhitelistRequest, payload: Mapping[str, Any], network: str | None) -> Comparison:
    """
    Compare a row with a payload; chain, network and address in another spelling are the same.

    :param request: the row's request.
    :param payload: the payload.
    :param network: the network that the envelope gives.
    """
    ours = {key: asked for key, asked, _ in _respelled(request, payload, network)}
    if "network" in ours and not payload.get("network"):
        network = ours.pop("network")
    if isinstance(number := payload.get("exchangeAccountId"), int) and not isinstance(number, bool):
        ours["exchangeAccountId"] = str(number)
    return compare(request, {**payload, **ours} if ours else payload, network=network)


def _respelled(
    request: WhitelistRequest, payload: Mapping[str, Any], network: str | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the key of the chain, network and address, where it is the same in another spelling: asked for, shown."""
    chain = chain_name(request.chain)
    for key, asked, shown, canonical in (
        ("currency", request.chain, payload.get("currency"), lambda text: chain_name(text)),
        ("network", request.network, payload.get("network") or network, lambda text: network_name(text, chain)),
        ("address", request.address, payload.get("address"), lambda text: canonical_address(text, chain)),
    ):
        if asked and isinstance(shown, str) and shown != asked and canonical(shown) == canonical(asked):
            yield key, asked, shown


def spelled_as(request: WhitelistRequest, envelope: WhitelistEnvelope) -> WhitelistRequest:
    """
    Return a request in the spelling of one at the service, which a review before signing compares strictly.

    :param request: the request that was asked for.
    :param envelope: one at the service with the same content.
    """
    changes = {key: shown for key, _, shown in _respelled(request, envelope.payload(), envelope.network)}
    if chain := changes.pop("currency", None):
        changes |= {name: chain for name in ("blockchain", "currency") if getattr(request, name)}
    return request.model_copy(update=changes)


def differing(comparison: Comparison, payload: Mapping[str, Any], accepted: Collection[str]) -> list[str]:
    """
    Return the fields in which a request is not what was asked for.

    :param comparison: the result of :func:`compare_spelled`.
    :param payload: the payload.
    :param accepted: keys that nobody asked for, and that may have a value all the same. Known keys that the service
        fills in by itself (of networks, only the main one), and keys without a value, are always accepted.
    """
    return [
        each.name
        for each in comparison.findings
        if each.fault
        and not (each.unasked and each.key in accepted)
        and not (each.unasked and each.by_service)
        and not (each.unasked and each.key not in PAYLOAD_KEYS and payload.get(each.key, 0) in (None, "", [], {}))
    ]


def differing_fields(
    request: WhitelistRequest, envelope: WhitelistEnvelope, accepted: Collection[str] = ()
) -> list[str]:
    """
    Return in which fields a request at the service is not what was asked for; unknown keys aside.

    :param request: the request that was asked for.
    :param envelope: the request at the service.
    :param accepted: keys that may have a value although the request does not ask for one. Default: none.
    :return: the fields; empty: it is what was asked for.
    :raises CustodyResponseError: if its payload cannot be read.
    """
    payload = envelope.payload()
    comparison = compare_spelled(request, payload, envelope.network)
    unknown = [each for each in comparison.unaccounted if each not in PAYLOAD_KEYS]
    return differing(comparison, payload, [*accepted, *unknown])


def shown_values(envelope: WhitelistEnvelope, payload: Mapping[str, Any], fields: Iterable[str]) -> dict[str, str]:
    """Return what the service has in these fields, as text."""
    values = {
        **{name: payload.get(key) for name, key in _KEYS.items()},
        "network": payload.get("network") or envelope.network,
        "status": envelope.status,
        ENVELOPE_ACTION: envelope.action,
    }
    names = [each for each in fields if each in values or (each != "envelope" and "." not in each)]
    return {name: _text(values[name] if name in values else payload.get(name)) for name in names}


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        value = ", ".join(str(each.get("id")) for each in value)
    if not isinstance(value, str):
        value = "" if value is None else json.dumps(value)
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}… ({count(len(value), 'character')})"
