"""The bodies of the control routes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from airflow_custody.sandbox.whitelist.models import NewRequest, NotBlank


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HealthEntries(_Body):
    """The entries to list."""

    entries: list[dict[str, Any]]


class HealthResponse(_Body):
    """The whole response to the listing."""

    response: Any


class HealthUpdate(_Body):
    """The fields to change, and in which entries."""

    group: str | None = None
    component: str | None = None
    check: str | None = None
    fields: dict[str, Any]


class Currencies(_Body):
    """The active currencies."""

    currencies: list[str]


class Version(_Body):
    """The version of the service to imitate."""

    version: Annotated[str, StringConstraints(pattern=r"^\d{1,9}(\.\d{1,9}){0,3}$")]


class NewToken(_Body):
    """A token to add."""

    roles: list[str] = []
    tenant_id: str = "1"
    user_id: str = "2"
    expires_in: float | None = None
    jwt: bool = False


class NewUser(_Body):
    """A user to add."""

    name: str
    roles: list[str]
    user_id: str | None = None
    tenant_id: str = "1"
    password: str | None = None
    totp: bool = False
    groups: list[str] = []
    public_key: str | None = None
    external_id: str | None = None


class Group(_Body):
    """A group of approvers, and how many of it must sign; zero counts as one."""

    externalGroupID: str
    minimumSignatures: Annotated[int, Field(ge=0, lt=2**32)]


class Seconds(_Body):
    """A number of seconds."""

    seconds: float


class TokenClaims(_Body):
    """What the JWTs of the service say about their time."""

    clock_offset: float = 0
    has_iat: bool = False


class Branch(_Body):
    """Groups of approvers that sign one after the other."""

    sequential: list[Group]


class Line(_Body):
    """Who must sign if a request's only link is the wallet with this path."""

    path: str
    parallel: list[Branch]


class Rule(_Body):
    """Who must sign for a chain and a network; empty or ``Any`` is for all of them."""

    currency: str = ""
    network: str = ""
    parallel: list[Branch]
    lines: list[Line] = []


class Rules(_Body):
    """The rules for whitelisting; None stands for the default."""

    rules: list[Rule] | None


class Superadmins(_Body):
    """How many super-administrators there are, and how many of them must sign."""

    number: Annotated[int, Field(ge=1, le=100)]
    minimum: int


class Approvers(_Body):
    """Who must sign if no rule is for the chain; None stands for the default."""

    parallel: list[Branch] | None


class Names(_Body):
    """The names of two users."""

    names: Annotated[list[NotBlank], Field(min_length=2, max_length=2)]


class HashedNetwork(_Body):
    """Whether the network is part of the payload, and so of its hash."""

    is_hashed: bool


class StatusWords(_Body):
    """How status words are written, by the sandbox's own words."""

    words: dict[str, str]


class MaxSignatures(_Body):
    """The number of requests of an approval that are signed; None: all."""

    number: Annotated[int, Field(ge=0)] | None


class AnyWebhook(_Body):
    """A webhook to add, whatever its values."""

    type: str = "requestStatus.updated"
    url: str = "https://hooks.example.com/custody"
    status: str = "enabled"
    id: str | None = None
    tenant_id: str = "1"
    timeout_until: str = ""


class AnyCall(_Body):
    """A call to a webhook to add, whatever its values."""

    call: dict[str, Any]
    tenant_id: str = "1"


class WebhookChange(_Body):
    """What to change in a webhook, whatever the values."""

    status: str | None = None
    timeout_until: str | None = None


class ManyCalls(_Body):
    """Calls to webhooks to add, one after the other."""

    number: Annotated[int, Field(ge=0, le=1_000_000)]
    age: float = 0.0
    spacing: Annotated[float, Field(ge=0)] = 0.001
    fields: dict[str, Any] = {}
    tenant_id: str = "1"


class NewEvent(_Body):
    """An event to write calls for."""

    webhook_type: str
    payload: Any
    event_id: str | None = None
    age: float = 0.0
    status: str = "success"
    tenant_id: str = "1"


class Enabled(_Body):
    """Whether something is on."""

    enabled: bool


class NewRequests(_Body):
    """Whitelisting requests to add."""

    requests: list[NewRequest]
    status: str
    tenant_id: str = "1"
    user_id: str = "1"
    signed: bool = False


class RequestIds(_Body):
    """The ids of whitelisting requests."""

    ids: list[str]


class OrderedAttack(_Body):
    """The name of an attack; None for none."""

    name: str | None


class WhitelistChange(_Body):
    """What to change in a whitelisting request."""

    status: str | None = None
    age: Annotated[float, Field(ge=0)] | None = None
    fields: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    envelope: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_some_change(self) -> WhitelistChange:
        if not self.model_dump(exclude_none=True):
            raise ValueError("nothing to change")
        return self
