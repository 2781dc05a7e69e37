"""The control routes, which the real service does not have. They need no authentication: they are for tests only."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response

from airflow_custody.sandbox.control import webhooks
from airflow_custody.sandbox.control.bodies import (
    Approvers,
    Currencies,
    HashedNetwork,
    HealthEntries,
    HealthResponse,
    HealthUpdate,
    MaxSignatures,
    Names,
    NewRequests,
    NewToken,
    NewUser,
    OrderedAttack,
    RequestIds,
    Rules,
    Seconds,
    StatusWords,
    Superadmins,
    TokenClaims,
    Version,
    WhitelistChange,
)
from airflow_custody.sandbox.control.responses import control_result
from airflow_custody.sandbox.dependencies import ServiceDep
from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.faults.store import Fault
from airflow_custody.sandbox.listings import ListingOddities
from airflow_custody.sandbox.whitelist.behaviour import Behaviour
from airflow_custody.sandbox.whitelist.store import EFFECTIVE, PENDING

router = APIRouter()
router.include_router(webhooks.router)


@router.get("")
async def about(service: ServiceDep) -> Response:
    """Identify the sandbox, and the version of the service it imitates."""
    return control_result({"sandbox": True, "version": ".".join(str(part) for part in service.version)})


@router.post("/reset")
async def reset(service: ServiceDep) -> Response:
    """Reset everything but the main token and the super-administrators' keys."""
    service.reset()
    return control_result()


@router.put("/health")
async def set_health(service: ServiceDep, body: HealthEntries) -> Response:
    """Set the health entries."""
    service.health.set(body.entries)
    return control_result()


@router.put("/health/response")
async def set_health_response(service: ServiceDep, body: HealthResponse) -> Response:
    """Set the whole response to the health listing."""
    service.health.set_response(body.response)
    return control_result()


@router.patch("/health")
async def update_health(service: ServiceDep, body: HealthUpdate) -> Response:
    """Change health entries."""
    return control_result(service.health.update(body.group, body.component, body.check, body.fields))


@router.put("/currencies")
async def set_currencies(service: ServiceDep, body: Currencies) -> Response:
    """Set the active currencies."""
    service.whitelist.set_currencies(body.currencies)
    return control_result()


@router.put("/version")
async def set_version(service: ServiceDep, body: Version) -> Response:
    """Imitate another version of the service."""
    service.state.set_setting("version", body.version)
    return control_result()


@router.post("/tokens")
async def add_token(service: ServiceDep, body: NewToken) -> Response:
    """Add a token."""
    return control_result(service.tokens.add(**body.model_dump()))


@router.put("/token-lifetime")
async def set_token_lifetime(service: ServiceDep, body: Seconds) -> Response:
    """Set the lifetime of tokens."""
    service.tokens.set_lifetime(body.seconds)
    return control_result()


@router.put("/token-claims")
async def set_token_claims(service: ServiceDep, body: TokenClaims) -> Response:
    """Set what tokens say about their time."""
    service.tokens.set_claims(**body.model_dump())
    return control_result()


@router.post("/users")
async def add_user(service: ServiceDep, body: NewUser) -> Response:
    """Add or replace a user."""
    return control_result(service.users.add(**body.model_dump()))


@router.delete("/users/{user_id}/tokens")
async def revoke_tokens(service: ServiceDep, user_id: str) -> Response:
    """Revoke the tokens of a user."""
    service.tokens.revoke(user_id)
    return control_result()


@router.post("/users/{user_id}/api-keys")
async def add_api_key(service: ServiceDep, user_id: str) -> Response:
    """Add an API key."""
    return control_result(service.api_keys.add(service.users.require(user_id).id))


@router.put("/clock-offset")
async def set_clock_offset(service: ServiceDep, body: Seconds) -> Response:
    """Set how far ahead the clock is that API keys are checked against."""
    service.api_keys.set_clock_offset(body.seconds)
    return control_result()


@router.put("/listings/{name}")
async def set_listing(
    service: ServiceDep, name: Literal["whitelist", "webhooks", "webhook-calls"], body: ListingOddities
) -> Response:
    """Set how a listing behaves."""
    listings = {
        "whitelist": service.whitelist.listing,
        "webhooks": service.webhooks.listing,
        "webhook-calls": service.webhook_calls.listing,
    }
    listings[name].set(body)
    return control_result()


@router.get("/whitelist-requests")
async def whitelist_requests(service: ServiceDep) -> Response:
    """List all whitelisting requests."""
    return control_result(service.whitelist.list_all())


