"""
Matching of rows of a whitelist file with requests at the service, by one key: chain, network, address, memo.

The address counts in its canonical form, no memo is the empty memo, and a network that one side does not name matches
any. A name of a chain or a network that nobody knows may mean any, and what cannot be read may be whatever it does not
deny. Nothing else is guessed. Pure functions, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.text import count, sanitize
from airflow_custody.client.whitelist.addresses import CHAIN_NAMES, canonical_address, chain_name, network_name
from airflow_custody.client.whitelist.review import ENVELOPE_ACTION, PAYLOAD_KEYS, Comparison, compare

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

Place = TypeVar("Place")
#: A chain, and the name of one of its networks; or the empty text for the chain as a whole.
Names = tuple[str, str]

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
    network = payload.get("network") or envelope.network
    chain, address, memo = payload.get("currency"), payload.get("address"), payload.get("memo")
    for name, value in (("address", address), ("chain", chain)):
        if not is_text(value):
            raise CustodyResponseError(
                f"whitelisting request {sanitize(envelope.id, 40)} has no {name} in its payload", code="request-differs"
            )
    for name, value in (("memo", memo), ("network", network)):
        if not isinstance(value, (str, type(None))):
            raise CustodyResponseError(
                f"whitelisting request {sanitize(envelope.id, 40)} has a {name} that is no text", code="request-differs"
            )
    return destination(str(chain), network, str(address), memo)


class Destinations(Generic[Place]):
    """An index by destination: of rows of a file, or of requests at the service."""

    def __init__(self) -> None:
        # By what all texts have in common that may be the same.
        self._found: dict[tuple[str, str, str], list[tuple[Destination, Place]]] = {}
        # What cannot be read, by what it shows of chain and address: empty for nothing.
        self._unreadable: dict[tuple[str, str], list[Place]] = {}
        # The chains that the table lacks.
        self._other_chains: set[str] = set()

    def add(self, destination: Destination, place: Place) -> Place:
        """Add a destination, and what is there; return what was there first, with the network named alike."""
        self._note_chain(destination.chain)
        group = self._found.setdefault(_loose(destination), [])
        group.append((destination, place))
        return next(other for each, other in group if each == destination)

    def same(self, destination: Destination) -> list[Place]:
        """Return what is there for a destination. A network that one side does not name matches any."""
        group = self._found.get(_loose(destination), ())
        return [place for each, place in group if each.address == destination.address and _may_share(each, destination)]

    def in_another_case(self, destination: Destination) -> list[Place]:
        """Return what may be there for a destination: its address differs only in case, and may be the same."""
        group = () if destination.is_case_known else self._found.get(_loose(destination), ())
        return [place for each, place in group if each.address != destination.address and _may_share(each, destination)]

    def under_unknown_name(self, destination: Destination, address: str, known: Collection[Names]) -> list[Place]:
        """
        Return what may be there for a destination, under a name of its chain or network that nobody knows.

        :param destination: the destination.
        :param address: its address as it was given, which is the same text there but for its case.
        :param known: the names that are known beside those of the table: see :func:`names_in`.
        """
        if not self._found:
            return []
        group = self._found.get(_loose(destination), ())
        found = [place for each, place in group if not _may_share(each, destination) and not is_known(each, known)]
        for chain in self._unknown_chains(known):
            for text in {address.casefold(), destination.address.casefold()}:
                found += [place for _, place in self._found.get((chain, text, destination.memo), ())]
        return found

    def _note_chain(self, chain: str) -> None:
        if chain and chain not in CHAIN_NAMES:
            self._other_chains.add(chain)

    def _unknown_chains(self, known: Collection[Names]) -> list[str]:
        return [each for each in self._other_chains if (each, "") not in known]

    def add_unreadable(self, envelope: WhitelistEnvelope, place: Place) -> None:
        """Add a request that cannot be read: what it shows all the same says what it may be."""

        def all_values(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
            # A key may be there twice, or in another case, and either may be what counts.
            found: dict[str, list[Any]] = {}
            for key, value in pairs:
                found.setdefault(key.casefold(), []).append(value)
            return found

        text = (envelope.wire.get("metadata") or {}).get("payloadAsString") or ""
        try:
            shown = json.loads(text, object_pairs_hook=all_values)
        except (ValueError, RecursionError):
            shown = None
        shown = shown if isinstance(shown, dict) else {}
        chains = [chain_name(each) for each in (*shown.get("currency", ()), envelope.blockchain) if is_text(each)]
        addresses = shown.get("address", [])
        if not all(map(is_text, addresses)):
            addresses = []
        for chain in set(chains) or {""}:
            self._note_chain(chain)
            for address in {canonical_address(each, chain)[0].casefold() for each in addresses} or {""}:
                self._unreadable.setdefault((chain, address), []).append(place)

    def unreadable(self, destination: Destination, known: Collection[Names]) -> list[Place]:
        """Return what cannot be read, and may be for a destination; names are ``known`` as above."""
        if not self._unreadable:
            return []
        chains = (destination.chain, "", *self._unknown_chains(known))
        keys = [(chain, address) for chain in chains for address in (destination.address.casefold(), "")]
        return [place for key in keys for place in self._unreadable.get(key, ())]


def names_in(destinations: Iterable[Destination]) -> frozenset[Names]:
    """Return the chains, with the empty text, and the networks of destinations: what is meant by them is known."""
    return frozenset((each.chain, network) for each in destinations for network in ("", each.network))


def is_known(destination: Destination, known: Collection[Names]) -> bool:
    """Tell whether the names of a destination's chain and network are known: from the table, or from ``known``."""
    chain, network = destination.chain, destination.network
    if chain not in CHAIN_NAMES and (chain, "") not in known:
        return False
    return network in ("", "mainnet") or (chain, network) in known


