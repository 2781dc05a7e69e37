"""
An index of requests at the service, to find those that may belong to a row. Nothing is compared twice.

An exchange has one address for thousands of memos, and a service may show none of them: what has an address in
common is found by chain, network and label, and what is taken is not compared again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_custody.client.whitelist.matching import Listed, chain_key, memo_key, network_key, normalize
from airflow_custody.client.whitelist.spelling import address_end, address_key, are_apart, form_of

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.models import WhitelistRequest

Form = tuple[str, int]
Value = TypeVar("Value")


class Labels(Generic[Value]):
    """
    Values by label, which may have been cut.

    :param make: makes the value of a label that is new.
    """

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._values: dict[str, Value] = {}
        self._sorted: list[str] = []

    def of(self, label: str) -> Value:
        """Return the value of a label; a new one if there is none."""
        if label not in self._values:
            self._values[label] = self._make()
        return self._values[label]

    def alike(self, label: str) -> Iterator[Value]:
        """Yield the values of the labels that begin with this one, or with which this one begins."""
        for length in range(len(label), 0, -1):
            if label[:length] in self._values:
                yield self._values[label[:length]]
        if len(self._sorted) != len(self._values):
            self._sorted = sorted(self._values)
        for index in range(bisect_left(self._sorted, label), len(self._sorted) if label else 0):
            if not self._sorted[index].startswith(label):
                break
            if self._sorted[index] != label:
                yield self._values[self._sorted[index]]


class Group:
    """Requests at the service, in their order. Each is matched with one row at most."""

    def __init__(self) -> None:
        self._all: list[Listed] = []
        self._first_free = self._first_unsure = self._first_unsure_network = 0

    def add(self, listed: Listed) -> None:
        """Add a request."""
        self._all.append(listed)

    def __iter__(self) -> Iterator[Listed]:
        return iter(self._all)

    def free(self) -> Iterator[Listed]:
        """Yield those that no row has."""
        self._first_free = self._skip(self._first_free, lambda each: each.row is not None)
        return (each for each in self._from(self._first_free) if each.row is None)

    def unsure(self) -> Iterator[Listed]:
        """Yield those that a row has, and that may be another one's."""
        self._first_unsure = self._skip(self._first_unsure, lambda each: each.is_sure)
        return (each for each in self._from(self._first_unsure) if each.row is not None and not each.is_sure)

    def unsure_of_network(self) -> Iterator[Listed]:
        """Yield those that a row has, and that may be another one's, or that of one on another network."""
        self._first_unsure_network = self._skip(self._first_unsure_network, lambda each: each.has_sure_network)
        found = self._from(self._first_unsure_network)
        return (each for each in found if each.row is not None and not each.has_sure_network)

    def _skip(self, start: int, is_done: Callable[[Listed], bool]) -> int:
        while start < len(self._all) and is_done(self._all[start]):
            start += 1
        return start

    def _from(self, start: int) -> Iterator[Listed]:
        return (self._all[index] for index in range(start, len(self._all)))


class _Place:
    """The requests on one network of one chain."""

    def __init__(self) -> None:
        self.all = Group()
        self.labels: dict[str, Group] = {}


class Bucket:
    """Requests at the service that have address and memo in common, as far as spellings go."""

    def __init__(self) -> None:
        self._places: dict[str, dict[str, _Place]] = {}
        self._labels: Labels[Group] = Labels(Group)

    def add(self, listed: Listed) -> None:
        """Add a request."""
        place = self._places.setdefault(listed.chain, {}).setdefault(listed.network, _Place())
        place.all.add(listed)
        place.labels.setdefault(listed.label, Group()).add(listed)
        self._labels.of(listed.label).add(listed)

    def groups(self, request: WhitelistRequest) -> list[Group]:
        """Return the groups that may be on the chain and network of a row."""
        return [each.all for each in self._on_chain(request)]

    def labelled(self, request: WhitelistRequest) -> list[Group]:
        """Return those of :meth:`groups` that have the row's label, too."""
        label = normalize(request.label)
        return [each.labels[label] for each in self._on_chain(request) if label in each.labels]

    def alike(self, label: str) -> Iterator[Group]:
        """Yield groups whose labels begin alike, on whatever chain."""
        return self._labels.alike(label)

    def _on_chain(self, request: WhitelistRequest) -> list[_Place]:
        chain = chain_key(request.chain)
        places = [self._places.get(each, {}) for each in dict.fromkeys([chain, ""])]
        return [each for by_network in places for each in _on_network(by_network, request, chain)]


def _on_network(places: dict[str, Value], request: WhitelistRequest, chain: str) -> Iterable[Value]:
    if request.network is None:
        return list(places.values())
    return [places[each] for each in (network_key(request.network, chain), "") if each in places]


