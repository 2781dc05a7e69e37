"""
Compare a request at the service with the requested content.

All comparisons are made by :func:`compare`. Its result says how each key of the request's payload relates to the
requested content. The callers use different parts of this result:

- Before a signature, and when a request in effect is compared with expected content, the whole payload must be
  accounted for: :func:`check_asked`.
- A plan's row, and the search after a lost response, ignore another spelling of the same value, and values that
  services fill in: :attr:`Comparison.differs`.

The table :data:`PAYLOAD_KEYS` contains the rule for each key of a payload.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import ascii_lower, escape, hidden_difference, name_some, sanitize
from airflow_custody.client.verification.signed_text import LINK_KEYS
from airflow_custody.client.whitelist.addresses.checks import canonical_place, chain_name, network_name, tag_fault

if TYPE_CHECKING:
    from airflow_custody.client.settings import ClientSettings
    from airflow_custody.client.whitelist.envelopes import WhitelistEnvelope
    from airflow_custody.client.whitelist.models import WhitelistRequest

#: The name in ``accept_fields`` that accepts an unknown word in the envelope's ``action``.
ENVELOPE_ACTION = "envelope.action"
# Maximum length of a value in a message: enough for a whole address.
_MAX_VALUE = 120
_MAX_LINKS = 5

#: How a key's value relates to the requested content. ``same``: it is the requested value. ``spelled``: it is the
#: requested value in another spelling. ``filled in``: it was not requested, but is harmless, or its key is accepted by
#: name. ``not requested``: it was not requested, and is not accepted. ``differs``: it is not the requested value.
KeyState = Literal["same", "spelled", "filled in", "not requested", "differs"]


class KeyComparison(NamedTuple):
    """
    The result of comparing one key of a payload.

    :param key: the key. A key of a link is written as ``linkedWallets.name``.
    :param name: the field of the request that the key is compared with; the key itself if there is no such field.
    :param state: how the key's value relates to the requested content. Default: it is the requested value.
    :param fault: why the value must not be signed. Default empty: it is as requested, or harmless.
    :param is_by_service: for a value that was not requested: whether services fill in such values, so that a plan
        ignores it. A review before signing does not ignore it. Default False.
    """

    key: str
    name: str
    state: KeyState = "same"
    fault: str = ""
    is_by_service: bool = False


class Contradiction(NamedTuple):
    """
    A contradiction between an envelope and its payload, the requested content, or the user's tenant.

    :param name: ``envelope``; or :data:`ENVELOPE_ACTION`, if the contradiction would be accepted with this name in
        ``accept_fields``.
    :param text: the contradiction, as the rest of a sentence that begins with the request's name.
    """

    name: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """
    The comparison of a request at the service with the requested content.

    :param faults: the fields and keys that must not be signed, each with the requested and the shown value; empty if
        the whole payload is accounted for.
    :param unaccounted: the keys with a value that was neither requested nor accepted by name.
    :param differs: the fields whose value differs from the requested one in more than its spelling. Values that
        services fill in themselves are left out. Default: none.
    :param unknown: the unaccounted keys that do not correspond to a field of a request. Default: none.
    :param filled_in: the keys whose value the service filled in: harmless ones, and those accepted by name. Default:
        none.
    :param spelling: the service's values of the fields that it spells differently, by field. Default: none.
    :param unsigned: the fields that were compared with the envelope, which no signature covers. Default: none.
    :param contradictions: the contradictions of the envelope. No signature covers the envelope, so its values prove
        nothing, but a request that contradicts itself is not signed. Default: none.
    """

    faults: tuple[str, ...]
    unaccounted: tuple[str, ...]
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    filled_in: tuple[str, ...] = ()
    spelling: Mapping[str, str | None] = field(default_factory=dict)
    unsigned: tuple[str, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()


def compare(
    requested: WhitelistRequest | None,
    envelope: WhitelistEnvelope,
    fields: Mapping[str, Any],
    settings: ClientSettings,
    *,
    tenant_id: str | None = None,
) -> Comparison:
    """
    Compare a request at the service with the requested content, key by key.

    :param requested: the requested content; None: any value of the known keys is accepted.
    :param envelope: the request. If its payload has no network, as with many services, the envelope's network is
        compared. If no network was requested, this must be the main network.
    :param fields: the request's payload, or the fields that signatures prove.
    :param settings: the client's settings. The keys in ``accept_fields`` may have a value that was not requested. With
        :data:`ENVELOPE_ACTION` among them, an unknown word in the envelope's ``action`` is accepted.
    :param tenant_id: the tenant of the signing user. Default None: unknown.
    :return: the comparison.
    """
    spelling = _find_spelling(requested, fields, envelope.network)
    keys = [
        _decide(each, spelling, settings.accept_fields) for each in _compare_keys(requested, fields, envelope.network)
    ]
    unaccounted = [each for each in keys if each.state == "not requested"]
    refused = [each for each in keys if each.state in ("differs", "not requested") and not each.is_by_service]
    unsigned = []
    if requested is not None and requested.network and envelope.network and fields.get("network") in (None, ""):
        unsigned.append("network")
    if requested is not None and requested.visibility_group_id:
        unsigned.append("visibility_group_id")
    return Comparison(
        faults=tuple(each.fault for each in keys if each.fault),
        unaccounted=tuple(each.key for each in unaccounted),
        differs=tuple(each.name for each in refused if not _is_unknown(each)),
        unknown=tuple(each.name for each in refused if _is_unknown(each)),
        filled_in=tuple(each.key for each in keys if each.state == "filled in"),
        spelling=_by_field(spelling, requested),
        unsigned=tuple(unsigned),
        contradictions=tuple(_find_contradictions(requested, envelope, fields, settings, tenant_id)),
    )


def _is_unknown(each: KeyComparison) -> bool:
    return each.state == "not requested" and each.key not in PAYLOAD_KEYS


def _decide(each: KeyComparison, spelling: Collection[str], accepted: Collection[str]) -> KeyComparison:
    """Return a key's comparison. A difference that is only in spelling, or is accepted by name, is no longer one."""
    if each.fault and each.key in spelling:
        return each._replace(state="spelled")
    if each.state == "not requested" and each.key in accepted:
        return each._replace(state="filled in", fault="")
    return each


