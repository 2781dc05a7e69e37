"""Users, as the service sends them."""

from __future__ import annotations

from airflow_custody.client.wire import LENIENT, TypedDict


class WireUser(TypedDict, total=False):
    __pydantic_config__ = LENIENT  # type: ignore[misc]
    id: str | None
    externalUserId: str | None
    tenantId: str | None
    roles: list[str] | None
    status: str | None


class WireUserResponse(TypedDict, total=False):
    result: WireUser | None