@router.post("/whitelist-requests")
async def add_whitelist_requests(service: ServiceDep, body: NewRequests) -> Response:
    """Add whitelisting requests."""
    if body.signed and body.status != EFFECTIVE:
        raise invalid(f"signed: requests that are signed have the status {EFFECTIVE}")
    found = service.whitelist.add(
        body.requests,
        status=PENDING if body.signed else body.status,
        tenant_id=body.tenant_id,
        user_id=body.user_id,
    )
    if body.signed:
        service.signers.sign(found)
    return control_result(found)


@router.post("/whitelist-requests/sign")
async def sign_whitelist_requests(service: ServiceDep, body: RequestIds) -> Response:
    """Sign whitelisting requests as users of the sandbox's own."""
    service.signers.sign(body.ids)
    return control_result()


@router.put("/whitelist-requests/{request_id}")
async def change_whitelist_request(service: ServiceDep, request_id: str, body: WhitelistChange) -> Response:
    """Change a whitelisting request."""
    if body.status is not None:
        service.whitelist.set_status(request_id, body.status)
    if body.age is not None:
        service.whitelist.set_age(request_id, body.age)
    if body.fields is not None:
        service.whitelist.change(request_id, body.fields)
    if body.metadata is not None:
        service.whitelist.set_metadata(request_id, body.metadata)
    if body.envelope is not None:
        service.whitelist.set_envelope(request_id, body.envelope)
    return control_result()


@router.get("/attacks")
async def attacks(service: ServiceDep) -> Response:
    """List the attacks there are."""
    return control_result(service.attacks.all())


@router.put("/whitelist-requests/{request_id}/attack")
async def attack(service: ServiceDep, request_id: str, body: OrderedAttack) -> Response:
    """Attack a whitelisting request, or stop that."""
    service.attacks.order(request_id, body.name)
    return control_result()


@router.post("/approvers")
async def add_approvers(service: ServiceDep, body: Names) -> Response:
    """Add approvers with keys, and require that they sign."""
    return control_result(service.approvers.add(body.names))


@router.put("/approvers")
async def set_approvers(service: ServiceDep, body: Approvers) -> Response:
    """Set who must sign the requests that are created from now on, if no rule is for their chain."""
    service.rules.set_approvers(body.model_dump()["parallel"])
    return control_result()


@router.put("/rules")
async def set_rules(service: ServiceDep, body: Rules) -> Response:
    """Set the rules for the requests that are created from now on."""
    service.rules.set_rules(body.model_dump()["rules"])
    return control_result()


@router.put("/superadmins")
async def set_superadmins(service: ServiceDep, body: Superadmins) -> Response:
    """Set the number of super-administrators, and how many of them must sign."""
    service.rules.set_superadmins(body.number, body.minimum)
    return control_result()


@router.get("/pins")
async def pins(service: ServiceDep) -> Response:
    """Return what a client pins to verify the rules."""
    return control_result(service.rules.pins())


@router.put("/whitelist-behaviour")
async def set_whitelist_behaviour(service: ServiceDep, body: Behaviour) -> Response:
    """Set how the service treats the requests that are created from now on."""
    service.whitelist.set_behaviour(body)
    return control_result()


@router.put("/whitelist-network")
async def set_network_is_hashed(service: ServiceDep, body: HashedNetwork) -> Response:
    """Set whether the network is part of the payload."""
    service.whitelist.set_network_is_hashed(body.is_hashed)
    return control_result()


@router.put("/whitelist-status-words")
async def set_status_words(service: ServiceDep, body: StatusWords) -> Response:
    """Set how status words are written."""
    service.whitelist.set_status_words(body.words)
    return control_result()


@router.put("/max-signatures")
async def set_max_signatures(service: ServiceDep, body: MaxSignatures) -> Response:
    """Set how many requests of an approval are signed."""
    service.whitelist.set_max_signatures(body.number)
    return control_result()


@router.put("/whitelist-lag")
async def set_whitelist_lag(service: ServiceDep, body: Seconds) -> Response:
    """Set how old whitelisting requests must be to be found."""
    service.whitelist.set_lag(body.seconds)
    return control_result()


@router.get("/request-log")
async def request_log(service: ServiceDep, method: str | None = None, path: str | None = None) -> Response:
    """List the requests that reached the service."""
    return control_result(service.request_log.list(method, path))


@router.delete("/request-log")
async def clear_request_log(service: ServiceDep) -> Response:
    """Delete the log of requests."""
    service.request_log.clear()
    return control_result()


@router.post("/faults")
async def add_fault(service: ServiceDep, fault: Fault) -> Response:
    """Add a fault."""
    service.faults.add(fault)
    return control_result()


@router.get("/faults")
async def faults(service: ServiceDep) -> Response:
    """List the faults that are not used up."""
    return control_result(service.faults.list())


@router.delete("/faults")
async def clear_faults(service: ServiceDep) -> Response:
    """Delete all faults."""
    service.faults.clear()
    return control_result()
