"""Is a request at the service what was asked for? Pure functions, no I/O."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from airflow_custody.client.whitelist.models import WhitelistRequest

Verdict = Literal["same", "differs", "unclear"]

#: The fields of a request that :func:`compare` leaves out, and why.
NOT_COMPARED: Mapping[str, str] = {
    "currency": "another name of blockchain, which is compared",
    "visibility_group_id": "not part of the payload, so approvers do not sign it: it says who may see the address",
}


@dataclass(frozen=True)
class Comparison:
    """
    How a payload compares with a request.

    :param verdicts: one for each field of the request that the payload covers.
    """

    verdicts: Mapping[str, Verdict]

    @property
    def differing(self) -> tuple[str, ...]:
        """The fields in which the payload certainly asks for something else."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict == "differs")

    @property
    def unclear(self) -> tuple[str, ...]:
        """The fields of which the payload shows too little, or in another spelling, to tell."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict == "unclear")

    @property
    def same(self) -> bool:
        """Whether the payload is what was asked for, in every field."""
        return not self.differing and not self.unclear


def compare(request: WhitelistRequest, payload: Mapping[str, Any]) -> Comparison:
    """
    Compare what was asked for with a verified payload, field by field.

    Takes neither a different spelling nor a missing field for a difference, nor for the same: one would create a
    request twice, the other would take somebody else's.

    :param request: what was asked for.
    :param payload: what :meth:`WhitelistEnvelope.payload` returned.
    :return: a verdict for each field.
    """
    return Comparison(
        {
            "blockchain": _compare_chain(request.chain, payload.get("currency")),
            "address": _compare_text(request.address, payload.get("address")),
            "label": _compare_text(request.label, payload.get("label")),
            "memo": _compare_text(request.memo, payload.get("memo")),
            "customer_id": _compare_text(request.customer_id, payload.get("customerId")),
            "exchange_account_id": _compare_text(request.exchange_account_id, payload.get("exchangeAccountId")),
            "network": _compare_if_given(request.network, payload.get("network")),
            "address_type": _compare_if_given(request.address_type, payload.get("addressType")),
            "contract_type": _compare_if_given(request.contract_type, payload.get("contractType")),
            "linked_internal_address_ids": _compare_links(
                request.linked_internal_address_ids, payload.get("linkedInternalAddresses") or ()
            ),
            "linked_wallet_ids": _compare_wallets(request.linked_wallet_ids, payload.get("linkedWallets")),
        }
    )


def _compare_chain(asked: str, shown: object) -> Verdict:
    if not shown:
        return "unclear"
    return "same" if asked.casefold() == str(shown).casefold() else "differs"


def _compare_text(asked: str | None, shown: object) -> Verdict:
    asked, shown = asked or "", "" if shown is None else str(shown)
    if asked == shown:
        return "same"
    return "unclear" if not shown or _loosely(asked) == _loosely(shown) else "differs"


def _compare_if_given(asked: str | None, shown: object) -> Verdict:
    # What was left to the service may have got a value there.
    return "same" if asked is None else _compare_text(asked, shown)


def _compare_wallets(asked: Iterable[str] | None, shown: object) -> Verdict:
    # Only some payloads show the wallets: that there are none does not say that none were asked for.
    return "unclear" if asked and shown is None else _compare_links(asked, shown or ())


def _compare_links(asked: Iterable[str] | None, shown: object) -> Verdict:
    if not isinstance(shown, (list, tuple)) or not all(isinstance(link, Mapping) and link.get("id") for link in shown):
        return "unclear"
    return "same" if set(asked or ()) == {str(link["id"]) for link in shown} else "differs"


def _loosely(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
