"""The operators that sign and reject whitelisting requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_custody._base import request_ids_or_skip
from airflow_custody.client.arguments import check_names, check_text
from airflow_custody.client.limits import LOOKUP_WAIT
from airflow_custody.client.text import name_some
from airflow_custody.client.whitelist.ids import cut_into_batches
from airflow_custody.client.whitelist.signing.batches import BatchProgress
from airflow_custody.client.whitelist.status_words import REJECTED_STATUSES
from airflow_custody.hooks.custody import CustodyHook
from airflow_custody.operators._base import CustodyOperator
from airflow_custody.plugin.links import REQUEST_LINKS

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_custody.client.signers import Signer


_CONN_ID = re.compile(r"[\w.-]{1,40}")


class CustodySignWhitelistRequestsOperator(CustodyOperator):
    """
    Sign whitelisting requests: any number, in batches of at most 100 with one signature each.

    Reads the requests from the service, verifies each payload against the hash that is signed, and accounts for all of
    it: each key is known, and its value is what was asked for, empty, a harmless default of the service, or accepted by
    name. Whatever does not match fails without retries, names the field, and nothing is signed: all requests are
    reviewed before the first signature. Then, batch after batch, it reads them again, logs all that it signs, signs,
    and sends the signature. The service takes a batch whole or not at all. Nothing is ever signed from XCom alone. When
    the response is lost, or does not say that all were signed, the operator looks whether the service has this user's
    signatures over the current hashes before it says that trying again is safe. They are found by the signer's public
    key if it gives one, and otherwise by the user's external id. When the service refuses, the operator reads the
    requests again: an earlier try's signature may have arrived while the key signed.

    If the connection pins super-administrators' keys, each request's rules and the signatures that it has already are
    verified each time that it is read: rules that are not signed as pinned, or one signature that is invalid, fail
    without retries, and nothing is signed. The log says whose verified signatures are there, and under which rules.
    Without pins, nothing is verified.

    The ids, in numeric order, make the same batches in each try. If one fails after others were signed, the error says
    which, and how many requests are signed. A later try, also after the task was killed or cleared, goes on with the
    others.

    A request that is in effect already, or that this user has signed already, in an earlier try or an earlier run, is
    not signed again: once its payload is what ``expected`` says, and its signatures are verified if keys are pinned, it
    is left as it is, and the log says so. With ``expected=None``, that counts only in a later try, and only for what
    this user has signed. What was rejected fails. It takes three calls for each batch, and one more, and up to four
    more where something needs no signature.

    Needs the role ``WhitelistedAddressApprover``, and that the service knows the signer's public key as that of the
    connection's user. Killing the task does not take a signature back. The operation is undocumented.

    :param request_ids: one id or several, each once; any number. (templated)
    :param expected: the expected requests, as the create task pushed them to XCom under the key ``request``
        (``create.output["request"]``), a list of these, or the same fields by hand; in a list of several each entry
        needs the key ``id``. ``None`` must be written explicitly, and signs whatever the requests ask for; a template
        or upstream task without a value is refused, and so is a None in ``expand``. (templated)
    :param signer: the signer: a :class:`~airflow_custody.client.signers.PemSigner`, a
        :class:`~airflow_custody.signers.ConnectionSigner`, or your own for a KMS or HSM.
    :param accept_fields: keys of a payload that may be signed although ``expected`` says nothing about them, such as
        ``["tnParticipantID"]``. A link is compared by its id; a key that links are not known to have is named with the
        link's key, such as ``linkedWallets.owner``. With ``envelope.action``, a word for what signing
        does that this package does not know is accepted. Default: none. (templated)
    :param comment: comment for the requests' history. (templated)
    :param lookup_wait: seconds that the service may take to show a signature, or to list a request that was created
        right before. Default 30.
    :param skip_if_empty: whether the task is skipped if ``request_ids`` is an empty list: nothing was created, say.
        Default False: it fails.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the number of requests: those that were signed now, and those that needed no signature.
    :raises AirflowFailException: if something does not match or is not verified, or if it cannot be known whether the
        signature was taken; it says whether something was signed.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty``.
    """

    template_fields: Sequence[str] = ("request_ids", "expected", "accept_fields", "comment", "custody_conn_id")
    none_is_a_value = ("expected",)
    operator_extra_links = REQUEST_LINKS
    ui_color = "#e3f0dc"

    def __init__(
        self,
        *,
        request_ids: str | Iterable[str],
        expected: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None,
        signer: Signer,
        accept_fields: Iterable[str] = (),
        comment: str = "signed by {{ dag.dag_id }}, {{ run_id }}",
        lookup_wait: float = LOOKUP_WAIT,
        skip_if_empty: bool = False,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_ids = request_ids
        self.expected = expected
        self.signer = signer
        self.accept_fields = accept_fields
        self.comment = comment
        self.lookup_wait = lookup_wait
        self.skip_if_empty = skip_if_empty
        self._check_numbers({"lookup_wait": lookup_wait})
        self._check_flags(skip_if_empty=skip_if_empty)
        if isinstance(signer, str):
            # A longer text may be a key.
            conn_id = repr(signer) if _CONN_ID.fullmatch(signer) else "CONNECTION_ID"
            self._refuse(f"signer is text: use ConnectionSigner({conn_id})")
        self._note_given()

    def _run(self, context: Context, hook: CustodyHook) -> int:
        from airflow_custody.client.whitelist.expected import expected_by_id
        from airflow_custody.client.whitelist.signing.sending import RequestSigner

        ids = self._linked_ids = request_ids_or_skip("request_ids", self.request_ids, skip_if_empty=self.skip_if_empty)
        comment = check_text("comment", self.comment)
        # None that a person wrote: what the run has None for is refused before.
        expected = None
        if self.expected is not None:
            expected = expected_by_id(ids, self.expected, consequence="nothing was signed")
        if expected is None:
            self.log.warning("expected=None: what the requests ask for is compared with nothing.")
        request_signer = RequestSigner(hook.get_conn(), self.signer, log=self.log, lookup_wait=self.lookup_wait)  # type: ignore[arg-type]
        number = request_signer.sign(
            ids,
            expected,
            comment,
            accept_fields=check_names("accept_fields", self.accept_fields, may_be_empty=True) or [],
            earlier_try=context["ti"].try_number > 1,
        )
        self.log.info("Signed by this user, or in effect: %s.", name_some(ids))
        return number


class CustodyRejectWhitelistRequestsOperator(CustodyOperator):
    """
    Reject whitelisting requests: any number, in batches of at most 100, each whole or not at all.

    Needs the role ``WhitelistedAddressApprover``. If the service refuses, because an earlier try has rejected them,
    say, or if a gateway refuses, each request is read by its id, and the task succeeds only if the status of each says
    that it is rejected; the log says so. If a batch fails after others were rejected, the error says which, and how
    many requests are rejected; a later try goes on with the others. The operation is undocumented.

    :param request_ids: one id or several, each once; any number. (templated)
    :param comment: why; not empty. (templated)
    :param rejected_statuses: status words, compared without case, that say that a request is rejected. Default
        ``rejected`` and four more, as for plans: the words are not published. (templated)
    :param skip_if_empty: whether the task is skipped if ``request_ids`` is an empty list. Default False: it fails.
    :param custody_conn_id: id of the Airflow connection. (templated)
    :return: the ids.
    :raises AirflowFailException: if an id or the comment is missing, or the service refuses and one of the requests is
        not rejected.
    :raises AirflowSkipException: if there are no ids, and ``skip_if_empty``.
    """

    template_fields: Sequence[str] = ("request_ids", "comment", "rejected_statuses", "custody_conn_id")
    operator_extra_links = REQUEST_LINKS
    ui_color = "#f5dcd7"

    def __init__(
        self,
        *,
        request_ids: str | Iterable[str],
        comment: str,
        rejected_statuses: Iterable[str] = REJECTED_STATUSES,
        skip_if_empty: bool = False,
        custody_conn_id: str = CustodyHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(custody_conn_id=custody_conn_id, **kwargs)
        self.request_ids = request_ids
        self.comment = comment
        self.rejected_statuses = rejected_statuses
        self.skip_if_empty = skip_if_empty
        self._check_flags(skip_if_empty=skip_if_empty)
        self._note_given()

    def _run(self, context: Context, hook: CustodyHook) -> list[str]:
        ids = self._linked_ids = request_ids_or_skip("request_ids", self.request_ids, skip_if_empty=self.skip_if_empty)
        comment = check_text("comment", self.comment)
        words = check_names("rejected_statuses", self.rejected_statuses, may_be_empty=True) or []
        client = hook.get_conn()
        batches = cut_into_batches(ids)
        progress = BatchProgress("rejected", batches, self.log)  # type: ignore[arg-type]
        for number, batch in enumerate(batches):
            with progress.failing_in(number):
                client.reject_whitelist_requests(batch, comment, rejected_statuses=words)
            progress.done_now(number)
            self.log.info("Rejected %s.", ", ".join(batch))
        return ids
