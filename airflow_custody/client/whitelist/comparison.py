"""
Compare a request at the service with the requested content.

The table :data:`PAYLOAD_KEYS` contains the rule for each key of a payload. A signer must account for the whole payload:
see :meth:`Comparison.faults`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import ascii_lower, escape, hidden_difference, name_some, sanitize
from airflow_custody.client.verification.signed_text import LINK_KEYS
from airflow_custody.client.whitelist.addresses.checks import network_name, tag_fault

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

#: The name in ``accept_fields`` that accepts an unknown word in the envelope's ``action``.
ENVELOPE_ACTION = "envelope.action"
# Maximum length of a value in a message: enough for a whole address.
_MAX_VALUE = 120
_MAX_LINKS = 5


class KeyComparison(NamedTuple):
    """
    The result of comparing one key of a payload.

    :param key: the key. A key of a link is written as ``linkedWallets.name``.
    :param name: the field of the request that the key is compared with; the key itself if there is no such field.
    :param fault: why the value must not be signed; empty if the value is as requested, or harmless.
    :param unasked: whether the key has a value that was not requested and that may be accepted by name.
    :param filled_in: whether the service filled in the key's value, and the value is harmless.
    :param outside: whether the field was compared with the envelope, because the payload lacks it.
    :param by_service: whether the service may have filled in the key's value. Reviews before signing ignore this.
    """

    key: str
    name: str
    fault: str = ""
    unasked: bool = False
    filled_in: bool = False
    outside: bool = False
    by_service: bool = False


@dataclass(frozen=True)
class Comparison:
    """
    The comparison of a payload with a request.

    :param keys: one comparison for each field of the request that a payload covers, and one for each other key.
    """

    keys: tuple[KeyComparison, ...]

    @property
    def unaccounted(self) -> tuple[str, ...]:
        """The keys with a value that was not requested."""
        return tuple(each.key for each in self.keys if each.unasked)

    @property
    def outside(self) -> tuple[str, ...]:
        """The fields that were compared with the envelope, because the payload leaves them out."""
        return tuple(each.name for each in self.keys if each.outside)

    def filled_in(self, accepted: Collection[str] = ()) -> tuple[str, ...]:
        """Return the keys whose value the service filled in: harmless ones, and those accepted by name."""
        return tuple(each.key for each in self.keys if each.filled_in or (each.unasked and each.key in accepted))

    def faults(self, accepted: Collection[str] = ()) -> tuple[str, ...]:
        """
        Describe the fields and keys that must not be signed.

        :param accepted: keys of the payload that may have a value that was not requested.
        :return: for each wrong field or key its name, with the requested and the shown value; empty if the whole
            payload is accounted for.
        """
        return tuple(each.fault for each in self.keys if each.fault and not (each.unasked and each.key in accepted))


def compare(request: WhitelistRequest | None, payload: Mapping[str, Any], *, network: str | None = None) -> Comparison:
    """
    Compare the requested content with a verified payload, key by key.

    The visibility group is not part of a payload: :func:`envelope_faults` compares it.

    :param request: the requested content; None: any value of the known keys is accepted.
    :param payload: the result of :meth:`WhitelistEnvelope.payload`.
    :param network: the network in the envelope. It is compared if the payload has no network, as with many services. A
        network that was not requested must be the main one. Default None: unknown.
    :return: a comparison for each field, and for each other key.
    """
    return Comparison(tuple(_compare_keys(request, payload, network)))


def envelope_faults(
    envelope: WhitelistEnvelope,
    payload: Mapping[str, Any],
    request: WhitelistRequest | None,
    *,
    tenant_id: str | None = None,
    settings: ClientSettings | None = None,
) -> tuple[str, ...]:
    """
    Describe each contradiction between an envelope and its payload, or the requested content.

    No signature covers the envelope, so it proves nothing. But a request that contradicts itself is not signed.

    :param envelope: the envelope.
    :param payload: its verified payload.
    :param request: the requested content; None: any content.
    :param tenant_id: the tenant of the signing user; None: unknown.
    :param settings: the client's settings. If their accepted fields contain :data:`ENVELOPE_ACTION`, an unknown word in
        ``action`` is accepted. Default None: it is accepted.
    :return: the contradictions; empty if there are none.
    """
    shown = {
        "tenantId": (envelope.tenant_id, tenant_id, "the tenant of this user"),
        "blockchain": (envelope.blockchain, payload.get("currency"), "the chain in its payload"),
        "network": (envelope.network, payload.get("network"), "the network in its payload"),
    }
    found = []
    for name, (given, other, what) in shown.items():
        is_same = operator.eq if name == "tenantId" else _is_same_name
        if given and other and not is_same(given, other):
            found.append(f"its envelope's {name} {_quote(given)} is not {what}, {_quote(other)}")
    if request is not None and request.visibility_group_id not in (None, envelope.visibility_group_id):
        found.append(
            f"its envelope's visibilityGroupID {_quote(envelope.visibility_group_id or '')} is not the "
            f"requested group, {_quote(request.visibility_group_id)}"
        )
    content: list[str] = [each for each in map(payload.get, ("address", "memo", "currency")) if isinstance(each, str)]
    if len(content) == 3 and (tag := tag_fault(*content)):
        found.append(f"its {tag}")
    accepted = (ENVELOPE_ACTION,) if settings is None else settings.accept_fields
    if not is_creation(envelope.action or "", accept_unknown=ENVELOPE_ACTION in accepted):
        place = "" if settings is None else f": {ENVELOPE_ACTION!r} in {settings.name('accept_fields')} accepts it"
        found.append(
            f"its envelope's action {_quote(envelope.action)} is not a known word for a creation (the words are not "
            f"published{place})"
        )
    return tuple(found)


def check_asked(
    request: WhitelistRequest | None,
    envelope: WhitelistEnvelope,
    payload: Mapping[str, Any],
    settings: ClientSettings,
    *,
    tenant_id: str | None = None,
) -> Comparison:
    """
    Refuse a request that differs from the requested content, or contradicts itself.

    :param request: the requested content; None: any content.
    :param envelope: the envelope.
    :param payload: its verified payload.
    :param settings: the client's settings, with the accepted fields.
    :param tenant_id: the tenant of the signing user; None: unknown.
    :return: the comparison.
    :raises CustodyRequestError: if it is refused; the error names what is wrong.
    """
    comparison, accepted = compare(request, payload, network=envelope.network), settings.accept_fields
    if faults := comparison.faults(accepted):
        names = [repr(sanitize(each, 60)) for each in comparison.unaccounted if each not in accepted]
        why = "has unknown keys" if request is None else "differs from the requested content"
        raise CustodyRequestError(
            f"whitelisting request {envelope.id} {why}: {name_some(faults)}",
            advice=f"If these values are acceptable although not requested, add {name_some(names)} to "
            f"{settings.name('accept_fields')}."
            if names
            else None,
            code="request-differs",
        )
    if contradictions := envelope_faults(envelope, payload, request, tenant_id=tenant_id, settings=settings):
        raise CustodyRequestError(
            f"whitelisting request {envelope.id} contradicts itself or the requested content: "
            f"{'; '.join(contradictions)}",
            code="request-differs",
        )
    return comparison


# The words of `action` are not published. Words for changes and deletions must not be accepted, not even by name.
_CREATING = frozenset({"create", "created", "creating", "creation", "add", "added", "new", "insert", "inserted"})
_OBJECTS = frozenset({"whitelist", "whitelisted", "whitelisting", "address", "request"})
_CHANGING = ("delet", "remov", "revok", "updat", "chang", "modif", "edit", "replac", "disabl", "suspend", "cancel")


# A listing repeats the same few words.
@lru_cache(maxsize=100)
def is_creation(action: str, *, accept_unknown: bool) -> bool:
    """
    Tell whether an envelope's action is the creation of an address; an empty action is.

    :param action: the action.
    :param accept_unknown: whether to accept an unknown word, unless it may mean a change or a deletion.
    """
    words = {ascii_lower(each) for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z\s_.-]+", action)}
    if any(each in ascii_lower(action) for each in _CHANGING):
        return False
    return not action or accept_unknown or (bool(words & _CREATING) and words <= _CREATING | _OBJECTS)


# Words for changes are not included, because the changed field may be the address.
_DELETING = _CHANGING[:3]


def is_deletion(action: str) -> bool:
    """Tell whether an envelope's action is the deletion of an address."""
    return any(each in ascii_lower(action) for each in _DELETING)


