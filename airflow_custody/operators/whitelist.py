"""The operators that create, delete and verify whitelisting requests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody._base import NOT_GIVEN, request_ids_or_skip
from airflow_custody.client.arguments import LOOKUP_WAIT, check_flag, check_text
from airflow_custody.client.errors import CustodyRequestError, CustodyVerificationError
from airflow_custody.client.text import count, escape, lines, sanitize
from airflow_custody.client.verification.trust import what_to_do
from airflow_custody.client.whitelist.hidden import HIDDEN_ADVICE
from airflow_custody.client.whitelist.ids import check_request_id
from airflow_custody.hooks._storage import StorageError, locate, write_location
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import (
    CustodyCreateOperator,
    CustodyOperator,
    WhitelistEventTask,
    delete_if_exists,
)
from airflow_custody.plugin.links import REQUEST_LINKS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, ObjectStoragePath, XComArg

    from airflow_custody.client import WhitelistRequest
    from airflow_custody.client.errors import CustodyError
    from airflow_custody.client.whitelist.verified import VerifiedWhitelist
    from airflow_custody.idempotency.create import OnClear
    from airflow_custody.idempotency.whitelist_creation import IfExists

_MAX_NAMED = 10


class CustodyCreateWhitelistRequestOperator(CustodyCreateOperator):
    """
    Create a request to whitelist a destination address, and return its id.

    The request has no effect until it is signed; pass the id to the signing task. Needs the roles
    ``WhitelistedAddressCreator`` and ``TPUser``. The currency must be active in the hardware security module, and the
    address must follow the rules of its chain. If the service lists its currencies (undocumented), nothing is sent if
    the chain is listed and not enabled, and a chain that is not listed causes a warning.

    One task instance creates at most one request, even if it is retried, killed or run twice. The service has no
    idempotency key. Therefore the operator records its intent before it sends (on Airflow 3.3, in the task state store;
    earlier versions have no store). If a response is lost, truncated, a 5xx or from a gateway, or if an earlier try
    left no result, the operator searches the service for the request before it sends again. This search is
    undocumented. An empty result is accepted only if the service lists other requests of the same user. If the service
    does not offer the search, or the result is unclear, the task fails without retries, and the error describes how to
    continue. A status 429 from the service means that nothing was created, so the request is then sent again, up to 20
    times. Killing the task does not withdraw the request.

    :param label: label of the address. (templated)
    :param address: the destination address, which is sent unchanged. (templated)
    :param blockchain: symbol of the chain, for example ``ETH``; or use ``currency``. (templated)
    :param currency: a deprecated alias of ``blockchain`` that some services expect. Of the two, only those that are set
        are sent. If both are set, they must be equal. (templated)
    :param linked_internal_address_ids: only these internal addresses may send funds to the address. (templated)
    :param linked_wallet_ids: only these wallets may send funds to the address. If both lists are set, the service may
        apply other approval thresholds. (templated)
    :param network: network of the chain. Default: the service's default. If the service's default is not the chain's
        main network, set this parameter; otherwise a request is neither reused nor signed. Some services name Polygon
        and other chains with Ethereum's addresses as a network of ``ETH``: write chain and network as the service does.
        This parameter and the next six are undocumented. (templated)
    :param memo: memo or destination tag that goes with the address. (templated)
    :param address_type: kind of the address, for example ``individual`` or ``exchange``. (templated)
    :param contract_type: kind of the contract behind the address. (templated)
    :param customer_id: the customer the address belongs to. (templated)
    :param exchange_account_id: the account at the exchange. (templated)
    :param visibility_group_id: group of users who see the address. (templated)
    :param if_exists: behaviour if a request with the same content for the same destination (chain, network, address and
        memo, compared as in a plan) is already pending or in effect, regardless of its creator. ``reuse`` (default):
        its id is returned, and nothing is sent. ``fail``: the task fails. ``create``: another request is created. With
        ``reuse`` and ``fail``, the task also fails without retries if a request for the same destination has other
        content, cannot be read or verified, or was rejected with the same content. Rejected requests with other content
        are ignored. This is a check before sending, not a lock: two tasks that run at the same time may both create.
    :param on_clear: behaviour if a user clears the task after it has created its request. ``reuse`` (default): the same
        request is used again if it still exists. ``create``: another request is created; this requires
        ``if_exists="create"``. In both cases, if the outcome of the earlier try is unknown, the task first finds out
        whether that try has created a request.
    :param look_before_create: whether to look up, before the first send, which requests for the same address exist.
        This takes one more call, or about five if such requests exist. Without this lookup, a request that is found
        after a lost response is used only if its date proves that it is new. False requires ``if_exists="create"``.
        Default True.
    :param lookup_wait: seconds that the service may take to list what it created. Default 30.
    :param check_address: whether to check the address against the rules of its chain, as far as they are known, before
        anything is sent. The task fails if the address is invalid for the chain, but not if the address cannot be
        checked. Default True.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the request's id, a string. The XCom ``request`` contains the requested content: the fields that are set,
        and ``id``. The XCom ``created`` tells whether this task created the request. If the task reused a request,
        chain, network and address are spelled as in that request.
    :raises AirflowFailException: if the request is wrong or refused, if its outcome is unknown, or because of
        ``if_exists``.
    :raises CustodyError: if the service cannot be searched for the request, or the create certainly had no effect;
        Airflow's retries apply.
    """

    template_fields: Sequence[str] = (
        "custody_conn_id",
        # A field "label" is impossible, because every Airflow operator has a read-only property of that name.
        "address_label",
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
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "linked_internal_address_ids": "json",
        "linked_wallet_ids": "json",
    }
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"

    def __init__(
        self,
        *,
        label: str | XComArg,
        address: str | XComArg,
        blockchain: str | XComArg | None = NOT_GIVEN,
        currency: str | XComArg | None = NOT_GIVEN,
        linked_internal_address_ids: Iterable[str] | XComArg | None = NOT_GIVEN,
        linked_wallet_ids: Iterable[str] | XComArg | None = NOT_GIVEN,
        network: str | XComArg | None = NOT_GIVEN,
        memo: str | XComArg | None = NOT_GIVEN,
        address_type: str | XComArg | None = NOT_GIVEN,
        contract_type: str | XComArg | None = NOT_GIVEN,
        customer_id: str | XComArg | None = NOT_GIVEN,
        exchange_account_id: str | XComArg | None = NOT_GIVEN,
        visibility_group_id: str | XComArg | None = NOT_GIVEN,
        if_exists: IfExists = "reuse",
        on_clear: OnClear = "reuse",
        look_before_create: bool = True,
        lookup_wait: float = LOOKUP_WAIT,
        check_address: bool = True,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        if if_exists not in ("reuse", "fail", "create"):
            self._refuse(f"if_exists must be 'reuse', 'fail' or 'create', not {if_exists!r}")
        if on_clear not in ("reuse", "create"):
            self._refuse(f"on_clear must be 'reuse' or 'create', not {on_clear!r}")
        self._check_numbers({"lookup_wait": lookup_wait})
        self._check_flags(look_before_create=look_before_create, check_address=check_address)
        if if_exists != "create" and (on_clear == "create" or not look_before_create):
            name = "on_clear='create'" if on_clear == "create" else "look_before_create=False"
            self._refuse(f"{name} requires if_exists='create', not {if_exists!r}")
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
        self.if_exists = if_exists
        self.on_clear = on_clear
        self.look_before_create = look_before_create
        self.lookup_wait = lookup_wait
        self.check_address = check_address

    def _run(self, context: Context, hook: CustodyHook) -> str:
        from airflow_custody.client import WhitelistRequest
        from airflow_custody.idempotency import create, whitelist_creation

        fields = {name: getattr(self, name) for name in WhitelistRequest.model_fields}
        request = WhitelistRequest(**{**fields, "label": self.address_label})
        if self.check_address:
            _check_address(request)
        creation = whitelist_creation.WhitelistCreation(hook.get_conn(), {create.ONE: request})
        created = self._create_once(
            context,
            creation,
            on_clear=self.on_clear,
            look_before_create=self.look_before_create,
            without_looking='if_exists="create", look_before_create=False',
            existing=None if self.if_exists == "create" else partial(creation.existing, self.if_exists),
            check=creation.check_chain,
            lookup_wait=self.lookup_wait,
        )
        self._linked_ids = (created.id,)
        # The signing task compares this content with the request at the service.
        content = created.reused or request.model_dump(exclude_none=True)
        context["ti"].xcom_push(key="request", value={"id": created.id, **content})
        context["ti"].xcom_push(key="created", value=created.reused is None)
        return created.id


class CustodyDeleteWhitelistRequestOperator(CustodyOperator):
    """
    Delete a whitelisting request.

    Needs the role ``WhitelistedAddressCreator``, and ``TPUser`` to read a request back. If the request does not exist,
    the task succeeds, because a retry after a lost response must succeed; the log and the returned value report that it
    did not exist. After a response that does not confirm the deletion, such as a gateway's 404, the task succeeds only
    if the service itself reports that the request does not exist. The operation is undocumented.

    :param request_id: the request's id. (templated)
    :param comment: why the request is deleted; not empty. (templated)
    :param only_if: whether to delete the request: True or False. In a teardown, ``create.output["created"]`` deletes
        only a request that the setup has created, not one that it has reused. Default True. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"request_id": ..., "deleted": ...}``; ``deleted`` is False if the request did not exist, or ``only_if``
        is False.
    :raises AirflowFailException: if the id, the comment or ``only_if`` is missing or malformed (nothing is sent), the
        service refuses the deletion, or it stays unknown whether the request exists.
    :raises CustodyError: if the request still exists after another response, or the service does not respond as it
        should; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("request_id", "comment", "only_if", "custody_conn_id")
    operator_extra_links = REQUEST_LINKS
    ui_color = "#f5dcd7"

    def __init__(
        self,
        *,
        request_id: str | int | XComArg,
        comment: str | XComArg,
        only_if: bool | str | XComArg = True,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_id = request_id
        self.comment = comment
        self.only_if = only_if

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        comment = check_text("comment", self.comment)
        request_id = check_request_id(self.request_id, "request_id")
        self._linked_ids = (request_id,)
        what = f"Whitelisting request {request_id}"
        if not check_flag("only_if", self.only_if):
            self.log.info("%s is not deleted, because only_if is False.", what)
            return {"request_id": request_id, "deleted": False}
        client = hook.get_conn()
        deleted = delete_if_exists(what, lambda: client.delete_whitelist_request(request_id, comment), self.log)
        return {"request_id": request_id, "deleted": deleted}


class CustodyVerifyWhitelistOperator(WhitelistEventTask):
    """
    Verify the whitelist's signatures, and write the evidence to a file.

    Does the same as ``custody whitelist verify --evidence``, with the connection's pinned keys. The verification
    requires that every request that is neither pending nor rejected is signed according to the rules; that each
    signature of a pending request is valid; that each of the ``ids`` is listed; and that the service counts no requests
    that it does not return. The log names the requests that fail the verification, and the task fails after it has
    written the evidence. If there are no requests, the task succeeds, and all counts are 0. Without pinned keys, the
    task fails and sends nothing. Needs the role ``TPUser``. The listing is undocumented.

    The command ``custody whitelist verify --from`` verifies the file again, without the service. If the service cannot
    be read completely, no file is written. A file appears only when it is complete, and never replaces an existing
    file. Therefore each try needs its own path, because an earlier try may have been killed right after it had written
    its file.

    :param path: the new file: an absolute path outside the DAG's bundle, in a folder that exists; or a URL or
        ``ObjectStoragePath`` (``s3://CONN_ID@bucket/key``) that is written with its Airflow connection. Default: no
        file. (templated)
    :param ids: ids of the requests to verify. Default: all. (templated)
    :param fail_on_unverified: whether the task fails if the verification of a request fails. Default True.
    :param skip_if_empty: whether the task is skipped if ``ids`` is an empty list, instead of failing. Default False.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"counts": {state: number}, "path": ..., "sha256": ..., "duplicates": [[id, ...], ...]}``. Without a
        file, ``path`` and ``sha256`` are None. The states are ``verified``, ``unverified``, ``pending``, ``rejected``
        and ``absent``. A pending request with an invalid signature counts as ``pending``, and an id that is not listed
        as ``absent``; both also make the task fail. The XCom is pushed even if the task fails because a verification
        failed. Each of the four values also has its own XCom key (``verify.output["path"]``).
    :raises AirflowFailException: if the verification of a request fails, no keys are pinned, the file exists already,
        or the service refuses the listing.
    :raises AirflowSkipException: if ``ids`` is an empty list, and ``skip_if_empty`` is True.
    :raises CustodyError: if the service cannot be read, or the file cannot be written now; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("path", "ids", "custody_conn_id")
    ui_color = "#dce6f5"

    def __init__(
        self,
        *,
        path: str | ObjectStoragePath | XComArg = NOT_GIVEN,
        ids: str | int | Iterable[str | int | XComArg] | XComArg = NOT_GIVEN,
        fail_on_unverified: bool = True,
        skip_if_empty: bool = False,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self._check_flags(fail_on_unverified=fail_on_unverified, skip_if_empty=skip_if_empty)
        self.path = path
        self.ids = ids
        self.fail_on_unverified = fail_on_unverified
        self.skip_if_empty = skip_if_empty

    def _run(self, context: Context, hook: CustodyHook) -> dict[str, Any]:
        from airflow_custody.client.whitelist.verified import verify_service

        ids = None
        if self.ids is not None:
            ids = request_ids_or_skip("ids", self.ids, skip_if_empty=self.skip_if_empty, merge=True)
        path, url = self._locate(context)
        found = verify_service(hook.get_conn(), ids)
        for each in found.unproved_text:
            self.log.warning("%s", each)
        self.log.info("%s", lines(*found.duplicates_text, found.summary))
        written: dict[str, str | None] = {"path": None, "sha256": None}
        if path or url:
            written = self._write(path, url, found)
        result = {"counts": found.counts, **written, "duplicates": [list(each) for each in found.duplicates]}
        if not found.is_proved and self.fail_on_unverified:
            self._push(context, result)
            raise _unverified(found, written["path"])
        if found.is_proved and found.counts["verified"]:
            self._emit(context, "verified", written, found.counts)
        return result

    def _locate(self, context: Context) -> tuple[str, str]:
        """Return the new file's local path and its URL. At least one of them is empty; without a file, both are."""
        if self.path is None:
            return "", ""
        try:
            return locate(self, self.path, context, to_write=True)
        except StorageError as error:
            raise _not_written(error) from None

    def _write(self, path: str, url: str, found: VerifiedWhitelist) -> dict[str, str | None]:
        """Write the evidence, and return the file's path or URL and SHA-256."""
        data = found.to_file()
        try:
            write_location(path, url, data)
        except StorageError as error:
            raise _not_written(error) from None
        place, sha256 = path or url, hashlib.sha256(data).hexdigest()
        self.log.info("Evidence: %s (SHA-256 %s).", place, sha256)
        return {"path": place, "sha256": sha256}


def _not_written(error: StorageError) -> CustodyError:
    advice = "The folder must exist and be writable."
    if error.exists:
        advice = "Give each try its own path, for example with {{ run_id }}-{{ ti.try_number }}."
    elif "://" in error.name:
        advice = "Check the URL, and the Airflow connection that it names."
    return CustodyRequestError(
        f"the evidence was not written: {sanitize(error.name, 300)}: {error.why}",
        setting="path",
        advice=advice,
        code="file-wrong",
        retryable=error.retryable,
    )


def _unverified(found: VerifiedWhitelist, path: str | None) -> CustodyError:
    """Return the error that names the requests whose verification failed."""
    rows = found.unproved
    texts = found.unproved_text
    named = "; ".join(texts[:_MAX_NAMED])
    more = f"; and {len(texts) - _MAX_NAMED} more: see the log" if len(texts) > _MAX_NAMED else ""
    number, total = len(rows) + found.hidden, len(found.rows) + found.hidden
    return CustodyVerificationError(
        f"{number} of {count(total, 'request')} could not be verified by signatures: {named}{more}",
        advice=lines(
            what_to_do([each["id"] for each in rows]) if rows else None,
            HIDDEN_ADVICE if found.hidden else None,
            None if path is None else f"The evidence is in {sanitize(path, 300)}.",
        ),
    )


def _check_address(request: WhitelistRequest) -> None:
    """Refuse an address that is invalid for its chain."""
    from airflow_custody.client.whitelist.addresses.checks import check_address, shorten

    check = check_address(request.address, request.chain, request.network)
    if check.verdict == "invalid":
        raise CustodyRequestError(
            f"nothing is sent: address: {escape(shorten(request.address))} is not a valid {request.chain} address: "
            f"{check.reason}; correct it",
            setting="address",
            code="address-invalid",
        )
