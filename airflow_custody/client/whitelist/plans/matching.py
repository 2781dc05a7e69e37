"""Compare requested contents with requests at the service. No I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.text import count
from airflow_custody.client.whitelist.addresses.destinations import Destinations, Names
from airflow_custody.client.whitelist.comparison import ENVELOPE_ACTION, PAYLOAD_KEYS
from airflow_custody.client.whitelist.request import Request

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope

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