def check_asked(
    requested: WhitelistRequest | None,
    envelope: WhitelistEnvelope,
    fields: Mapping[str, Any],
    settings: ClientSettings,
    *,
    tenant_id: str | None = None,
) -> Comparison:
    """
    Refuse a request that differs from the requested content, or contradicts itself.

    The parameters are those of :func:`compare`.

    :return: the comparison.
    :raises CustodyRequestError: if the request is refused; the error names the fields or contradictions.
    """
    comparison = compare(requested, envelope, fields, settings, tenant_id=tenant_id)
    if comparison.faults:
        names = [repr(sanitize(each, 60)) for each in comparison.unaccounted]
        why = "has unknown keys" if requested is None else "differs from the requested content"
        raise CustodyRequestError(
            f"whitelisting request {envelope.id} {why}: {name_some(comparison.faults)}",
            advice=f"If these values are acceptable although not requested, add {name_some(names)} to "
            f"{settings.name('accept_fields')}."
            if names
            else None,
            code="request-differs",
        )
    if comparison.contradictions:
        raise CustodyRequestError(
            f"whitelisting request {envelope.id} contradicts itself or the requested content: "
            f"{'; '.join(each.text for each in comparison.contradictions)}",
            code="request-differs",
        )
    return comparison


# --- the envelope ------------------------------------------------------------------------------------------


def _find_contradictions(
    requested: WhitelistRequest | None,
    envelope: WhitelistEnvelope,
    fields: Mapping[str, Any],
    settings: ClientSettings,
    tenant_id: str | None,
) -> Iterator[Contradiction]:
    """Yield the contradictions between an envelope and its payload, the requested content, or the user's tenant."""
    shown = {
        "tenantId": (envelope.tenant_id, tenant_id, "the tenant of this user"),
        "blockchain": (envelope.blockchain, fields.get("currency"), "the chain in its payload"),
        "network": (envelope.network, fields.get("network"), "the network in its payload"),
    }
    for name, (given, other, what) in shown.items():
        is_same = operator.eq if name == "tenantId" else _is_same_name
        if given and other and not is_same(given, other):
            yield Contradiction("envelope", f"its envelope's {name} {_quote(given)} is not {what}, {_quote(other)}")
    if requested is not None and requested.visibility_group_id not in (None, envelope.visibility_group_id):
        yield Contradiction(
            "envelope",
            f"its envelope's visibilityGroupID {_quote(envelope.visibility_group_id or '')} is not the requested "
            f"group, {_quote(requested.visibility_group_id)}",
        )
    shown_place = map(fields.get, ("address", "memo", "currency"))
    content: list[str] = [each for each in shown_place if each and isinstance(each, str)]
    if len(content) == 3 and (tag := tag_fault(*content)):
        yield Contradiction("envelope", f"its {tag}")
    action = envelope.action or ""
    if is_creation(action, accept_unknown=ENVELOPE_ACTION in settings.accept_fields):
        return
    fault = f"its envelope's action {_quote(action)} is not a known word for a creation (the words are not published"
    if is_creation(action, accept_unknown=True):
        place = settings.name("accept_fields")
        yield Contradiction(ENVELOPE_ACTION, f"{fault}: {ENVELOPE_ACTION!r} in {place} accepts it)")
    else:
        yield Contradiction("envelope", f"{fault})")


