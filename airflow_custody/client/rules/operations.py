"""The operations on rules."""

from __future__ import annotations

from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.rules.models import WireRules, WireRulesResponse

GET_RULES = Operation("get rules", "GET", "/rules", documented=False)


class RulesOperations(ServiceOperations):
    """The operations on rules."""

    def get_rules(self, *, only_try: float | None = None) -> WireRules:
        """
        Get the rules in force: ``GET /rules`` (undocumented).

        They are not verified; :meth:`~airflow_custody.client.verification.verifier.Verifier.verify_rules` tells
        whether the pinned super-administrators have signed them.

        :param only_try: time limit in seconds for a single try, for callers that can do without; None (default): as in
            the client's settings.
        :return: ``rulesContainer``, ``rulesSignatures``, ``locked``, ``creationDate`` and ``updateDate``, as far as
            the service shows them.
        """
        reply = self._transport.call(GET_RULES, WireRulesResponse, only_try=only_try)
        rules = reply.body.get("result")
        if not rules or not rules.get("rulesContainer"):
            raise reply.unexpected("it has no 'result.rulesContainer'")
        return rules