# --- comparing one value -----------------------------------------------------------------------------------


def _is_same_name(asked: str, shown: object) -> bool:
    """Tell whether two names of chains or networks are the same, without regard to case."""
    return isinstance(shown, str) and ascii_lower(asked) == ascii_lower(shown)


def _same_links(asked: Sequence[str], shown: Any) -> bool:
    # Refuse a repeated link, because its two entries may have different descriptions.
    return _are_links(shown) and sorted(set(asked)) == sorted(str(link["id"]) for link in shown)


def _are_links(shown: Any) -> bool:
    return isinstance(shown, list) and all(
        isinstance(link, dict)
        and isinstance(link.get("id"), (str, int))
        and not isinstance(link["id"], bool)
        and link["id"] != ""
        and all(isinstance(link.get(key), (str, type(None))) for key in LINK_KEYS if key != "id")
        for link in shown
    )


def _quote(value: object) -> str:
    return repr(sanitize(value, 40))


def _value(value: Any) -> str:
    """Quote a value for a message. Invisible characters are escaped, because they may be the difference."""
    if value in (None, "", []):
        return "nothing"
    if isinstance(value, list):
        ids = [each.get("id") if isinstance(each, dict) else each for each in value[:_MAX_LINKS]]
        return ", ".join(sanitize(each, 40) for each in ids) + (", ..." if value[_MAX_LINKS:] else "")
    if not isinstance(value, str):
        return "a value of another type"
    return f"'{escape(value[:_MAX_VALUE])}{'…' if value[_MAX_VALUE:] else ''}'"


