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

        They are the service's word; :meth:`~airflow_custody.client.verification.verifier.Verifier.verify_rules` tells
        whether the pinned super-administrators have signed them.

        :param only_try: seconds for the only try, for who can do without; None (default): as the client's settings say.
        :return: ``rulesContainer``, ``rulesSignatures``, ``locked``, ``creationDate`` and ``updateDate``, as far as
            the service shows them.
        """
        reply = self._transport.call(GET_RULES, WireRulesResponse, only_try=only_try)
        rules = reply.body.get("result")
        if not rules or not rules.get("rulesContainer"):
            raise reply.unexpected("it has no 'result.rulesContainer'")
        return rules