def _may_share(one: Destination, other: Destination) -> bool:
    """Tell whether two destinations may be on one network."""
    return one.network == other.network or not one.network or not other.network


def is_text(value: object) -> bool:
    """Tell whether a value is a text, and not a blank one."""
    return isinstance(value, str) and bool(value.strip())


def _loose(destination: Destination) -> tuple[str, str, str]:
    return destination.chain, destination.address.casefold(), destination.memo


class RequestsByDestination:
    """
    Requests at the service, to find those that may be what was asked for.

    :param envelopes: the requests.
    :param known: the names that are known beside those of the table and of what is asked for: see :func:`names_in`.
    """

    def __init__(self, envelopes: Iterable[WhitelistEnvelope], known: Collection[Names] = ()) -> None:
        self._index: Destinations[WhitelistEnvelope] = Destinations()
        self._known = frozenset(known)
        for each in envelopes:
            try:
                self._index.add(read_destination(each, each.payload()), each)
            except CustodyResponseError:
                self._index.add_unreadable(each, each)

    def candidates(self, request: WhitelistRequest) -> list[WhitelistEnvelope]:
        """
        Return the requests that may be what was asked for.

        :param request: the request that was asked for.
        :return: those with its chain, network, address in canonical form, and memo, where a network that one side does
            not name matches any; those whose address differs only in case, on a chain where that may be the same; those
            with its address and memo whose chain or network has a name that is not known; and those that cannot be
            read, unless what they show says that they are for something else.
        """
        wanted = destination_of(request)
        known = self._known | names_in([wanted])
        return [
            *self._index.same(wanted),
            *self._index.in_another_case(wanted),
            *self._index.under_unknown_name(wanted, request.address, known),
            *self._index.unreadable(wanted, known),
        ]


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
        fills in by itself, and keys without a value, are always accepted.
    """
    return [
        each.name
        for each in comparison.findings
        if each.fault
        and not (each.unasked and each.key in accepted)
        and not (each.unasked and each.key in PAYLOAD_KEYS and PAYLOAD_KEYS[each.key].by_service)
        and not (each.unasked and each.key not in PAYLOAD_KEYS and _is_empty(payload, each.key))
    ]


def _is_empty(payload: Mapping[str, Any], key: str) -> bool:
    """Tell whether a key that is not known, of a payload or of its links, has no value."""
    name, is_link, rest = key.partition(".")
    links = payload.get(name) if is_link else None
    values = [each.get(rest, 0) for each in links if rest in each or "'" in rest] if links else [payload.get(key, 0)]
    return all(each in (None, "", [], {}) for each in values)


def differing_fields(request: WhitelistRequest, envelope: WhitelistEnvelope) -> list[str]:
    """
    Return in which fields a request at the service is not what was asked for; keys that are not known aside.

    :param request: the request that was asked for.
    :param envelope: the request at the service.
    :return: the fields; empty: it is what was asked for.
    :raises CustodyResponseError: if its payload cannot be read.
    """
    payload = envelope.payload()
    comparison = compare_spelled(request, payload, envelope.network)
    return differing(comparison, payload, [each for each in comparison.unaccounted if each not in PAYLOAD_KEYS])


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
