"""The sandbox's behaviour where the interface leaves it open, or where a test needs another."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ListingName = Literal["whitelist", "webhooks", "webhook-calls"]


class ListingSettings(BaseModel):
    """
    The behaviour of a listing.

    :param page_size: maximum number of rows on a page, whatever is asked for.
    :param totals: the ``totalItems`` of the next calls, the last of all that follow; None leaves it out.
    :param ignored: query parameters that it ignores, by their names; ``cursor`` stands for all of its own.
    :param orders: ids of the rows that the next calls list, in this order, the last of all that follow; a call lists no
        other rows.
    """

    model_config = ConfigDict(extra="forbid")

    page_size: Annotated[int, Field(ge=1)] | None = None
    totals: list[str | int | None] = []
    ignored: list[str] = []
    orders: list[list[str]] = []


class CallSettings(BaseModel):
    """
    How the service writes, keeps and lists the calls to webhooks.

    :param order: whether calls are listed as they were ``created``, or as they were ``written``.
    :param ids: ``number`` or ``uuid``.
    :param resolution: seconds to which time stamps are cut off, so that some are equal.
    :param max_age: seconds after which a call is removed.
    :param max_number: maximum number of calls kept.
    """

    model_config = ConfigDict(extra="forbid")

    order: Literal["created", "written"] = "created"
    ids: Literal["number", "uuid"] = "number"
    resolution: Annotated[float, Field(ge=0)] = 0.0
    max_age: Annotated[float, Field(ge=0)] | None = None
    max_number: Annotated[int, Field(ge=0)] | None = None


class Settings(BaseModel):
    """
    The settings of a sandbox. The defaults are those of a fresh one; most of this is not published.

    From ``currencies`` to ``second_requests`` they are about whitelisting requests that are created from now on, and
    from ``status_words`` to ``forged`` about all.

    :param version: the version that it imitates; before 3.14 it has no health operations.
    :param clock_offset: seconds that its clock is ahead, by which it dates requests and tokens and checks API keys;
        negative is behind.
    :param token_lifetime: seconds that the JWTs live that are issued from now on.
    :param superadmins: number of super-administrators who sign the rules.
    :param superadmin_minimum: number of them who must.
    :param listings: behaviour of ``whitelist``, ``webhooks`` and ``webhook-calls``, each a :class:`ListingSettings`.
    :param calls: writing, keeping and listing of calls to webhooks, a :class:`CallSettings`.
    :param currencies: the active currencies; an address on another chain is refused.
    :param address_form: form of stored addresses: ``as sent``, ``lower``, ``upper``, ``no prefix``.
    :param label_length: length to which longer labels are truncated.
    :param chain_name: the service's name for the chain.
    :param drop_links: whether the payload leaves the links out.
    :param fill: fields, by their names on the wire, that get a value if the request leaves them out.
    :param created_at: the date of creation, whenever that is.
    :param second_requests: whether a second request for an address is taken; otherwise it is refused with a 409.
    :param status_words: spelling of status words, by the sandbox's own, such as ``{"pending": "NEW"}``.
    :param network_is_hashed: whether payloads have the network; otherwise only the envelopes have it.
    :param creator_sees_own: whether a user's own requests are listed to that user.
    :param rules_on_pending: whether pending requests show the rules in force; those that have been signed show the
        rules of that time.
    :param whitelist_lag: seconds after which a request can be found.
    :param max_signatures: number of requests of an approval that are signed, from the first; None: all.
    :param forged: ids of requests that are shown with another address than the one that was signed.
    """

    model_config = ConfigDict(extra="forbid")

    version: Annotated[str, StringConstraints(pattern=r"^\d{1,9}(\.\d{1,9}){0,3}$")] = "3.20"
    clock_offset: float = 0.0
    token_lifetime: float = 1800.0
    superadmins: Annotated[int, Field(ge=1, le=100)] = 2
    superadmin_minimum: Annotated[int, Field(ge=1)] = 2
    listings: dict[ListingName, ListingSettings] = {}
    calls: CallSettings = CallSettings()

    currencies: list[str] = ["ETH", "BTC", "XRP", "SOL", "ADA", "XLM"]
    address_form: Literal["as sent", "lower", "upper", "no prefix"] = "as sent"
    label_length: Annotated[int, Field(ge=1)] | None = None
    chain_name: str | None = None
    drop_links: bool = False
    fill: dict[str, str] = {}
    created_at: str | None = None
    second_requests: bool = True

    status_words: dict[str, str] = {}
    network_is_hashed: bool = True
    creator_sees_own: bool = True
    rules_on_pending: bool = True
    whitelist_lag: float = 0.0
    max_signatures: Annotated[int, Field(ge=0)] | None = None
    forged: list[str] = []
