"""Operators that work with whitelisting requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.task_failures import failing_the_task

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import WhitelistRequest

# The operator's attribute for each field of a request: every operator has a read-only property "label" already.
_ATTRIBUTES = {
    "label": "address_label",
    **{
        name: name
        for name in (
            "address",
            "blockchain",
            "currency",
            "linked_internal_address_ids",
            "linked_wallet_ids",
            "network",
            "memo",
            "address_type",
            "contract_type",
            "customer_id",
            "exchange_account_id",
            "visibility_group_id",
        )
    },
}


class CustodyCreateWhitelistRequestOperator(BaseOperator):
    """
    Create a request to whitelist a destination address, and hand on its id.

    The request has no effect until it is signed; the signing step needs the id. Creating is part of the given
    interface and needs the roles ``WhitelistedAddressCreator`` and ``TPUser``; the currency must be active in the
    hardware security module, and the address must follow the rules of its chain.

    The service has no idempotency key, so a request that was sent is never sent again by this operator: if its
    answer is lost, cut or a 5xx, the task fails without retries and says that the request may exist. Killing the
    task does not take the request back.

    :param label: label of the address. (templated)
    :param address: the destination address, taken exactly as it is given. (templated)
    :param blockchain: symbol of the chain, say ``ETH``; or name it by ``currency``. (templated)
    :param currency: the chain by its other name, which the given interface's samples use. Exactly the one that is
        given travels; both must be equal. (templated)
    :param linked_internal_address_ids: only funds from these internal addresses may go there. (templated)
    :param linked_wallet_ids: only funds from these wallets may go there. (templated)
    :param network: network of the chain (published knowledge, as all that follow). (templated)
    :param memo: memo or destination tag that goes with the address. (templated)
    :param address_type: kind of the address, say ``individual`` or ``exchange``. (templated)
    :param contract_type: kind of the contract behind the address. (templated)
    :param customer_id: the customer the address belongs to. (templated)
    :param exchange_account_id: the account at the exchange. (templated)
    :param visibility_group_id: group of users who see the address. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the request's id, a string.
    :raises AirflowFailException: if the request is wrong or refused, or if it may have been created.
    """

    template_fields: Sequence[str] = ("custody_conn_id", *_ATTRIBUTES.values())
    ui_color = "#e3f0dc"

    def __init__(
        self,
        *,
        label: str,
        address: str,
        blockchain: str | None = None,
        currency: str | None = None,
        linked_internal_address_ids: Iterable[str] | None = None,
        linked_wallet_ids: Iterable[str] | None = None,
        network: str | None = None,
        memo: str | None = None,
        address_type: str | None = None,
        contract_type: str | None = None,
        customer_id: str | None = None,
        exchange_account_id: str | None = None,
        visibility_group_id: str | None = None,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.address_label = label
        self.address = address
        self.blockchain = blockchain
        self.currency = currency
        self.linked_internal_address_ids = linked_internal_address_ids
        self.linked_wallet_ids = linked_wallet_ids
        self.network = network
        self.memo = memo
        self.address_type = address_type
        self.contract_type = contract_type
        self.customer_id = customer_id
        self.exchange_account_id = exchange_account_id
        self.visibility_group_id = visibility_group_id
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> str:
        """Create the request and return its id."""
        with failing_the_task():
            request = self._request()
            chain = request.blockchain or request.currency
            address = _shortened(request.address)
            with CustodyHook(self.custody_conn_id).get_conn() as client:
                self.log.info("Creating a whitelisting request for %s on %s.", address, chain)
                request_id = client.create_whitelist_request(request)
            self.log.info("Created whitelisting request %s for %s on %s.", request_id, address, chain)
            return request_id

    def _request(self) -> WhitelistRequest:
        from airflow_custody.client import WhitelistRequest

        given = {name: getattr(self, attribute) for name, attribute in _ATTRIBUTES.items()}
        for name, value in given.items():
            # What a template makes of a value that is not there, say an XCom that nobody pushed.
            if isinstance(value, str) and value.strip() == "None":
                raise CustodyRequestError(
                    f"{name} is the text 'None': its template found no value; nothing was sent",
                    operation="create whitelisting request",
                )
        return WhitelistRequest(**{name: _plain(value) for name, value in given.items() if value is not None})


def _plain(value: Any) -> Any:
    """Turn a lazy sequence, as mapped tasks get from XCom, into a list."""
    return value if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable) else list(value)


def _shortened(address: str) -> str:
    """Return enough of an address to recognise it in a log."""
    return address if len(address) <= 16 else f"{address[:8]}…{address[-6:]}"
