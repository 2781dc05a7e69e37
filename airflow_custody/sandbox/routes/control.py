"""Serve the control routes, which the real service does not have: no authentication, for tests only."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from airflow_custody.sandbox.access import ServiceState, body_of
from airflow_custody.sandbox.faults import Fault

router = APIRouter()


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Health(_Order):
    """Give the entries to show."""

    entries: list[dict[str, Any]]


class HealthAnswer(_Order):
    """Give the whole answer to show."""

    answer: Any


class HealthUpdate(_Order):
    """Give fields to change, and in which entries."""

    group: str | None = None
    component: str | None = None
    check: str | None = None
    fields: dict[str, Any]


class Currencies(_Order):
    """Give the active currencies."""

    currencies: list[str]


class Version(_Order):
    """Give the version of the service to play."""

    version: Annotated[str, StringConstraints(pattern=r"^\d{1,9}(\.\d{1,9}){0,3}$")]


class NewToken(_Order):
    """Describe a token to make."""

    roles: list[str] = []
    tenant_id: str = "1"
    user_id: str = "2"
    expires_in: float | None = None
    jwt: bool = False


class NewUser(_Order):
    """Describe a user."""

    name: str
    roles: list[str]
    user_id: str | None = None
    tenant_id: str = "1"
    password: str | None = None
    totp: bool = False
    groups: list[str] = []
    public_key: str | None = None


class Group(BaseModel):
    """Say how many of a group must sign."""

    model_config = ConfigDict(extra="forbid")

    externalGroupID: str
    minimumSignatures: Annotated[int, Field(ge=1)]


class Seconds(_Order):
    """Give a number of seconds."""

    seconds: float


class Branch(_Order):
    """List groups of approvers, one after the other."""

    sequential: list[Group]


class Approvers(_Order):
    """Say who must sign; None goes back to what it was at first."""

    parallel: list[Branch] | None


class AnyWebhook(_Order):
    """Describe a webhook to put there, whatever its values."""

    type: str = "requestStatus.updated"
    url: str = "https://hooks.example.com/custody"
    status: str = "enabled"
    id: str | None = None
    tenant_id: str = "1"
    timeout_until: str = ""


class WhitelistChange(_Order):
    """Say how a whitelisting request shall look."""

    status: str | None = None
    age: Annotated[float, Field(ge=0)] | None = None
    fields: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_some_change(self) -> WhitelistChange:
        if not self.model_dump(exclude_none=True):
            raise ValueError("nothing to change")
        return self


# Annotations of routes are looked up in the module, so each body gets a name there.
HealthBody = Annotated[Health, Depends(body_of(Health))]
HealthAnswerBody = Annotated[HealthAnswer, Depends(body_of(HealthAnswer))]
HealthUpdateBody = Annotated[HealthUpdate, Depends(body_of(HealthUpdate))]
CurrenciesBody = Annotated[Currencies, Depends(body_of(Currencies))]
VersionBody = Annotated[Version, Depends(body_of(Version))]
TokenBody = Annotated[NewToken, Depends(body_of(NewToken))]
WebhookBody = Annotated[AnyWebhook, Depends(body_of(AnyWebhook))]
WhitelistChangeBody = Annotated[WhitelistChange, Depends(body_of(WhitelistChange))]
UserBody = Annotated[NewUser, Depends(body_of(NewUser))]
ApproversBody = Annotated[Approvers, Depends(body_of(Approvers))]
SecondsBody = Annotated[Seconds, Depends(body_of(Seconds))]
FaultBody = Annotated[Fault, Depends(body_of(Fault))]


def _done(result: Any = None) -> Response:
    # ASCII, because what tests sent may hold half a surrogate pair.
    return Response(json.dumps({"result": result}), media_type="application/json")


@router.get("")
async def about(service: ServiceState) -> Response:
    """Say what this is."""
    return _done({"sandbox": True, "version": ".".join(str(part) for part in service.version)})


@router.post("/reset")
async def reset(service: ServiceState) -> Response:
    """Forget everything but the main token."""
    service.reset()
    return _done()


@router.put("/health")
async def set_health(service: ServiceState, order: HealthBody) -> Response:
    """Show these entries."""
    service.health.set(order.entries)
    return _done()


@router.put("/health/answer")
async def set_health_answer(service: ServiceState, order: HealthAnswerBody) -> Response:
    """Answer the listing with this."""
    service.health.set_answer(order.answer)
    return _done()


@router.patch("/health")
async def update_health(service: ServiceState, order: HealthUpdateBody) -> Response:
    """Change some entries."""
    return _done(service.health.update(order.group, order.component, order.check, order.fields))


@router.put("/currencies")
async def set_currencies(service: ServiceState, order: CurrenciesBody) -> Response:
    """Change the active currencies."""
    service.whitelist.set_currencies(order.currencies)
    return _done()


@router.put("/version")
async def set_version(service: ServiceState, order: VersionBody) -> Response:
    """Play another version of the service."""
    service.state.set("version", order.version)
    return _done()


@router.post("/tokens")
async def add_token(service: ServiceState, order: TokenBody) -> Response:
    """Make a token."""
    return _done(service.tokens.add(**order.model_dump()))


@router.put("/token-lifetime")
async def set_token_lifetime(service: ServiceState, order: SecondsBody) -> Response:
    """Say how long tokens live."""
    service.tokens.set_lifetime(order.seconds)
    return _done()


@router.post("/users")
async def add_user(service: ServiceState, order: UserBody) -> Response:
    """Add or replace a user."""
    return _done(service.users.add(**order.model_dump()))


@router.delete("/users/{user_id}/tokens")
async def revoke_tokens(service: ServiceState, user_id: str) -> Response:
    """Accept no token of a user any more."""
    service.tokens.revoke(user_id)
    return _done()


@router.post("/users/{user_id}/api-keys")
async def add_api_key(service: ServiceState, user_id: str) -> Response:
    """Make an API key."""
    return _done(service.api_keys.add(service.users.needed(user_id).id))


@router.put("/clock-offset")
async def set_clock_offset(service: ServiceState, order: SecondsBody) -> Response:
    """Make the clock that API keys are checked against go wrong."""
    service.api_keys.set_clock_offset(order.seconds)
    return _done()


@router.post("/webhooks")
async def add_webhook(service: ServiceState, order: WebhookBody) -> Response:
    """Put a webhook there."""
    return _done(service.webhooks.add(**order.model_dump()))


@router.get("/webhooks")
async def webhooks(service: ServiceState) -> Response:
    """List all webhooks."""
    return _done(service.webhooks.everything())


@router.get("/whitelist-requests")
async def whitelist_requests(service: ServiceState) -> Response:
    """List all whitelisting requests."""
    return _done(service.whitelist.everything())


@router.put("/whitelist-requests/{request_id}")
async def change_whitelist_request(service: ServiceState, request_id: str, order: WhitelistChangeBody) -> Response:
    """Change how a whitelisting request looks."""
    if order.status is not None:
        service.whitelist.set_status(request_id, order.status)
    if order.age is not None:
        service.whitelist.set_age(request_id, order.age)
    if order.fields is not None:
        service.whitelist.change(request_id, order.fields)
    if order.metadata is not None:
        service.whitelist.set_metadata(request_id, order.metadata)
    return _done()


@router.put("/approvers")
async def set_approvers(service: ServiceState, order: ApproversBody) -> Response:
    """Say who must sign the requests that are created from now on."""
    service.whitelist.set_approvers(order.model_dump()["parallel"])
    return _done()


@router.put("/whitelist-lag")
async def set_whitelist_lag(service: ServiceState, order: SecondsBody) -> Response:
    """Show whitelisting requests in look-ups only when they are so old."""
    service.whitelist.set_lag(order.seconds)
    return _done()


@router.get("/received")
async def received(service: ServiceState, method: str | None = None, path: str | None = None) -> Response:
    """List the requests that reached the service."""
    return _done(service.received.list(method, path))


@router.delete("/received")
async def clear_received(service: ServiceState) -> Response:
    """Forget which requests reached the service."""
    service.received.clear()
    return _done()


@router.post("/faults")
async def order_fault(service: ServiceState, order: FaultBody) -> Response:
    """Order a fault."""
    service.faults.order(order)
    return _done()


@router.get("/faults")
async def faults(service: ServiceState) -> Response:
    """List the faults still to come."""
    return _done(service.faults.list())


@router.delete("/faults")
async def clear_faults(service: ServiceState) -> Response:
    """Forget the faults still to come."""
    service.faults.clear()
    return _done()