# The words of `action` are not published. Words for changes and deletions must not be accepted, not even by name.
_CREATING = frozenset({"create", "created", "creating", "creation", "add", "added", "new", "insert", "inserted"})
_OBJECTS = frozenset({"whitelist", "whitelisted", "whitelisting", "address", "request"})
_CHANGING = ("delet", "remov", "revok", "updat", "chang", "modif", "edit", "replac", "disabl", "suspend", "cancel")


# A listing repeats the same few words.
@lru_cache(maxsize=100)
def is_creation(action: str, *, accept_unknown: bool) -> bool:
    """
    Tell whether an envelope's action is the creation of an address. An empty action counts as a creation.

    :param action: the action.
    :param accept_unknown: whether to accept an unknown word, unless it may mean a change or a deletion.
    """
    words = {ascii_lower(each) for each in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^A-Za-z\s_.-]+", action)}
    if any(each in ascii_lower(action) for each in _CHANGING):
        return False
    return not action or accept_unknown or (bool(words & _CREATING) and words <= _CREATING | _OBJECTS)


# The words for deletions in _CHANGING. Words for other changes are left out: such a change may be of the address, so it
# is not a deletion.
_DELETING = _CHANGING[:3]


def is_deletion(action: str) -> bool:
    """Tell whether an envelope's action is the deletion of an address."""
    return any(each in ascii_lower(action) for each in _DELETING)


# --- the spelling ------------------------------------------------------------------------------------------


def _find_spelling(
    requested: WhitelistRequest | None, fields: Mapping[str, Any], outside: str | None
) -> dict[str, Any]:
    """
    Return the service's values of the keys that differ from the requested content only in spelling.

    :param requested: the requested content; None: any.
    :param fields: the payload.
    :param outside: the network in the envelope, which counts if the payload has no network.
    """
    if requested is None:
        return {}
    chain, found = chain_name(requested.chain), dict[str, Any]()
    currency, network = fields.get("currency"), fields.get("network") or outside
    if isinstance(currency, str) and chain_name(currency) == chain:
        found["currency"] = currency
    network = network if isinstance(network, str) else None
    if requested.network and network and network_name(network, chain) == network_name(requested.network, chain):
        found["network"] = network
    account = fields.get("exchangeAccountId")
    if type(account) is int and str(account) == requested.exchange_account_id:
        found["exchangeAccountId"] = account
    address, memo = fields.get("address"), fields.get("memo")
    if isinstance(address, str) and isinstance(memo, (str, type(None))):
        found |= _same_place(requested, address, memo, network)
    return {key: each for key, each in found.items() if (each or "") != (_asked(requested, PAYLOAD_KEYS[key]) or "")}


def _same_place(
    requested: WhitelistRequest, address: str, memo: str | None, network: str | None
) -> dict[str, str | None]:
    """
    Return the service's address and memo if they mean the same as the requested ones; or only those that do.

    Both are compared together, because an X-address may contain the memo as its tag.

    :param requested: the requested content.
    :param address: the address at the service.
    :param memo: the memo at the service; None: there is none.
    :param network: the network at the service; None: it is unknown.
    """
    # Fast path for nearly every request.
    if (address, memo or "") == (requested.address, requested.memo or ""):
        return {}
    ours = partial(canonical_place, requested.address, chain=chain_name(requested.chain), network=requested.network)
    theirs = partial(canonical_place, address, chain=chain_name(requested.chain), network=network)
    if ours(requested.memo) == theirs(memo):
        return {"address": address, "memo": memo}
    # If the addresses are the same when the memos are ignored, only the memos differ.
    return {"address": address} if ours(None) == theirs(None) else {}


def _by_field(spelling: Mapping[str, Any], requested: WhitelistRequest | None) -> dict[str, str | None]:
    """Return the values by field instead of key. Both ``blockchain`` and ``currency`` may name the chain."""
    found: dict[str, str | None] = {}
    for key, value in spelling.items():
        name = PAYLOAD_KEYS[key].field or key
        both = [each for each in ("blockchain", "currency") if getattr(requested, each)]
        found |= dict.fromkeys(both if name == "blockchain" else [name], str(value) if value else None)
    return found


