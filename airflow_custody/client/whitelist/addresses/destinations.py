"""
Destinations: the keys for matching rows of a file with requests.

A destination consists of chain, network, address and memo. Addresses are compared in canonical form. The tag in an
X-address of the XRP Ledger counts as the memo, and a missing memo as an empty memo. A missing network matches any
network, except on ``ETH``. An unknown name of a chain or network may mean any chain or network, and unreadable values
may be anything. Nothing else is guessed.

The vendor's documentation names Polygon, and other chains with Ethereum's form of addresses, in two ways: as a chain,
and as a network of ``ETH``. So an address on the chain Polygon, and the same address on the network Polygon of ``ETH``,
may be one destination. Therefore, on ``ETH``, a row without a network never matches a request on a network other than
the main one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.addresses.checks import (
    CHAIN_NAMES,
    ETH,
    EVM_CHAINS,
    are_two_networks,
    canonical_place,
    chain_name,
    network_name,
    read_evm_network,
)

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

Entry = TypeVar("Entry")
#: The name of a chain, the name of a network (empty: the name of the chain itself is meant), an address in lower case,
#: and a memo.
Names = tuple[str, str, str, str]


class Destination(NamedTuple):
    """
    The key by which rows and requests are matched.

    :param chain: the canonical name of the chain.
    :param network: the canonical name of the network; empty: no network is named.
    :param address: the address in its canonical form.
    :param is_case_known: whether another canonical address that differs only in case is certainly a different address.
        False: this is unknown.
    :param memo: the memo; empty if there is none.
    """

    chain: str
    network: str
    address: str
    is_case_known: bool
    memo: str


# Cached, because the destination of a row is needed many times, from reading its file to comparing the last request.
@lru_cache(maxsize=4096)
def destination(chain: str, network: str | None, address: str, memo: str | None) -> Destination:
    """Return the key of a destination, which is the same for all spellings of it."""
    chain = chain_name(chain)
    place = canonical_place(address, memo, chain, network)
    name = network_name(network, chain) if network else ""
    return Destination(chain, name, place.address, place.is_case_known, place.memo)


def destination_of(request: WhitelistRequest) -> Destination:
    """Return the requested destination."""
    return destination(request.chain, request.network, request.address, request.memo)


def read_destination(envelope: WhitelistEnvelope, payload: Mapping[str, Any]) -> Destination:
    """
    Return the destination of a request at the service.

    :param envelope: the request; its network is used if the payload has no network.
    :param payload: the request's payload.
    :raises RefusalError: if the payload does not contain a readable destination.
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
            raise RefusalError(f"its payload has no readable {name}")
    return destination(**shown)


class Destinations(Generic[Entry]):
    """
    An index of rows or requests by their destination.

    :param known: names of chains and networks that the rows of a file use, so that they are not treated as unknown; see
        :func:`names_in`. Default: none.
    """

    def __init__(self, known: Collection[Names] = ()) -> None:
        self._known = frozenset(known)
        # Keyed by address (in lower case) and memo, which all spellings of a destination share.
        self._found: dict[tuple[str, str], list[tuple[Destination, Entry]]] = {}
        #: Unreadable entries, which may be for any destination.
        self.unreadable: list[Entry] = []

    def add(self, destination: Destination, entry: Entry) -> Entry | None:
        """Add an entry, and return the first earlier entry for an equal destination; None if there is none."""
        group = self._found.setdefault((destination.address.casefold(), destination.memo), [])
        earlier = next((other for each, other in group if each == destination), None)
        group.append((destination, entry))
        return earlier

    def same(self, destination: Destination) -> list[Entry]:
        """Return the entries for a destination; see :func:`is_same`."""
        group = self._found.get((destination.address.casefold(), destination.memo), ())
        return [entry for each, entry in group if is_same(each, destination)]

    def may_be(self, destination: Destination, request: WhitelistRequest) -> list[Entry]:
        """
        Return the entries that are possibly, but not certainly, for a destination.

        These are the entries whose address differs only in case, if this may be the same address; the entries with this
        address and memo, but with an unknown or different name of the chain, with an unknown name of the network, or,
        on ``ETH``, with a network where the destination has none, or the reverse; and the unreadable entries.

        :param destination: the destination.
        :param request: the request with this destination as it was given. Its address and memo are also searched for as
            they were given, because an entry whose chain is unknown keeps them unchanged.
        """
        asked = (request.address.casefold(), request.memo or "")
        keys = {asked, (destination.address.casefold(), destination.memo)}
        groups = [self._found.get(key, ()) for key in sorted(keys)]
        found = [entry for group in groups for each, entry in group if self._may_be(each, destination)]
        return [*found, *self.unreadable]

    def _may_be(self, each: Destination, destination: Destination) -> bool:
        # If the rows of a file use both names for the same address, the names stand for different networks.
        are_names_known = {_names(each)[1], _names(destination)[1]} <= self._known
        if each.chain != destination.chain:
            is_unknown = each.chain not in CHAIN_NAMES and _names(each)[0] not in self._known
            return is_unknown or _may_be_one_chain(each, destination, are_names_known=are_names_known)
        is_other_text = each.address != destination.address
        if is_other_text and destination.is_case_known:
            return False
        if _is_same_network(each, destination):
            return is_other_text
        if not each.network or not destination.network:
            return True
        return not are_names_known and not are_two_networks(each.network, destination.network, each.chain)