# --- the table ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Key:
    """
    The rule for comparing a key of a payload.

    :param field: the field of the request; None if no field corresponds to the key.
    :param is_same: compares the requested value with the shown value.
    :param is_list: whether its value is a list of links, and not a text.
    :param harmless: the service's value for "not given".
    :param by_service: whether the service may have filled in a value that was not requested.
    """

    field: str | None
    is_same: Callable[[Any, Any], bool] = operator.eq
    is_list: bool = False
    harmless: str = ""
    by_service: bool = False


#: The keys of a payload, in the published order.
PAYLOAD_KEYS: Mapping[str, _Key] = {
    # The chain, under its other name.
    "currency": _Key("blockchain", _is_same_name),
    # A network is compared by `_compare_network`.
    "network": _Key("network"),
    "addressType": _Key("address_type", harmless="individual", by_service=True),
    "address": _Key("address"),
    "memo": _Key("memo"),
    "label": _Key("label"),
    "customerId": _Key("customer_id"),
    "exchangeAccountId": _Key("exchange_account_id"),
    "linkedInternalAddresses": _Key("linked_internal_address_ids", _same_links, is_list=True),
    "linkedWallets": _Key("linked_wallet_ids", _same_links, is_list=True),
    "contractType": _Key("contract_type", by_service=True),
    "tnParticipantID": _Key(None, by_service=True),
}


def _compare_keys(
    request: WhitelistRequest | None, payload: Mapping[str, Any], network: str | None
) -> Iterator[KeyComparison]:
    for name, key in PAYLOAD_KEYS.items():
        shown = payload.get(name)
        if request is not None and name == "network":
            yield _compare_network(request, shown, network)
        elif request is not None and (key.field or name in payload):
            yield _compare_key(name, key, _asked(request, key), shown)
        if key.is_list and _are_links(shown):
            yield from _compare_links(name, payload[name])
        elif key.is_list and shown and request is None:
            yield KeyComparison(name, name, f"{name} (not a list of links)")
    yield from (_unasked_key(_unknown(name)) for name in payload if name not in PAYLOAD_KEYS)


def _asked(request: WhitelistRequest, key: _Key) -> Any:
    if key.field is None:
        return None
    return request.chain if key.field == "blockchain" else getattr(request, key.field)


def _compare_network(request: WhitelistRequest, shown: object, outside: str | None) -> KeyComparison:
    """
    Compare the network. If none was requested, the service may only fill in the main network.

    :param request: the requested content.
    :param shown: the network in the payload.
    :param outside: the network in the envelope, which counts if the payload has none.
    """
    name, asked = "network", request.network
    if not outside or shown not in (None, ""):
        found = _compare_key(name, PAYLOAD_KEYS[name], asked, shown)
        return found._replace(by_service=isinstance(shown, str) and _is_main(shown, request))
    if asked is not None:
        return KeyComparison(
            name, name, "" if asked == outside else _describe_difference(name, asked, outside), outside=True
        )
    if _is_main(outside, request):
        return KeyComparison(name, name)
    return KeyComparison(name, name, f"{name} (not requested, shown {_value(outside)})", unasked=True)


def _is_main(network: str, request: WhitelistRequest) -> bool:
    return network_name(network, request.chain) == "mainnet"


def _compare_key(name: str, key: _Key, asked: Any, shown: object) -> KeyComparison:
    field = key.field or name
    is_valid = _are_links(shown) if key.is_list else isinstance(shown, str)
    if asked is not None:
        is_same = key.is_same(asked, shown) or (asked == key.harmless and shown in (None, ""))
    elif shown in (None, "", []):
        # The value must have the key's type, even if it is empty. Only null is accepted for both types.
        is_same = shown is None or is_valid
    elif is_valid:
        if key.harmless and shown == key.harmless:
            return KeyComparison(name, field, filled_in=True)
        return _unasked_key(name, field)._replace(by_service=key.by_service)
    else:
        is_same = False
    return KeyComparison(name, field, "" if is_same else _describe_difference(field, asked, shown))


def _describe_difference(field: str, asked: Any, shown: object) -> str:
    hidden = hidden_difference(asked, shown, _MAX_VALUE) if isinstance(asked, str) and isinstance(shown, str) else ""
    return f"{field} (requested {_value(asked)}, shown {_value(shown)}{hidden and f'; they differ {hidden}'})"


def _unasked_key(key: str, field: str | None = None) -> KeyComparison:
    return KeyComparison(key, field or key, f"{sanitize(key, 60)} (not requested)", unasked=True)


def _unknown(key: str) -> str:
    """Return the name that accepts a key: quoted, if it could be confused with another key."""
    return key if key == sanitize(key, 60) and "." not in key else _quote(key)


def _compare_links(name: str, links: Sequence[Mapping[str, Any]]) -> Iterator[KeyComparison]:
    for key in dict.fromkeys(key for link in links for key in link):
        if key not in LINK_KEYS:
            yield _unasked_key(f"{name}.{_unknown(key)}")
        elif key != "id":
            yield KeyComparison(f"{name}.{key}", f"{name}.{key}", filled_in=True)
