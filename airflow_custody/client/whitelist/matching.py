"""Comparison of one request at the service with one row of a whitelist file. Pure functions, no I/O."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from airflow_custody.client.arguments import MAX_ID
from airflow_custody.client.errors import CustodyResponseError
from airflow_custody.client.text import count, is_decimal, read_number, sanitize
from airflow_custody.client.whitelist.addresses import canonical_address
from airflow_custody.client.whitelist.batches import name_some
from airflow_custody.client.whitelist.review import (
    ENVELOPE_ACTION,
    PAYLOAD_KEYS,
    Comparison,
    Finding,
    compare,
    envelope_faults,
)
from airflow_custody.client.whitelist.spelling import (
    chain_name,
    is_alike,
    is_same_address,
    may_be_respelled,
    network_name,
)

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest
    from airflow_custody.client.whitelist.plan import State

Place = TypeVar("Place")

_KEYS = {key.field: name for name, key in PAYLOAD_KEYS.items() if key.field}
# The fields that name a destination, beside the address.
_DESTINATION = frozenset({"blockchain", "network", "memo"})
_LINKS = frozenset({"linked_wallet_ids", "linked_internal_address_ids"})
# A longer text of what cannot be read is not searched.
_MAX_SEARCHED = 10_000
_MAX_SHOWN = 1_000
_EMPTY: tuple[Any, ...] = (None, "", [], {})


@dataclass(eq=False)
class Listed:
    """
    A request at the service, and what is known of it.

    :param envelope: the request.
    :param payload: its payload, with an address: if signatures prove it, the fields that they cover.
    :param state: ``unchanged`` if it is in effect, ``pending``, ``rejected``; ``differs`` if it is settled and its
        status word is not known; ``unverified`` if signatures do not prove it, so that all of it is only claimed.
    :param why: why they do not.
    :param omitted: the keys of its payload that the signatures do not cover.
    :param is_unsigned: whether its signatures were verified, and none is valid.
    :param doubt: in words, how its status contradicts where it is listed; empty: it does not.
    :param row: place in the file of the row that it was matched with; None if there is none.
    :param is_sure: whether it certainly is that row's, and no other one's, the network aside.
    :param has_sure_network: whether the network is no other row's either.
    """

    envelope: WhitelistEnvelope
    payload: Mapping[str, Any]
    state: State
    why: str = ""
    omitted: tuple[str, ...] = ()
    is_unsigned: bool = False
    doubt: str = ""
    row: str | None = None
    is_sure: bool = False
    has_sure_network: bool = False

    @cached_property
    def order(self) -> tuple[bool, int, str]:
        """The order of ids."""
        return id_order(self.envelope.id)

    @cached_property
    def address(self) -> str:
        """The address."""
        return str(self.payload["address"])

    @cached_property
    def label(self) -> str:
        """The normalized label."""
        return normalize(str(self.payload.get("label") or ""))

    @cached_property
    def memo(self) -> str:
        """The normalized memo."""
        return memo_key(self.payload.get("memo"))

    @cached_property
    def chain(self) -> str:
        """The normalized chain; empty if the service shows none."""
        return chain_key(self.payload.get("currency"))

    @cached_property
    def network(self) -> str:
        """The normalized network; empty if the service shows none."""
        return network_key(self.payload.get("network") or self.envelope.network, self.chain)


@dataclass(frozen=True)
class Match:
    """
    A request at the service that may be a row's.

    :param listed: the request.
    :param state: the row's state if it is.
    :param fields: the fields that differ.
    :param note: further facts, in words.
    :param has_network: whether the row names the network, or the service shows none.
    """

    listed: Listed
    state: State
    fields: tuple[str, ...]
    note: str = ""
    has_network: bool = True

    @property
    def is_same(self) -> bool:
        """Whether the request is what the row asks for, and was not rejected."""
        return not self.fields and self.state != "rejected"

    @property
    def is_certain(self) -> bool:
        """Whether the request certainly is for the row's destination."""
        return not {"memo", "network", "blockchain", "address"} & {*self.fields}


def id_order(identifier: str) -> tuple[bool, int, str]:
    """Return what ids are ordered by."""
    number = read_number(identifier, MAX_ID)
    return (number is None, number or 0, identifier)