def names_in(destinations: Iterable[Destination]) -> frozenset[Names]:
    """Return all names of chains and networks in destinations, each with the address and memo that it is used for."""
    return frozenset(name for each in destinations for name in _names(each))


def _names(destination: Destination) -> tuple[Names, Names]:
    """Return the names of a destination's chain and network, each with its address and memo."""
    place = destination.address.casefold(), destination.memo
    return (destination.chain, "", *place), (destination.chain, destination.network, *place)


def _is_same_network(shown: Destination, asked: Destination) -> bool:
    if asked.chain == ETH:
        # The network may name another chain, so a missing network does not match every network. For a row without a
        # network, the service uses the main network.
        return shown.network == asked.network or (not asked.network and shown.network == "mainnet")
    return shown.network == asked.network or not shown.network or not asked.network


def _may_be_one_chain(shown: Destination, asked: Destination, *, are_names_known: bool) -> bool:
    """
    Tell whether two destinations may be on the same chain, which one names as the chain, and the other as a network of
    ``ETH``.

    :param shown: the destination of a request, or of another row.
    :param asked: the destination of a row.
    :param are_names_known: whether the rows of the file use both names for this address.
    """
    on_eth, other = (shown, asked) if shown.chain == ETH else (asked, shown)
    if on_eth.chain != ETH or other.chain not in EVM_CHAINS:
        return False
    if not on_eth.network:
        # For a row without a network, the service uses Ethereum's own main network. A request without a network may be
        # on any network, because some services do not return it.
        return on_eth is shown and not are_names_known
    meant = read_evm_network(on_eth.network)
    if meant is None:
        return not are_names_known
    chain, network = meant
    return chain == other.chain and not (other.network and are_two_networks(network, other.network, chain))


def is_same(shown: Destination, asked: Destination) -> bool:
    """
    Tell whether a request is for the destination of a row.

    A missing network matches any network. On ``ETH``, however, a row without a network only matches requests on the
    main network or without a network, and a row with a network only matches that network.

    :param shown: the destination of the request, or of another row.
    :param asked: the destination of the row.
    """
    return shown.chain == asked.chain and shown.address == asked.address and _is_same_network(shown, asked)


def is_network_certain(asked: Destination, shown: Destination) -> bool:
    """
    Tell whether a request is certainly on the requested network. Call this only for destinations that match.

    If no network was requested, the request must be on the main network, or also have no network.
    """
    return shown.network in (asked.network, "mainnet")


def find_candidates(index: Destinations[Entry], request: WhitelistRequest) -> list[Entry]:
    """
    Return the entries that are, or may be, for the requested destination.

    :param index: the index.
    :param request: the request.
    :return: the results of :meth:`Destinations.same` and :meth:`Destinations.may_be`.
    """
    wanted = destination_of(request)
    return [*index.same(wanted), *index.may_be(wanted, request)]