class RequestIndex:
    """
    Requests at the service by what rows have in common with them.

    :param requests: the requests, in the order in which they are to be taken.
    """

    def __init__(self, requests: Iterable[Listed]) -> None:
        self._by_address: dict[tuple[str, str], Bucket] = {}
        self._by_end: dict[tuple[str, str], Bucket] = {}
        self._by_label: dict[tuple[str, str], dict[Form, dict[str, Group]]] = {}
        for each in requests:
            self._by_address.setdefault((address_key(each.address), each.memo), Bucket()).add(each)
            if end := address_end(each.address):
                self._by_end.setdefault((end, each.memo), Bucket()).add(each)
            by_form = self._by_label.setdefault((each.label, each.chain), {})
            by_form.setdefault(form_of(each.address), {}).setdefault(each.network, Group()).add(each)

    def exact(self, request: WhitelistRequest) -> Iterator[Listed]:
        """Yield the requests that may be for a row's destination, and have its memo."""
        for group in self.exact_groups(request):
            yield from group

    def exact_groups(self, request: WhitelistRequest) -> list[Group]:
        """Return the groups of these requests."""
        bucket = self._by_address.get((address_key(request.address), memo_key(request.memo)))
        return bucket.groups(request) if bucket else []

    def without_memo(self, request: WhitelistRequest) -> Bucket | None:
        """Return the requests for a row's address from which the service may have left out the row's memo."""
        return self._by_address.get((address_key(request.address), "")) if memo_key(request.memo) else None

    def alike(self, request: WhitelistRequest) -> Iterator[Group]:
        """Yield groups with a row's address, or the end of it, and a label that begins alike."""
        label = normalize(request.label)
        keys = [(self._by_address, address_key(request.address)), (self._by_end, address_end(request.address))]
        for buckets, key in keys:
            for memo in dict.fromkeys([memo_key(request.memo), ""]):
                if bucket := buckets.get((key, memo)):
                    yield from bucket.alike(label)

    def respelled(self, request: WhitelistRequest) -> Iterator[Group]:
        """Yield groups with a row's label and chain, and an address in another form."""
        chain, form = chain_key(request.chain), form_of(request.address)
        for other, places in self._by_label.get((normalize(request.label), chain), {}).items():
            if are_apart(form, other):
                yield from _on_network(places, request, chain)

    def has_label(self, request: WhitelistRequest) -> Iterator[Listed]:
        """Yield the requests with a row's label and chain, whatever their address is."""
        forms = self._by_label.get((normalize(request.label), chain_key(request.chain)), {})
        for places in forms.values():
            for group in places.values():
                yield from group


class RowIndex(Generic[Value]):
    """Rows of a file by what requests at the service have in common with them: each kind of row once."""

    def __init__(self) -> None:
        self._by_address: dict[tuple[str, str | None], dict[tuple[str | None, ...], Value]] = {}
        self._by_label: dict[tuple[str, str], dict[tuple[Form, str], Value]] = {}
        # Of those that do not certainly have their request.
        self._unsure: dict[tuple[str, str | None], dict[tuple[str | None, ...], Value]] = {}
        self._unsure_labels: dict[tuple[str, str | None], Labels[dict[tuple[str | None, ...], Value]]] = {}

    def add(self, request: WhitelistRequest, row: Value, *, is_sure: bool) -> None:
        """
        Add a row.

        :param request: the request.
        :param row: the row.
        :param is_sure: whether it certainly has its request, so that it means only that destination.
        """
        address, chain, label = address_key(request.address), chain_key(request.chain), normalize(request.label)
        network = network_key(request.network, chain)
        # A request without a memo may be any row's.
        for memo, shown in ((memo_key(request.memo), request.memo), (None, None)):
            kind = (chain, network, request.address, shown)
            self._by_address.setdefault((address, memo), {}).setdefault(kind, row)
            if not is_sure:
                for key in {address, address_end(request.address)} - {""}:
                    self._unsure.setdefault((key, memo), {}).setdefault(kind, row)
                    labels = self._unsure_labels.setdefault((key, memo), Labels(dict))
                    labels.of(label).setdefault(kind, row)
        if not is_sure:
            by_form = self._by_label.setdefault((label, chain), {})
            by_form.setdefault((form_of(request.address), network), row)

    def same(self, listed: Listed) -> Iterator[Value]:
        """Yield the rows that may be for a request's destination."""
        memo = listed.memo or None
        yield from self._by_address.get((address_key(listed.address), memo), {}).values()
        if end := address_end(listed.address):
            yield from self._unsure.get((end, memo), {}).values()

    def alike(self, listed: Listed) -> Iterator[Value]:
        """Yield the rows that may mean a request whose label begins alike, in another spelling."""
        memo, form = listed.memo or None, form_of(listed.address)
        for key in dict.fromkeys([address_key(listed.address), address_end(listed.address)]):
            if labels := self._unsure_labels.get((key, memo)):
                for kinds in labels.alike(listed.label):
                    yield from kinds.values()
        for (other, _), row in self._by_label.get((listed.label, listed.chain), {}).items():
            if are_apart(form, other):
                yield row