def normalize(text: str) -> str:
    """Normalize a text: Unicode form, case and white space."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def memo_key(memo: object) -> str:
    """Return what all spellings of a memo have in common; empty for none."""
    text = normalize(str(memo or ""))
    return _number(text)


def chain_key(chain: object) -> str:
    """Return what all spellings of all names of a chain have in common; empty for none."""
    return normalize(chain_name(unicodedata.normalize("NFKC", chain))) if isinstance(chain, str) else ""


def network_key(network: object, chain: str) -> str:
    """Return what all spellings of all names of a chain's network have in common; empty for none."""
    return normalize(network_name(unicodedata.normalize("NFKC", network), chain)) if isinstance(network, str) else ""


def match(request: WhitelistRequest, listed: Listed, accepted: Collection[str] = ()) -> Match | None:
    """
    Compare a row with a request whose address has the same key.

    :param request: the row's request.
    :param listed: the request.
    :param accepted: keys of the payload that nobody needs to have asked for, and :data:`ENVELOPE_ACTION`.
    :return: the comparison; None if they certainly are for two destinations.
    """
    shown = listed.address
    if not (is_same_address(request.address, shown) or is_alike(request.address, shown)):
        return None
    comparison = _compare(request, listed.payload, listed.envelope.network)
    if not _DESTINATION.isdisjoint(comparison.differing):
        return None
    fields = _differing(request, listed.payload, comparison, accepted)
    if unaccepted := [each for each in fields if _is_unknown(each)]:
        notes = [f"nobody asked for {name_some(unaccepted)}: 'accept_fields' accepts what is the service's own"]
    else:
        notes = []
    envelope_fields, faults = contradictions(listed, request, accepted)
    fields += envelope_fields
    notes += faults
    if listed.state == "differs":
        fields.append("status")
        notes.append(
            "its status is neither in effective_statuses nor in rejected_statuses: it does not count as in effect"
        )
    if listed.doubt:
        notes.append(listed.doubt)
    filled_in = [
        key for key in comparison.filled_in(frozenset(comparison.unaccounted)) if "." not in key and key not in fields
    ]
    if filled_in and not fields:
        notes.append(f"filled in by the service: {name_some(filled_in)}")
    state: State = "rejected" if listed.state == "rejected" else "differs" if fields else listed.state
    if listed.omitted:
        notes.append(not_covered(listed.omitted))
    has_network = bool(request.network) or not (listed.payload.get("network") or listed.envelope.network)
    return Match(listed, state, tuple(dict.fromkeys(fields)), "; ".join(notes), has_network)


def contradictions(
    listed: Listed, request: WhitelistRequest | None, accepted: Collection[str]
) -> tuple[list[str], list[str]]:
    """
    Return where the envelope of a request contradicts its payload or what was asked for.

    :param listed: the request.
    :param request: the request that was asked for; None: whatever the payload asks for.
    :param accepted: with :data:`ENVELOPE_ACTION`, a word that is not known to mean a creation is accepted.
    :return: ``envelope``, or :data:`ENVELOPE_ACTION` for such a word; and what there is, in words.
    """
    faults = envelope_faults(listed.envelope, listed.payload, request, accepted=accepted)
    if not faults:
        return [], []
    certain = envelope_faults(listed.envelope, listed.payload, request, accepted=(ENVELOPE_ACTION,))
    fields = ["envelope"] if certain else []
    return [*fields, *([ENVELOPE_ACTION] if len(faults) > len(certain) else [])], [*faults]


def not_covered(keys: Iterable[str]) -> str:
    """Return, in words, that signatures do not cover these keys of a payload."""
    return f"signed in a legacy form, which does not cover {', '.join(keys)}"


def match_respelled(request: WhitelistRequest, listed: Listed, accepted: Collection[str] = ()) -> Match | None:
    """
    Compare a row with a request that has the same label, or a label that was cut, and may be spelled differently.

    :param request: the row's request.
    :param listed: the request.
    :param accepted: as for :func:`match`.
    :return: the comparison; None if nothing speaks for it.
    """
    shown = listed.address
    comparison = _compare(request, listed.payload, listed.envelope.network)
    differing = {*comparison.differing}
    if is_same_address(request.address, shown):
        # A memo that is another number is another destination; 007 may be 7.
        memos = (request.memo or "", str(listed.payload.get("memo") or ""))
        if "memo" in differing and _number(memos[0]) != _number(memos[1]):
            return None
        what = "the chain, the network or the memo"
    elif "blockchain" in differing or "network" in differing or not may_be_respelled(request.address, shown):
        return None
    else:
        what = "the address"
    fields = _differing(request, listed.payload, comparison, accepted)
    note = (
        f"the service may have written {what} in another form, so nothing is created. If it is the same destination, "
        "write in the file what the service has; if not, give the row another label"
    )
    state: State = "rejected" if listed.state == "rejected" else "differs"
    return Match(listed, state, tuple(dict.fromkeys(fields)), note)


