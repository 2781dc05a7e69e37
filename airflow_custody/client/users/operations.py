"""The operations on users."""

from __future__ import annotations

from airflow_custody.client.http.operation import Operation
from airflow_custody.client.http.service import ServiceOperations
from airflow_custody.client.wire import LENIENT, TypedDict

GET_CURRENT_USER = Operation("get current user", "GET", "/users/me", roles=("TPUser",), documented=False)


class WireUser(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str | None
    externalUserId: str | None
    tenantId: str | None
    roles: list[str] | None
    status: str | None
    enforcedInRules: bool | None
    publicKeyEnforcedInRules: bool | None


class WireUserResponse(TypedDict, total=False):
    result: WireUser | None


class UserOperations(ServiceOperations):
    """The operations on users."""

    def get_current_user(self, check_enforced: bool = False) -> WireUser:
        """
        Return the client's user: ``GET /users/me`` (undocumented).

        :param check_enforced: whether the service also checks the user against the rules in force. Default False.
        :return: those of the fields ``id``, ``externalUserId`` (the user's name in signatures), ``tenantId``, ``roles``
            and ``status`` that the service reports. With ``check_enforced``, also ``enforcedInRules`` and
            ``publicKeyEnforcedInRules``: whether the user and the user's key are in the rules.
        """
        query = {"checkEnforcedInRules": "true"} if check_enforced else {}
        reply = self._transport.call(GET_CURRENT_USER, WireUserResponse, query=query)
        user = reply.body.get("result")
        if not user:
            raise reply.unexpected("it has no 'result'")
        return user
