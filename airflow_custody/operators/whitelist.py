"""Operators that work with whitelisting requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_custody.client.errors import CustodyRequestError, CustodyResponseError
from airflow_custody.create_once import CreateOnce, OnClear, Seen
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.task_failures import failing_the_task, use_custody_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import CustodyClient, WhitelistEnvelope, WhitelistRequest

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

    One task instance creates at most one request, however often it is retried, killed or run twice. The service has
    no idempotency key, so the operator writes down its intent before it sends (Airflow 3.3: in the task state store;
    earlier versions have none), and when an answer is lost, cut or a 5xx, or an earlier try left no result, it looks
    for the request at the service before it sends again. The look-up is published knowledge, not part of the given
    interface. Where it is not offered, or what it finds is not clear, the task fails without retries and says how to
    go on. Killing the task does not take the request back.

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
    :param on_clear: what happens when a person clears the task after it has created its request. ``reuse``
        (default): the same request is taken again if it still exists. ``create``: another one is created. If the
        outcome of the earlier try is not known, it is found out first in both cases.
    :param look_before_create: whether to look, before the first send, which requests of the same content are there
        already: one more call. Without it, a request that is found later can be taken only if its date shows that it
        is this task's. Default True.
    :param lookup_wait: seconds that the service may take to show in a look-up what it has created. Default 30.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the request's id, a string. XCom also gets, under the key ``request``, what was asked for: the fields
        that were given, and ``id``.
    :raises AirflowFailException: if the request is wrong or refused, or if it can not be known whether it exists.
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
        on_clear: OnClear = "reuse",
        look_before_create: bool = True,
        lookup_wait: float = 30.0,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        if on_clear not in ("reuse", "create"):
            raise ValueError(f"on_clear must be 'reuse' or 'create', not {on_clear!r}")
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
        self.on_clear = on_clear
        self.look_before_create = look_before_create
        self.lookup_wait = lookup_wait
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> str:
        """Create the request unless an earlier try did, and return its id."""
        with failing_the_task(self):
            request = self._request()
            with CustodyHook(self.custody_conn_id).get_conn() as client:
                request_id = CreateOnce(
                    context,
                    _WhitelistRequestCreation(client, request),
                    self.log,  # type: ignore[arg-type]
                    on_clear=self.on_clear,
                    look_before_create=self.look_before_create,
                    lookup_wait=self.lookup_wait,
                ).run()
            # What was asked for, so that whoever approves can compare it with what the service shows.
            context["ti"].xcom_push(key="request", value={"id": request_id, **request.model_dump(exclude_none=True)})
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


class _WhitelistRequestCreation:
    """Say how a whitelisting request is created and found again."""

    what = "whitelisting request"

    def __init__(self, client: CustodyClient, request: WhitelistRequest) -> None:
        self._client = client
        self._request = request
        self.timeout = client.timeout
        self.which = f"{_shortened(request.address)} on {request.blockchain or request.currency}"
        self.content: Mapping[str, object] = {"service": client.base_url, **request.model_dump(exclude_none=True)}

    def send(self, before_send: Callable[[], None]) -> str:
        return self._client.create_whitelist_request(self._request, before_send=before_send)

    def look(self, request_id: str | None = None) -> Iterator[Seen]:
        # Only by the address: how the service spells a chain is its own affair.
        if request_id is None:
            found = self._client.find_whitelist_requests(addresses=[self._request.address])
        else:
            found = self._client.find_whitelist_requests(ids=[request_id])
        return (self._seen(envelope) for envelope in found)

    def _seen(self, envelope: WhitelistEnvelope) -> Seen:
        from airflow_custody.client.envelopes import compare

        try:
            found = compare(self._request, envelope.payload())
        except CustodyResponseError as error:
            return Seen(envelope.id, same=False, unclear=str(error), created_at=envelope.created_at)
        unclear = "" if found.differing or not found.unclear else f"it leaves open: {', '.join(found.unclear)}"
        return Seen(envelope.id, same=found.same, unclear=unclear, created_at=envelope.created_at)


def _plain(value: Any) -> Any:
    """Turn a lazy sequence, as mapped tasks get from XCom, into a list."""
    return value if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable) else list(value)


def _shortened(address: str) -> str:
    """Return enough of an address to recognise it in a log."""
    return address if len(address) <= 16 else f"{address[:8]}…{address[-6:]}"
