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


class WireUserResponse(TypedDict, total=False):
    result: WireUser | None


class UserOperations(ServiceOperations):
    """The operations on users."""

    def get_current_user(self) -> WireUser:
        """
        Get the client's user: ``GET /users/me`` (undocumented).

        :return: ``id``, ``externalUserId`` (the name in signatures), ``tenantId``, ``roles`` and ``status``, as far as
            the service returns them.
        """
        reply = self._transport.call(GET_CURRENT_USER, WireUserResponse)
        user = reply.body.get("result")
        if not user:
            raise reply.unexpected("it has no 'result'")
        # Access depends on the roles.
        reply.require_unique_keys()
        return user
