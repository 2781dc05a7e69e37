"""
Fetch the rules in force from the service, to verify pending requests that are returned without rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_rules import SignedRules
from airflow_custody.client.verification.verifier import Verifier

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient


_ADVICE = (
    "Without rules, the request's signatures cannot be verified. Run 'custody check', and ask the service's operators "
    "to return the rules with pending requests, or to let this user read them with GET /rules."
)


class PendingVerifier(Verifier):
    """
    A client's verifier that can also verify pending requests without rules.

    It is not documented whether the service returns pending requests with rules. If it does not, the rules in force are
    fetched, at most once, and only if a request needs them. Like any rules, they must be signed by the pinned keys.

    :param client: the client.
    :param verifier: the client's own verifier, whose cache is shared.
    :param even_unsigned: whether even an unsigned request needs the rules, because it is about to be signed. Default
        False.
    """

    def __init__(self, client: CustodyClient, verifier: Verifier, *, even_unsigned: bool = False) -> None:
        super().__init__(verifier.pins)
        self._verifies, self._signed_rules = verifier._verifies, verifier._signed_rules
        self._client = client
        self._even_unsigned = even_unsigned
        self._failure: CustodyError | None = None

    def fetch_for(self, envelopes: Iterable[Mapping[str, Any]]) -> None:
        """
        Fetch the rules in force, if one of the requests needs them.

        If this fails permanently, the verification of each request that needs these rules will fail.

        :param envelopes: the requests, as received.
        :raises CustodyError: if the rules cannot be fetched now.
        """
        is_known = self.rules_in_force is not None or self._failure is not None
        if is_known or not any(map(self.needs_rules_in_force, envelopes)):
            return
        try:
            rules = self._client.get_rules()
            self.verify_rules(rules)
        except CustodyError as error:
            if error.transient:
                raise
            self._failure = error
        else:
            self.rules_in_force = rules

    def _rules_in_force(self) -> SignedRules | None:
        if self._failure is not None:
            reason = sanitize(self._failure.reason, 240)
            why = f"the service returns it without rules, and the rules in force cannot be used: {reason}"
            raise RefusalError(why, _ADVICE)
        return super()._rules_in_force()


def verifier_for(
    client: CustodyClient, envelopes: Iterable[Mapping[str, Any]] = (), *, even_unsigned: bool = False
) -> PendingVerifier | None:
    """
    Return the verifier for these requests, with the rules in force if a request needs them.

    :param client: the client.
    :param envelopes: the requests, as received. Default: no requests yet.
    :param even_unsigned: same as for :class:`PendingVerifier`.
    :return: the verifier; None: no keys are pinned.
    :raises CustodyError: if the rules cannot be fetched now.
    """
    if client.verifier is None:
        return None
    verifier = PendingVerifier(client, client.verifier, even_unsigned=even_unsigned)
    verifier.fetch_for(envelopes)
    return verifier
