"""The settings of the sandbox: unpublished behaviour of the service, and behaviour that tests change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

#: Method and path below ``/api/rest/v1``; a parameter of the path is written as ``{id}``.
OperationName = Annotated[str, StringConstraints(pattern=r"^[A-Z]+ /\S+$")]
StatusWord = Literal["pending", "APPROVED", "rejected", "removed"]
ListingName = Literal["whitelist", "webhooks", "webhook-calls"]


class ListingSettings(BaseModel):
    """
    The behaviour of a listing.

    :param page_size: maximum number of rows on a page, even if more are requested.
    :param totals: the ``totalItems`` of each of the next calls; the last value is repeated. None omits the field.
    :param ignored: names of query parameters to ignore; ``cursor`` stands for all ``cursor.*`` parameters.
    :param orders: for each of the next calls, the ids of the rows to list, in order; the last list is repeated. No
        other rows are listed.
    :param dropped: ids of rows that are counted but not returned, as if their signatures were invalid. Only for
        ``whitelist``.
    :param dropped_keep_place: whether a dropped row still counts in the offsets, so that its page is shorter.
        Otherwise, the next row takes its place.
    """

    model_config = ConfigDict(extra="forbid")

    page_size: Annotated[int, Field(ge=1)] | None = None
    totals: list[str | int | None] = []
    ignored: list[str] = []
    orders: list[list[str]] = []
    dropped: list[str] = []
    dropped_keep_place: bool = True


class CallSettings(BaseModel):
    """
    Settings for writing, keeping and listing calls to webhooks.

    :param order: the order of listing, by time: ``created`` or ``written``.
    :param ids: the form of ids: ``number`` or ``uuid``.
    :param resolution: resolution of time stamps, in seconds. A coarse resolution makes time stamps equal.
    :param max_age: age at which a call is removed, in seconds. None: calls are never removed by age.
    :param max_number: maximum number of calls to keep. None: no maximum.
    """

    model_config = ConfigDict(extra="forbid")

    order: Literal["created", "written"] = "created"
    ids: Literal["number", "uuid"] = "number"
    resolution: Annotated[float, Field(ge=0)] = 0.0
    max_age: Annotated[float, Field(ge=0)] | None = None
    max_number: Annotated[int, Field(ge=0)] | None = None


class Settings(BaseModel):
    """
    The settings of a sandbox, with the defaults of a fresh sandbox.

    Most of this behaviour is not published. The settings from ``currencies`` to ``second_requests`` apply to
    whitelisting requests that are created from now on. The settings from ``status_words`` to ``forged`` apply to all
    whitelisting requests.

    :param version: the imitated version of the service. Before 3.14, there are no health operations.
    :param operations: the operations that the service offers: ``all``, or only the four of the ``contract`` (health
        listing, creating a whitelisting request, changing and deleting a webhook). All other operations get a 404.
    :param not_offered: operations that the service does not offer, such as ``GET /currencies``. They get a 404.
    :param disabled: operations that are disabled for the tenant, such as ``GET /rules`` or ``PATCH /webhooks/{id}``.
        They get a 403 that names no role.
    :param webhook_response: the body of successful responses to changing and deleting a webhook, as JSON data. A text
        is sent as a web page, and an empty text as no body. None: responses have the published forms.
    :param clock_offset: seconds by which the service's clock is ahead; negative if it is behind. The clock dates
        responses, health entries, requests and tokens, and checks API keys.
    :param token_lifetime: lifetime of the JWTs issued from now on, in seconds.
    :param superadmin_minimum: number of super-administrators whose signatures are required; two sign the rules.
    :param listings: behaviour of ``whitelist``, ``webhooks`` and ``webhook-calls``, each a :class:`ListingSettings`.
    :param calls: writing, keeping and listing of calls to webhooks, a :class:`CallSettings`.
    :param cooling_word: the status word of an enabled webhook that is cooling down after failed deliveries.
    :param enabling_ends_cooling: whether enabling a webhook ends its cool-down.
    :param computes_enforced: whether ``GET /users/me`` tells on demand whether user and key are in the rules in force.
    :param currencies: the active currencies, as ``CHAIN`` or ``CHAIN/network``. An address on another chain is
        rejected.
    :param disabled_currencies: currencies that are listed as not active.
    :param unusable_links: ids of internal addresses that are on another chain or in an omnibus wallet. A request that
        is linked to one of these is rejected.
    :param address_form: form of stored addresses: ``as sent``, ``lower``, ``upper``, ``no prefix``.
    :param label_length: length to which longer labels are truncated. None: labels are not truncated.
    :param chain_name: name under which the chain is stored. None: the name of the currency.
    :param drop_links: whether the linked addresses and wallets are left out of the payload.
    :param fill: values for fields that the request leaves out, by their names on the wire.
    :param created_at: fixed date of creation. None: the current time.
    :param second_requests: whether a second request for an address is accepted; otherwise it is rejected with a 409.
    :param status_words: the service's spelling of the sandbox's words ``pending``, ``APPROVED``, ``rejected`` and
        ``removed``, such as ``{"pending": "NEW"}``.
    :param network_is_hashed: whether payloads contain the network; otherwise only the envelopes contain it.
    :param creator_sees_own: whether a user's own requests are listed to that user.
    :param rules_on_pending: whether pending requests contain the rules in force. Signed requests always contain the
        rules under which they took effect.
    :param whitelist_lag: seconds until a new request can be found.
    :param max_signatures: maximum number of requests that one approval signs, counted from the first. None: all.
    :param forged: ids of requests that are returned with an address other than the signed address.
    """

    model_config = ConfigDict(extra="forbid")

    version: Annotated[str, StringConstraints(pattern=r"^\d{1,9}(\.\d{1,9}){0,3}$")] = "3.20"
    operations: Literal["all", "contract"] = "all"
    not_offered: list[OperationName] = []
    disabled: list[OperationName] = []
    webhook_response: dict[str, object] | list[object] | str | None = None
    clock_offset: float = 0.0
    token_lifetime: float = 1800.0
    superadmin_minimum: Annotated[int, Field(ge=1)] = 2
    listings: dict[ListingName, ListingSettings] = {}
    calls: CallSettings = CallSettings()
    cooling_word: str = "TIMEOUT"
    enabling_ends_cooling: bool = True
    computes_enforced: bool = True

    currencies: list[str] = ["ETH", "BTC", "XRP", "SOL", "ADA", "XLM"]
    disabled_currencies: list[str] = []
    unusable_links: list[str] = []
    address_form: Literal["as sent", "lower", "upper", "no prefix"] = "as sent"
    label_length: Annotated[int, Field(ge=1)] | None = None
    chain_name: str | None = None
    drop_links: bool = False
    fill: dict[str, str] = {}
    created_at: str | None = None
    second_requests: bool = True

    status_words: dict[StatusWord, str] = {}
    network_is_hashed: bool = True
    creator_sees_own: bool = True
    rules_on_pending: bool = True
    whitelist_lag: float = 0.0
    max_signatures: Annotated[int, Field(ge=0)] | None = None
    forged: list[str] = []