def shown_values(listed: Listed, fields: Iterable[str]) -> dict[str, str]:
    """Return what the service has in these fields, as text."""
    values = {**{name: listed.payload.get(key) for name, key in _KEYS.items()}, "status": listed.envelope.status}
    values["network"] = values["network"] or listed.envelope.network
    values[ENVELOPE_ACTION] = listed.envelope.action
    found = {}
    for name in fields:
        if name == ENVELOPE_ACTION or (name != "envelope" and "." not in name):
            found[name] = _text(values[name] if name in values else listed.payload.get(name))
    return found


def _text(value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        value = ", ".join(str(each.get("id")) for each in value)
    if not isinstance(value, str):
        value = "" if value is None else json.dumps(value)
    return value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}… ({count(len(value), 'character')})"


def differing_fields(request: WhitelistRequest, envelope: WhitelistEnvelope) -> list[str]:
    """
    Return in which fields a request at the service is not what was asked for, spelling that is its affair aside.

    :param request: the request that was asked for.
    :param envelope: the request at the service.
    :raises CustodyResponseError: if its payload cannot be verified.
    """
    payload = envelope.payload()
    comparison = _compare(request, payload, envelope.network)
    return _differing(
        request, payload, comparison, [each for each in comparison.unaccounted if each not in PAYLOAD_KEYS]
    )


def _compare(request: WhitelistRequest, payload: Mapping[str, Any], network: str | None) -> Comparison:
    """Compare a row with a payload; a chain or a network by another of its names is the same."""
    names: dict[str, str] = {}
    chain, shown = request.chain, payload.get("currency")
    if isinstance(shown, str) and shown != chain and chain_name(shown) == chain_name(chain):
        names["currency"] = chain
    if request.network:
        name = network_name(request.network, chain)
        if network and network_name(network, chain) == name:
            network = request.network
        shown = payload.get("network")
        if isinstance(shown, str) and shown != request.network and network_name(shown, chain) == name:
            names["network"] = request.network
    return compare(request, {**payload, **names} if names else payload, network=network)


def _differing(
    request: WhitelistRequest, payload: Mapping[str, Any], comparison: Comparison, accepted: Collection[str]
) -> list[str]:
    return [each.name for each in comparison.findings if not _is_accepted(each, request, payload, accepted)]


def _is_unknown(name: str) -> bool:
    """Tell whether this is a key of a payload that is not published, and no field."""
    return name not in PAYLOAD_KEYS and name not in _KEYS


def _is_accepted(
    finding: Finding, request: WhitelistRequest, payload: Mapping[str, Any], accepted: Collection[str]
) -> bool:
    """Tell whether a row and a request are the same in one field, spelling that is the service's affair aside."""
    if finding.verdict == "same" or (finding.unasked and finding.key in accepted):
        return True
    if finding.unasked and finding.key not in PAYLOAD_KEYS:
        # An unknown key may name another destination, as a memo does.
        return _is_empty(payload, finding.key)
    if finding.name == "address":
        chain, shown = chain_name(request.chain), payload.get("address")
        return isinstance(shown, str) and canonical_address(request.address, chain) == canonical_address(shown, chain)
    if finding.verdict == "unclear" and finding.unasked:
        return True
    asked, shown = getattr(request, finding.name, None), payload.get(finding.key)
    if finding.name in _LINKS:
        ids = _ids(shown)
        return finding.verdict == "unclear" and bool(ids) and sorted(map(_number, asked or ())) == ids
    if finding.name == "exchange_account_id":
        return isinstance(shown, int) and not isinstance(shown, bool) and asked == str(shown)
    return False


def _is_empty(payload: Mapping[str, Any], key: str) -> bool:
    """Tell whether a key of a payload, or of its links, has no value."""
    name, is_link, rest = key.partition(".")
    links = payload.get(name)
    if is_link and isinstance(links, list):
        return all(each.get(rest, 0) in _EMPTY for each in links if rest in each or rest.startswith("'"))
    return payload.get(key, 0) in _EMPTY


