"""Verifying pending requests that the service shows without rules, by the rules in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_custody.client.errors import CustodyError, CustodyVerificationError
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.verifier import ExaminedSignatures, VerifiedSignatures, Verifier

if TYPE_CHECKING:
    from airflow_custody.client.client import CustodyClient


_ADVICE = (
    "Without rules, nobody can tell who may sign, nor whether the signatures that it has are valid. See what "
    "'custody check' says of the rules, and ask those who run the service to show them on pending requests, or to this "
    "user with GET /rules."
)


class PendingVerifier(Verifier):
    """
    A client's verifier, which verifies pending requests also if the service shows no rules on them.

    Whether it does is not published. The rules in force are got at most once, and only if a request needs them; they
    must be signed as pinned, as any.

    :param client: the client.
    :param verifier: its verifier; what it remembers is shared.
    :param even_unsigned: whether a request that nobody has signed needs them, too: it is to be signed. Default False.
    """

    def __init__(self, client: CustodyClient, verifier: Verifier, *, even_unsigned: bool = False) -> None:
        super().__init__(verifier.pins, rules_in_force=None)
        self._signatures, self._rules = verifier._signatures, verifier._rules
        self._client = client
        self._even_unsigned = even_unsigned
        self._failure: CustodyError | None = None

    def fetch_for(self, envelopes: Iterable[Mapping[str, Any]]) -> None:
        """
        Get the rules in force, if one of these requests needs them. If that fails for good, it is that request's fault.

        :param envelopes: the requests, as they came.
        :raises CustodyError: if they cannot be got now.
        """
        if self.rules_in_force is not None or self._failure is not None or not any(map(self._needs_rules, envelopes)):
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

    def verify_signatures(
        self, envelope: Mapping[str, Any], rules: Mapping[str, Any] | None = None
    ) -> VerifiedSignatures:
        """Verify as :meth:`Verifier.verify_signatures`; by default with the rules in force, if they were got."""
        return super().verify_signatures(envelope, self._rules_for(envelope, rules))

    def examine(self, envelope: Mapping[str, Any], rules: Mapping[str, Any] | None = None) -> ExaminedSignatures:
        """Examine as :meth:`Verifier.examine`; by default with the rules in force, if they were got."""
        return super().examine(envelope, self._rules_for(envelope, rules))

    def _rules_for(self, envelope: Mapping[str, Any], rules: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if rules is not None or not self._needs_rules(envelope):
            return rules
        if self._failure is not None:
            raise CustodyVerificationError(
                f"whitelisting request {sanitize(envelope.get('id') or 'without an id', 40)} is not verified: it is "
                f"shown without rules, and those in force cannot be used: {sanitize(self._failure.reason, 240)}",
                advice=_ADVICE,
                code="not-verified",
            )
        return self.rules_in_force or {}

    def _needs_rules(self, envelope: Mapping[str, Any]) -> bool:
        """Tell whether a request is shown without rules, and has signatures, names rules, or is to be signed."""
        if any(map(envelope.get, ("rulesContainer", "rulesSignatures"))):
            return False
        if self._even_unsigned or envelope.get("rulesContainerHash"):
            return True
        address = envelope.get("signedAddress")
        return isinstance(address, Mapping) and bool(address.get("signatures"))


def verifier_for(
    client: CustodyClient, envelopes: Iterable[Mapping[str, Any]] = (), *, even_unsigned: bool = False
) -> PendingVerifier | None:
    """
    Return what verifies these requests, with the rules in force if one of them needs these.

    :param client: the client.
    :param envelopes: the requests, as they came. Default: none yet.
    :param even_unsigned: as for :class:`PendingVerifier`.
    :return: the verifier; None: no keys are pinned.
    :raises CustodyError: if the rules cannot be got now.
    """
    if client.verifier is None:
        return None
    verifier = PendingVerifier(client, client.verifier, even_unsigned=even_unsigned)
    verifier.fetch_for(envelopes)
    return verifier
