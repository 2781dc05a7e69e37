"""The operations on rules."""

from __future__ import annotations

from typing import Any

from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.wire import LENIENT, TypedDict

GET_RULES = Operation("get rules", "GET", "/rules", documented=False, optional=True)


class WireRules(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    # Any type is accepted here. The verifier reports wrong types.
    rulesContainer: Any
    rulesSignatures: Any
    locked: bool | None
    creationDate: str | None
    updateDate: str | None


class WireRulesResponse(TypedDict, total=False):
    result: WireRules | None


class RulesOperations(ServiceOperations):
    """The operations on rules."""

    def get_rules(self) -> WireRules:
        """
        Get the rules in force: ``GET /rules`` (undocumented).

        This method does not verify the rules.
        :meth:`~airflow_custody.client.verification.verifier.Verifier.verify_rules` verifies that the
        super-administrators whose keys are pinned have signed them.

        :return: ``rulesContainer``, ``rulesSignatures``, ``locked``, ``creationDate`` and ``updateDate``, as far as
            the service returns them.
        """
        reply = self._transport.call(GET_RULES, WireRulesResponse)
        rules = reply.body.get("result")
        if not rules or not rules.get("rulesContainer"):
            raise reply.unexpected("it has no 'result.rulesContainer'")
        return rules