def _ids(links: object) -> list[str]:
    """Return the ids of links, as they compare; none if one link has no id."""
    if not isinstance(links, list) or not all(isinstance(each, dict) and each.get("id") for each in links):
        return []
    return sorted(_number(str(each["id"])) for each in links)


def _number(text: str) -> str:
    return text.lstrip("0") or "0" if is_decimal(text) else text


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
        # By what all texts have in common that may be the same; then by network and address.
        self._found: dict[tuple[str, str, str], dict[tuple[str, str], list[Place]]] = {}
        # What cannot be read, by what it shows of chain and address: empty for nothing.
        self._unreadable: dict[tuple[str, str], list[Place]] = {}

    def add(self, destination: Destination, place: Place) -> None:
        """Add a destination, and what is there."""
        group = self._found.setdefault(_loose(destination), {})
        group.setdefault((destination.network, destination.address), []).append(place)

    def same(self, destination: Destination) -> list[Place]:
        """Return what is there for a destination. A network that one side does not name matches any."""
        group = self._found.get(_loose(destination), {})
        if destination.network:
            keys = [(each, destination.address) for each in (destination.network, "")]
        else:
            keys = [each for each in group if each[1] == destination.address]
        return [place for key in keys for place in group.get(key, ())]

    def in_another_case(self, destination: Destination) -> list[Place]:
        """Return what may be there for a destination: its address differs only in case, and may be the same."""
        if destination.is_case_known:
            return []
        group = self._found.get(_loose(destination), {})
        return [
            place
            for (network, address), places in group.items()
            if address != destination.address
            and (network == destination.network or not (network and destination.network))
            for place in places
        ]

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
            for address in {canonical_address(each, chain)[0].casefold() for each in addresses} or {""}:
                self._unreadable.setdefault((chain, address), []).append(place)

    def unreadable(self, destination: Destination) -> list[Place]:
        """Return what cannot be read, and may be for a destination."""
        address = destination.address.casefold()
        keys = [(chain, shown) for chain in (destination.chain, "") for shown in (address, "")]
        return [place for key in keys for place in self._unreadable.get(key, ())]


def is_text(value: object) -> bool:
    """Tell whether a value is a text, and not a blank one."""
    return isinstance(value, str) and bool(value.strip())


def _loose(destination: Destination) -> tuple[str, str, str]:
    return destination.chain, destination.address.casefold(), destination.memo


class RequestsByDestination:
    """
    Requests at the service, to find those that may be what was asked for.

    :param envelopes: the requests.
    """

    def __init__(self, envelopes: Iterable[WhitelistEnvelope]) -> None:
        self._index: Destinations[WhitelistEnvelope] = Destinations()
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
            not name matches any; those whose address differs only in case, on a chain where that may be the same; and
            those that cannot be read, unless what they show says that they are for something else.
        """
        wanted = destination_of(request)
        return [
            *self._index.same(wanted),
            *self._index.in_another_case(wanted),
            *self._index.unreadable(wanted),
        ]


class Unreadable:
    """
    A request whose payload cannot be read. It proves nothing, but may be a reason not to create.

    :param envelope: the request.
    :param why: why it cannot be read.
    """

    def __init__(self, envelope: WhitelistEnvelope, why: str) -> None:
        self.envelope = envelope
        self.why = why
        text = (envelope.wire.get("metadata") or {}).get("payloadAsString") or ""
        try:
            data = json.loads(text) if len(text) <= _MAX_SEARCHED else None
        except (ValueError, RecursionError):
            data = None
        has_address = isinstance(data, dict) and isinstance(data.get("address"), str) and data["address"].strip()
        # Also without the escapes of JSON.
        self._text = f"{text}\n{json.dumps(data, ensure_ascii=False)}".casefold() if has_address else ""
        chain = envelope.blockchain or (data.get("currency") if isinstance(data, dict) else None)
        #: The chain that it may be on; empty if nobody knows.
        self.chain = chain_key(chain)

    def may_be(self, chain: str, address: str, label: str) -> bool:
        """
        Tell whether it may be what a row asks for.

        :param chain: the key of the row's chain.
        :param address: the key of its address.
        :param label: its label as JSON writes it, without case.
        """
        if not self._text:
            return self.chain in ("", chain)
        return address in self._text or label in self._text

    def summary(self) -> str:
        """Return which request it is, in words."""
        return f"request {sanitize(self.envelope.id, 40)} cannot be read, and may be this one: nothing is created"