# --- comparing one value -----------------------------------------------------------------------------------


def _is_same_name(asked: str, shown: object) -> bool:
    """Tell whether two names of chains or networks are the same, without regard to case."""
    return asked == shown or (isinstance(shown, str) and ascii_lower(asked) == ascii_lower(shown))


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
    """Quote a value for a message. Invisible characters are escaped, because two values may differ only in these."""
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
    :param is_same: compares the requested value with the service's value.
    :param is_list: whether the key's value is a list of links, and not a text.
    :param harmless: the value that the service uses for "not given".
    :param by_service: whether a value that was not requested may have been filled in by the service.
    """

    field: str | None
    is_same: Callable[[Any, Any], bool] = operator.eq
    is_list: bool = False
    harmless: str = ""
    by_service: bool = False


#: The keys of a payload, in the published order.
PAYLOAD_KEYS: Mapping[str, _Key] = {
    # A payload names the chain `currency`.
    "currency": _Key("blockchain", _is_same_name),
    # The network is compared by `_compare_network`, not by this rule.
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
            yield KeyComparison(name, name, "differs", f"{name} (not a list of links)")
    for name, value in payload.items():
        if name not in PAYLOAD_KEYS:
            yield _unasked_key(_unknown(name))._replace(is_by_service=value in (None, "", [], {}))


def _asked(request: WhitelistRequest, key: _Key) -> Any:
    if key.field is None:
        return None
    return request.chain if key.field == "blockchain" else getattr(request, key.field)


def _compare_network(request: WhitelistRequest, shown: object, outside: str | None) -> KeyComparison:
    """
    Compare the network. If no network was requested, the service may only fill in the main network.

    :param request: the requested content.
    :param shown: the network in the payload.
    :param outside: the network in the envelope, which counts if the payload has no network.
    """
    name, asked = "network", request.network
    if not outside or shown not in (None, ""):
        found = _compare_key(name, PAYLOAD_KEYS[name], asked, shown)
        is_main = asked is None and isinstance(shown, str) and _is_main(shown, request)
        return found._replace(is_by_service=is_main)
    if asked == outside or (asked is None and _is_main(outside, request)):
        return KeyComparison(name, name)
    if asked is not None:
        return KeyComparison(name, name, "differs", _describe_difference(name, asked, outside))
    return KeyComparison(name, name, "not requested", f"{name} (not requested, shown {_value(outside)})")


def _is_main(network: str, request: WhitelistRequest) -> bool:
    return network_name(network, request.chain) == "mainnet"


def _compare_key(name: str, key: _Key, asked: Any, shown: object) -> KeyComparison:
    field = key.field or name
    is_valid = _are_links(shown) if key.is_list else isinstance(shown, str)
    if asked is not None:
        is_same = key.is_same(asked, shown) or (asked == key.harmless and shown in (None, ""))
    elif shown in (None, "", []):
        # Even an empty value must have the key's type; only null is accepted for every key.
        is_same = shown is None or is_valid
    elif is_valid:
        if key.harmless and shown == key.harmless:
            return KeyComparison(name, field, "filled in")
        return _unasked_key(name, field)._replace(is_by_service=key.by_service)
    else:
        is_same = False
    if is_same:
        return KeyComparison(name, field)
    return KeyComparison(name, field, "differs", _describe_difference(field, asked, shown))


def _describe_difference(field: str, asked: Any, shown: object) -> str:
    hidden = hidden_difference(asked, shown, _MAX_VALUE) if isinstance(asked, str) and isinstance(shown, str) else ""
    return f"{field} (requested {_value(asked)}, shown {_value(shown)}{hidden and f'; they differ {hidden}'})"


def _unasked_key(key: str, field: str | None = None) -> KeyComparison:
    return KeyComparison(key, field or key, "not requested", f"{sanitize(key, 60)} (not requested)")


def _unknown(key: str) -> str:
    """Return the name of an unknown key in ``accept_fields``; quoted if it could be confused with another key."""
    return key if key == sanitize(key, 60) and "." not in key else _quote(key)


def _compare_links(name: str, links: Sequence[Mapping[str, Any]]) -> Iterator[KeyComparison]:
    for key in dict.fromkeys(key for link in links for key in link):
        if key not in LINK_KEYS:
            yield _unasked_key(f"{name}.{_unknown(key)}")
        elif key != "id":
            yield KeyComparison(f"{name}.{key}", f"{name}.{key}", "filled in")
