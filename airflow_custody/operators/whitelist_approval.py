"""The operators that approve and reject whitelisting requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyConflictError, CustodyNotFoundError, CustodyRequestError
from airflow_custody.client.http.operation import DEFAULT_LOOKUP_WAIT
from airflow_custody.client.text import as_list, count
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator, required_text

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client import WhitelistRequest
    from airflow_custody.client.signers import Signer


class CustodyApproveWhitelistRequestsOperator(CustodyOperator):
    """
    Approve whitelisting requests with one signature: all of them, or none.

    Reads the requests from the service, verifies each payload against the hash that is signed, compares it with what
    was asked for, signs, reads them once more, and sends the approval. Whatever does not match fails without retries,
    names the field, and nothing is signed. Nothing is ever signed from XCom alone. When the response is lost, the
    operator looks whether the service has the signatures before it says that trying again is safe.

    Needs the role ``WhitelistedAddressApprover``, and that the service knows the signer's public key as that of the
    connection's user. Killing the task does not take an approval back. The operation is undocumented.

    :param request_ids: one id or several, at most 100. (templated)
    :param expected: what the requests must ask for: what the create task pushed to XCom under the key ``request``
        (``create.output["request"]``), a list of these, or the same fields by hand. ``None`` must be written
        explicitly, and signs whatever the requests ask for; a template that renders to nothing is refused, and so is
        None in a mapped task, which cannot tell the two apart. (templated)
    :param signer: the signer: a :class:`~airflow_custody.client.signers.PemSigner`, a
        :class:`~airflow_custody.signers.ConnectionSigner`, or your own for a KMS or HSM.
    :param comment: what the requests' history will say. (templated)
    :param lookup_wait: seconds that the service may take to show a signature. Default 30.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the number of signatures that the service took.
    :raises AirflowFailException: if something does not match; nothing was signed then. Also if it cannot be known
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
        lookup_wait: float = DEFAULT_LOOKUP_WAIT,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_ids = request_ids
        self.expected = expected
        self.signer = signer
        self.comment = comment
        self.lookup_wait = lookup_wait
        # None from a template or an XCom is not None that a person wrote.
        self._signs_anything = expected is None and not getattr(self, "_BaseOperator__from_mapped", False)

    def _run(self, context: Context, hook: CustodyHook) -> int:
        from airflow_custody.client.whitelist.approval import Approver
        from airflow_custody.client.whitelist.models import check_request_ids

        ids = check_request_ids(_ids(self.request_ids))
        expected = None if self._signs_anything else _by_id(ids, self.expected)
        if expected is None:
            self.log.warning("expected=None: what the requests ask for is compared with nothing.")
        approver = Approver(hook.get_conn(), self.signer, log=self.log, lookup_wait=self.lookup_wait)  # type: ignore[arg-type]
        signatures = approver.approve(ids, expected, self.comment, earlier_try=context["ti"].try_number > 1)
        self.log.info("The service took %s for %s.", count(signatures, "signature"), ", ".join(ids))
        return signatures


class CustodyRejectWhitelistRequestsOperator(CustodyOperator):
    """
    Reject whitelisting requests, all of them or none.

    Needs the role ``WhitelistedAddressApprover``. A later try that finds none of them pending nor in effect assumes
    that the earlier one rejected them. The operation is undocumented.

    :param request_ids: one id or several. (templated)
    :param comment: why; not empty. (templated)
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the ids.
    :raises AirflowFailException: if an id or the comment is missing, or one of the requests is not pending.
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
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_ids = request_ids
        self.comment = comment

    def _run(self, context: Context, hook: CustodyHook) -> list[str]:
        from airflow_custody.client.whitelist.models import check_request_ids

        ids = check_request_ids(_ids(self.request_ids))
        comment = required_text("comment", self.comment)
        client = hook.get_conn()
        try:
            client.reject_whitelist_requests(ids, comment)
        except (CustodyConflictError, CustodyNotFoundError):
            if context["ti"].try_number == 1:
                raise
            pending = {each.id for each in client.find_whitelist_requests_for_approval(ids=ids)}
            effective = {each.id for each in client.find_whitelist_requests(ids=ids, include_pending=False)}
            if pending | effective:
                raise
            self.log.warning("An earlier try has rejected %s: nothing to do.", ", ".join(ids))
            return ids
        self.log.info("Rejected %s.", ", ".join(ids))
        return ids


def _ids(ids: str | Iterable[str]) -> list[str]:
    return as_list(str(ids) if isinstance(ids, int) else ids or ())


def _by_id(ids: list[str], expected: Any) -> dict[str, WhitelistRequest]:
    """Return what is expected of each request, by its id."""
    from airflow_custody.client import WhitelistRequest

    if not expected or isinstance(expected, str):
        raise CustodyRequestError(
            "'expected' does not say what the requests must ask for (did a template render to nothing?); nothing was "
            "signed"
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
