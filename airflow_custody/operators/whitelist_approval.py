"""
Operators that decide on whitelisting requests.

Published knowledge, not part of the given interface: a service may not offer these operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_custody.client.errors import CustodyConflictError, CustodyNotFoundError, CustodyRequestError
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.task_failures import failing_the_task, use_custody_retry_policy

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import WhitelistRequest
    from airflow_custody.client.signers import Signer


class CustodyApproveWhitelistRequestsOperator(BaseOperator):
    """
    Approve whitelisting requests with one signature: all of them, or none.

    Reads the requests from the service, verifies each payload against the hash that is signed, compares it with what
    was asked for, signs, reads them once more, and sends the approval. Whatever does not fit fails without retries,
    names the field, and nothing is signed. Nothing is ever signed from XCom alone. When the answer is lost, the
    operator looks whether the service has the signatures before it says that trying again is safe.

    Published knowledge, not part of the given interface. Needs the role ``WhitelistedAddressApprover``, and the
    public key of the signer with the service, for the connection's user. Killing the task does not take an approval
    back.

    :param request_ids: one id or several, at most 100. (templated)
    :param expected: what the requests must ask for: what the create task pushed to XCom under the key ``request``
        (``create.output["request"]``), a list of these, or the same fields by hand. ``None`` must be said
        explicitly, and signs whatever the requests ask for; a template that comes to nothing is refused, and so is
        None in a mapped task, which can not tell them apart. (templated)
    :param signer: what signs: a :class:`~airflow_custody.client.signers.PemSigner`, a
        :class:`~airflow_custody.signers.ConnectionSigner`, or your own for a KMS or HSM.
    :param comment: what the requests' trail will say. (templated)
    :param lookup_wait: seconds that the service may take to show a signature. Default 30.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the number of signatures that the service took.
    :raises AirflowFailException: if something does not fit; nothing was signed then. Also if it can not be known
        whether the approval was taken.
    """

    template_fields: Sequence[str] = ("request_ids", "expected", "comment", "custody_conn_id")
    ui_color = "#e3f0dc"

    def __init__(
        self,
        *,
        request_ids: str | Iterable[str],
        expected: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
        signer: Signer,
        comment: str = "approved by {{ dag.dag_id }}, {{ run_id }}",
        lookup_wait: float = 30.0,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        self.request_ids = request_ids
        self.expected = expected
        self.signer = signer
        self.comment = comment
        self.lookup_wait = lookup_wait
        self.custody_conn_id = custody_conn_id
        # None from a template or an XCom is not None that a person wrote.
        self._signs_anything = expected is None and not getattr(self, "_BaseOperator__from_mapped", False)

    def execute(self, context: Context) -> int:
        """Approve the requests."""
        from airflow_custody.client.approval import Approving, in_order

        with failing_the_task(self):
            ids = in_order(_listed(self.request_ids))
            expected = None if self._signs_anything else _by_id(ids, self.expected)
            if expected is None:
                self.log.warning("expected=None: what the requests ask for is compared with nothing.")
            with CustodyHook(self.custody_conn_id).get_conn() as client:
                approving = Approving(client, self.signer, log=self.log, lookup_wait=self.lookup_wait)  # type: ignore[arg-type]
                count = approving.approve(ids, expected, self.comment, earlier_try=context["ti"].try_number > 1)
            self.log.info("The service took %s signatures for %s.", count, ", ".join(ids))
            return count


class CustodyRejectWhitelistRequestsOperator(BaseOperator):
    """
    Reject whitelisting requests, all of them or none.

    Published knowledge, not part of the given interface; needs the role ``WhitelistedAddressApprover``. A later try
    that finds none of them waiting nor in effect takes them for rejected by the earlier one.

    :param request_ids: one id or several. (templated)
    :param comment: why; not empty. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the ids.
    :raises AirflowFailException: if an id or the comment is missing, or one of the requests does not wait.
    """

    template_fields: Sequence[str] = ("request_ids", "comment", "custody_conn_id")
    ui_color = "#f5dcd7"

    def __init__(
        self,
        *,
        request_ids: str | Iterable[str],
        comment: str,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        self.request_ids = request_ids
        self.comment = comment
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> list[str]:
        """Reject the requests."""
        from airflow_custody.client.approval import in_order

        with failing_the_task(self), CustodyHook(self.custody_conn_id).get_conn() as client:
            ids = in_order(_listed(self.request_ids))
            _needed_comment(self.comment)
            try:
                client.reject_whitelist_requests(ids, self.comment)
            except (CustodyConflictError, CustodyNotFoundError):
                if context["ti"].try_number == 1:
                    raise
                open_ = {each.id for each in client.find_whitelist_requests_for_approval(ids=ids)}
                effective = {each.id for each in client.find_whitelist_requests(ids=ids, include_waiting=False)}
                if open_ | effective:
                    raise
                self.log.warning("An earlier try has rejected %s: nothing to do.", ", ".join(ids))
                return ids
            self.log.info("Rejected %s.", ", ".join(ids))
            return ids


class CustodyDeleteWhitelistRequestOperator(BaseOperator):
    """
    Delete a whitelisting request.

    Published knowledge, not part of the given interface; needs the role ``WhitelistedAddressCreator``. A request that
    is not there is a success, because a repeat after a lost answer must succeed; the log and the returned value say
    so.

    :param request_id: the request's id. (templated)
    :param comment: why; not empty. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: ``{"request_id": ..., "deleted": ...}``; ``deleted`` is False if it was not there.
    :raises AirflowFailException: if the id or the comment is missing or malformed; nothing is sent.
    """

    template_fields: Sequence[str] = ("request_id", "comment", "custody_conn_id")
    ui_color = "#f5dcd7"

    def __init__(
        self,
        *,
        request_id: str,
        comment: str,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        use_custody_retry_policy(self)
        self.request_id = request_id
        self.comment = comment
        self.custody_conn_id = custody_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the request."""
        with failing_the_task(self), CustodyHook(self.custody_conn_id).get_conn() as client:
            _needed_comment(self.comment)
            try:
                client.delete_whitelist_request(self.request_id, self.comment)
            except CustodyNotFoundError as error:
                if error.from_gateway:
                    # Somebody's 404 page says nothing about the request.
                    raise
                self.log.warning("Whitelisting request %s is not there: nothing to do.", self.request_id)
                return {"request_id": str(self.request_id), "deleted": False}
            self.log.info("Whitelisting request %s is deleted.", self.request_id)
            return {"request_id": str(self.request_id), "deleted": True}


def _listed(ids: str | Iterable[str]) -> list[str]:
    return [ids] if isinstance(ids, (str, int)) else list(ids or ())


def _needed_comment(comment: str) -> None:
    if not comment or not str(comment).strip():
        raise CustodyRequestError("the comment is empty; nothing was sent")


def _by_id(ids: list[str], expected: Any) -> dict[str, WhitelistRequest]:
    """Turn what was said about the requests into one description for each id."""
    from airflow_custody.client import WhitelistRequest

    if not expected or isinstance(expected, str):
        raise CustodyRequestError(
            "it is not said what the requests must ask for ('expected' came to nothing); nothing was signed"
        )
    descriptions = [expected] if isinstance(expected, Mapping) else list(expected)
    found: dict[str, WhitelistRequest] = {}
    for description in descriptions:
        if not isinstance(description, Mapping):
            raise CustodyRequestError(
                "'expected' must hold what the create task pushed as 'request'; nothing was signed"
            )
        fields = dict(description)
        number = str(fields.pop("id", ids[0] if len(ids) == len(descriptions) == 1 else ""))
        if not number or number in found:
            raise CustodyRequestError("'expected' names no id, or one twice; nothing was signed")
        found[number] = WhitelistRequest(**fields)
    return found
