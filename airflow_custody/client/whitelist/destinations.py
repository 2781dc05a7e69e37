"""
Destinations, by which rows of a whitelist file and requests at the service are matched.

A destination is chain, network, address and memo. Addresses are compared in canonical form. A missing memo is an empty
memo. A missing network matches any network. An unknown name of a chain or network may mean any chain or network, and
unreadable values may be anything. Nothing else is guessed. Pure functions, no I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.whitelist.files.addresses import (
    CHAIN_NAMES,
    are_two_networks,
    canonical_address,
    chain_name,
    network_name,
)

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

Place = TypeVar("Place")
#: A chain; one of its networks, or an empty text for the whole chain; and the lower-case address and the memo that they
#: are used with.
Names = tuple[str, str, str, str]


class Destination(NamedTuple):
    """
    The key by which rows and requests are matched.

    :param chain: the canonical name of the chain.
    :param network: the canonical name of the network; empty: any network.
    :param address: the address in its canonical form.
    :param is_case_known: whether an address that differs only in case is a different address.
    :param memo: the memo; empty if there is none.
    """

    chain: str
    network: str
    address: str
    is_case_known: bool
    memo: str


def destination(chain: str, network: str | None, address: str, memo: str | None) -> Destination:
    """Return the key of a destination, which does not depend on its spelling."""
    chain = chain_name(chain)
    address, is_case_known = canonical_address(address, chain)
    return Destination(chain, network_name(network, chain) if network else "", address, is_case_known, memo or "")


def destination_of(request: WhitelistRequest) -> Destination:
    """Return the requested destination."""
    return destination(request.chain, request.network, request.address, request.memo)


def read_destination(envelope: WhitelistEnvelope, payload: Mapping[str, Any]) -> Destination:
    """
    Return the destination of a request at the service.

    :param envelope: the request, whose network counts if the payload has none.
    :param payload: its payload.
    :raises RefusalError: if the payload does not contain it.
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


class Destinations(Generic[Place]):
    """
    An index by destination: of rows of a file, or of requests at the service.

    :param known: additional known names; see :func:`names_in`. Default: none.
    """

    def __init__(self, known: Collection[Names] = ()) -> None:
        self._known = frozenset(known)
        # Keyed by what all spellings of the same destination have in common.
        self._found: dict[tuple[str, str], list[tuple[Destination, Place]]] = {}
        #: Unreadable entries, which may be for any destination.
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


def find_candidates(index: Destinations[Place], request: WhitelistRequest) -> list[Place]:
    """
    Return what may be for the destination that is requested.

    :param index: the index.
    :param request: the request.
    :return: what :meth:`Destinations.same` and :meth:`Destinations.may_be` find.
    """
    wanted = destination_of(request)
    return [*index.same(wanted), *index.may_be(wanted, request.address)]
