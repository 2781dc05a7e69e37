"""
Check that the chains of new requests are active at the service.

A whitelisting request requires an active currency. Where the service offers ``GET /currencies``, a request whose chain
is listed as not active is refused, before anything is sent or put up for approval. A chain that is not listed only
causes a warning, because the service may know it by another name. If the service does not offer this operation, nothing
is checked here, and the service itself refuses such a request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyError, CustodyRequestError
from airflow_custody.client.text import lines, name_some, sanitize
from airflow_custody.client.whitelist.addresses.checks import ETH, chain_name, network_name, read_evm_network

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient
    from airflow_custody.client.tenant.models import Currency
    from airflow_custody.client.whitelist.models import WhitelistRequest

log = logging.getLogger(__name__)

#: What to do about a chain that is not active.
ADVICE = "Ask the service's administrators to enable the chain, then try again."


@dataclass(frozen=True)
class ListedChains:
    """
    The chains that the service lists.

    :param chains: the currencies of the chains themselves, without tokens and fiat currencies; None: the chains are not
        known, so nothing is checked.
    """

    chains: Sequence[Currency] | None

    def why_refused(self, request: WhitelistRequest) -> str:
        """Return why a request must not be sent: the service lists its chain as not active. Empty: it may be sent."""
        found = self._find(request)
        if not found or any(each.enabled for each in found):
            return ""
        network = f" (network {sanitize(request.network, 40)})" if request.network else ""
        return f"the chain {sanitize(request.chain, 40)}{network} is not enabled at the service"

    def warnings(self, requests: Iterable[WhitelistRequest]) -> list[str]:
        """Return a warning for each chain that is not listed, with the listed chains of a similar name."""
        missing = {each.chain: None for each in requests if self.chains is not None and not self._find(each)}
        return [self._describe_missing(chain) for chain in missing]

    def _find(self, request: WhitelistRequest) -> list[Currency]:
        """
        Return the entries for a request's chain: those on its network, or else those on any network.

        On ETH, the network may name another chain. Such a chain may be listed by itself or as a network of ETH.
        """
        chain = request.chain.casefold()
        listed = [each for each in self.chains or () if chain in (each.blockchain.casefold(), each.symbol.casefold())]
        if not request.network:
            return listed
        asked = network_name(request.network, request.chain)
        same = [each for each in listed if each.network and network_name(each.network, request.chain) == asked]
        meant = read_evm_network(asked) if chain_name(request.chain) == ETH else None
        if meant is not None and meant[0] != ETH:
            same += [each for each in self.chains or () if chain_name(each.blockchain or each.symbol) == meant[0]]
        return same or listed

    def _describe_missing(self, chain: str) -> str:
        listed = self.chains or ()
        by_name: dict[str, list[Currency]] = {}
        for each in listed:
            for name in {each.symbol, each.blockchain, each.name, each.display_name}:
                by_name.setdefault(name.casefold(), []).append(each)
        names = get_close_matches(chain.casefold(), [*by_name], n=5)
        similar = [each for each in listed if chain_name(each.blockchain or each.symbol) == chain_name(chain)]
        similar += [each for name in names for each in by_name[name]]
        which = f"Similar chains: {_name(similar)}" if similar else f"Listed chains: {_name(listed) or 'none'}"
        return f"The service does not list the chain {sanitize(chain, 40)}, and may refuse it. {which}."


def _name(chains: Iterable[Currency]) -> str:
    """Return the names of chains, each once: ``ETH (Ethereum), DOT (not enabled)``."""
    texts = []
    for each in chains:
        symbol = each.blockchain or each.symbol
        name = each.display_name or each.name
        facts = [name] if name.casefold() != symbol.casefold() else []
        facts += [f"network {each.network}"] if each.network else []
        facts += [] if each.enabled else ["not enabled"]
        more = f" ({', '.join(filter(None, facts))})" if any(facts) else ""
        texts.append(sanitize(f"{symbol}{more}", 80))
    return name_some(list(dict.fromkeys(texts)))


def read_chains(client: CustodyClient) -> ListedChains:
    """
    Read the chains that the service lists, active or not.

    If the response is neither a listing nor "not offered", a warning is logged, and nothing is checked. Such a
    response, like a gateway's page or a missing role, says nothing about a chain, so it must not prevent a create that
    the service would accept. The service itself checks the chain.

    :param client: the client.
    :raises CustodyError: if the service cannot be read now, or rejects the credentials; nothing was created.
    """
    try:
        return ListedChains([each for each in client.list_currencies() if each.is_chain])
    except CustodyError as error:
        if error.not_offered_by_service:
            return ListedChains(None)
        # Without a status, there was no response. A 501 counts as retryable, but it means "not offered".
        is_answer = error.status not in (None, 401) and (error.not_offered or not error.retryable)
        if not is_answer:
            raise
        text = "Whether the chain is enabled is not checked, because the currencies cannot be read:"
        log.warning("%s", lines(text, str(error)))
        return ListedChains(None)


def check_chains(client: CustodyClient, requests: Mapping[str, WhitelistRequest]) -> list[str]:
    """
    Check the chains of new requests. This takes one call, or none if there are no requests.

    :param client: the client.
    :param requests: the requests, by their place, such as ``line 12``.
    :return: a warning for each chain that the service does not list.
    :raises CustodyRequestError: if the service lists chains as not enabled; the error names all of their requests.
    :raises CustodyError: (of another type) if the service cannot be read now.
    """
    if not requests:
        return []
    listed = read_chains(client)
    refused: dict[str, list[str]] = {}
    for place, request in requests.items():
        if why := listed.why_refused(request):
            refused.setdefault(why, []).append(place)
    if refused:
        faults = [f"{why}: {', '.join(places)}" for why, places in refused.items()]
        advice = lines(ADVICE, *listed.warnings(requests.values()))
        raise CustodyRequestError(f"{'; '.join(faults)}; nothing is sent", code="chain-disabled", advice=advice)
    return listed.warnings(requests.values())
