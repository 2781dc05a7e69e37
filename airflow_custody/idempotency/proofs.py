"""With pinned keys, what the service shows proves itself before it is taken for what a task asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyVerificationError
from airflow_custody.client.whitelist.progress import EFFECTIVE_STATUSES, REJECTED_STATUSES, has_status

if TYPE_CHECKING:
    from airflow_custody.client import CustodyClient, WhitelistEnvelope
    from airflow_custody.client.verification.rules_in_force import PendingVerifier


class Proofs:
    """
    Tells which requests do not verify, as a plan does.

    What is shown as in effect must be signed as the rules ask; of anything else, each signature that is there must be
    valid. What was rejected needs no proof. Without pinned keys, all is the service's word.

    :param client: the client.
    :param effective_statuses: status words, compared without case, of requests in effect; None: being listed as not
        pending is enough. Default ``approved``.
    :param rejected_statuses: status words of rejected requests.
    """

    def __init__(
        self,
        client: CustodyClient,
        effective_statuses: Collection[str] | None = EFFECTIVE_STATUSES,
        rejected_statuses: Collection[str] = REJECTED_STATUSES,
    ) -> None:
        self._client = client
        self._effective_statuses = effective_statuses
        self._rejected_statuses = rejected_statuses

    @cached_property
    def _verifier(self) -> PendingVerifier | None:
        from airflow_custody.client.verification.rules_in_force import verifier_for

        return verifier_for(self._client)

    def why_unverified(self, envelope: WhitelistEnvelope) -> str:
        """
        Return why a request does not verify; empty if it does, or need not.

        :param envelope: the request.
        :raises CustodyError: if what that takes cannot be got from the service now.
        """
        if self._client.verifier is None or self._verifier is None:
            return ""
        if has_status(envelope, self._rejected_statuses):
            return ""
        try:
            if self._is_effective(envelope):
                self._verifier.verify(envelope.wire)
            else:
                self._verifier.fetch_for([envelope.wire])
                self._verifier.verify_signatures(envelope.wire)
        except CustodyVerificationError as error:
            return error.reason
        return ""

    def unverified(self, envelopes: Iterable[WhitelistEnvelope]) -> set[str]:
        """Return the ids of the requests that do not verify."""
        return {each.id for each in envelopes if self.why_unverified(each)}

    def _is_effective(self, envelope: WhitelistEnvelope) -> bool:
        if self._effective_statuses is not None:
            return has_status(envelope, self._effective_statuses)
        settled = self._client.find_whitelist_requests(ids=[envelope.id], include_pending=False)
        return any(each.id == envelope.id for each in settled)
