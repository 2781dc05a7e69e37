"""The operators that sign and reject whitelisting requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_custody._base import request_ids_or_skip
from airflow_custody.client.arguments import LOOKUP_WAIT, check_text
from airflow_custody.client.whitelist.ids import cut_into_batches
from airflow_custody.client.whitelist.signing.batches import failing_in, log_progress
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator
from airflow_custody.plugin.links import REQUEST_LINKS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_custody.client.signers import Signer


_CONN_ID = re.compile(r"[\w.-]{1,40}")


class CustodySignWhitelistRequestsOperator(CustodyOperator):
    """
    Sign any number of whitelisting requests, with one signature for each batch.

    First, the task reads all requests from the service, and reviews each of them before the first signature. It
    verifies the payload against the hash that will be signed, and compares the whole payload with ``expected``: each
    key must be known, and its value must be requested, empty, or a harmless default of the service, unless the
    connection's ``accept_fields`` name the key. Linked wallets and addresses are compared by id. If a request does not
    match, the task fails without retries and names the field, and nothing is signed.

    Then, for each batch of at most 100 requests, the task reads the requests again, logs the content that it signs,
    signs, and sends the signature. The service accepts either the whole batch or no part of it. Content from XCom alone
    is never signed.

    If the response is lost, or does not confirm all signatures, the operator checks whether the service has this user's
    signatures over the current hashes before it reports that a retry is safe. Signatures are recognized by the signer's
    public key if it has one, or else by the user's external id. If the service refuses, the operator reads the requests
    again, because an earlier try's signature may have arrived in the meantime.

    If the connection pins super-administrators' keys, the rules of each request and its existing signatures are
    verified each time it is read. If the rules are not signed by the pinned keys, or a signature is invalid, the task
    fails without retries, and nothing is signed. The log names the verified signers and the rules. Without pinned keys,
    nothing is verified.

    The ids are sorted, so that each try has the same batches. If a batch fails after other batches were signed, the
    error names the batch and the number of signed requests. A later try, even after the task was killed or cleared,
    continues with the remaining batches.

    A request that is already in effect, or that this user has already signed, is not signed again if its payload
    matches ``expected``, and its signatures are verified if keys are pinned; the log names such a request. With
    ``expected=None``, a request is left out only in a later try, and only if this user has signed it. A rejected
    request fails the task. Signing takes three calls for each batch, and at most two more calls in all. Reading a batch
    takes three more calls if one of its requests needs no signature, or if the service reports no action for one of
    them.

    Needs the roles ``WhitelistedAddressApprover`` and ``TPUser``. The service must have the signer's public key
    registered for the connection's user. Killing the task does not withdraw a signature. The operation is undocumented.

    :param request_ids: one id or several, without repetition. (templated)
    :param expected: the expected contents: the XCom ``request`` of the create task (``create.output["request"]``), a
        list of these, or the same fields written by hand. With several requests, each entry needs the key ``id``. With
        ``None``, any content is signed. It must be written in the DAG file: a template or upstream task that returns no
        value is refused, and so is a None in ``expand``. (templated)
    :param signer: the signer: a :class:`~airflow_custody.client.signers.PemSigner`, a
        :class:`~airflow_custody.signers.ConnectionSigner`, or your own for a KMS or HSM.
    :param comment: comment for the requests' history. (templated)
    :param lookup_wait: seconds that the service may take to return a signature, or to list a new request. Default 30.
    :param skip_if_empty: whether the task is skipped if ``request_ids`` is an empty list, for example because nothing
        was created. Default False: it fails.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the number of requests, including those that needed no signature.
    :raises AirflowFailException: if a request does not match or is not verified, the service rejects the signature, or
        it is unknown whether a signature was accepted; the error reports whether this try signed anything.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty`` is True.
    :raises CustodyError: if the service cannot be read, or the signature certainly had no effect; Airflow's retries
        apply.
    """

    template_fields: Sequence[str] = ("request_ids", "expected", "comment", "custody_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"expected": "json"}
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"

    def __init__(
        self,
        *,
        request_ids: str | int | Iterable[str | int | XComArg] | XComArg,
        expected: Mapping[str, object] | Iterable[Mapping[str, object] | XComArg] | XComArg | None,
        signer: Signer,
        comment: str | XComArg = "signed by {{ dag.dag_id }}, {{ run_id }}",
        lookup_wait: float = LOOKUP_WAIT,
        skip_if_empty: bool = False,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_ids = request_ids
        self.expected = self._if_written("expected", expected)
        self.signer = signer
        self.comment = comment
        self.lookup_wait = lookup_wait
        self.skip_if_empty = skip_if_empty
        self._check_numbers({"lookup_wait": lookup_wait})
        self._check_flags(skip_if_empty=skip_if_empty)
        if signer is None:
            self._refuse("signer is None")
        if isinstance(signer, str):
            # Quote only a short text, because a longer text may be a key.
            conn_id = repr(signer) if _CONN_ID.fullmatch(signer) else "CONNECTION_ID"
            self._refuse(f"signer is text: use ConnectionSigner({conn_id})")

    def _run(self, context: Context, hook: CustodyHook) -> int:
        from airflow_custody.client.whitelist.expected import expected_by_id
        from airflow_custody.client.whitelist.signing.sending import RequestSigner

        ids = self._linked_ids = request_ids_or_skip("request_ids", self.request_ids, skip_if_empty=self.skip_if_empty)
        comment = check_text("comment", self.comment)
        # If expected is None, the DAG file says so: a None from a template or an upstream task was refused before this.
        expected = None
        if self.expected is not None:
            expected = expected_by_id(ids, self.expected, consequence="nothing was signed in this try")
        if expected is None:
            self.log.warning("expected=None: the content is not checked before signing.")
        request_signer = RequestSigner(hook.get_conn(), self.signer, log=self.log, lookup_wait=self.lookup_wait)  # type: ignore[arg-type]
        return request_signer.sign(
            ids,
            expected,
            comment,
            earlier_try=context["ti"].try_number > 1,
        )


class CustodyRejectWhitelistRequestsOperator(CustodyOperator):
    """
    Reject any number of whitelisting requests, in batches of at most 100.

    Needs the roles ``WhitelistedAddressApprover`` and ``TPUser``. The service rejects either the whole batch or no part
    of it. If the service or a gateway refuses the call, for example because an earlier try has already rejected the
    requests, the task reads each request by its id. The task then succeeds only if the status of each request is one of
    the connection's ``rejected_statuses``, and the log reports this. If a batch fails after other batches were
    rejected, the error names the batch and the number of rejected requests, and a later try continues with the
    remaining batches. The operation is undocumented.

    :param request_ids: one id or several, without repetition. (templated)
    :param comment: why the requests are rejected; not empty. (templated)
    :param skip_if_empty: whether the task is skipped if ``request_ids`` is an empty list. Default False: it fails.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the ids.
    :raises AirflowFailException: if an id or the comment is missing, the service refuses and one of the requests is not
        rejected, or it stays unknown whether the requests are rejected.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty`` is True.
    :raises CustodyError: if one of the requests is not rejected after another response, or the service does not respond
        as it should; Airflow's retries apply.
    """

    template_fields: Sequence[str] = ("request_ids", "comment", "custody_conn_id")
    operator_extra_links = REQUEST_LINKS
    ui_color = "#f5dcd7"

    def __init__(
        self,
        *,
        request_ids: str | int | Iterable[str | int | XComArg] | XComArg,
        comment: str | XComArg,
        skip_if_empty: bool = False,
        custody_conn_id: str | XComArg = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_ids = request_ids
        self.comment = comment
        self.skip_if_empty = skip_if_empty
        self._check_flags(skip_if_empty=skip_if_empty)

    def _run(self, context: Context, hook: CustodyHook) -> list[str]:
        ids = self._linked_ids = request_ids_or_skip("request_ids", self.request_ids, skip_if_empty=self.skip_if_empty)
        comment = check_text("comment", self.comment)
        client = hook.get_conn()
        batches = cut_into_batches(ids)
        done = 0
        for number, batch in enumerate(batches):
            with failing_in(batches, number, done, "rejected"):
                client.reject_whitelist_requests(batch, comment)
            done += len(batch)
            log_progress(self.log, batches, number, done, "rejected")  # type: ignore[arg-type]
            self.log.info("Rejected %s.", ", ".join(batch))
        return ids
