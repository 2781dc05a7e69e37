"""The bodies and queries of the whitelisting operations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from airflow_custody.sandbox.errors import invalid
from airflow_custody.sandbox.wire import equal_ignoring_case

DEFAULT_LIMIT = 20
MAX_LIMIT = 100
# Maximum number of requests in one approval or rejection. It is an assumption.
MAX_BATCH = 100

NotBlank = Annotated[str, StringConstraints(pattern=r"\S")]
LinkedId = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
# The known types. It is an assumption that the service rejects other words.
AddressType = Literal["individual", "exchange", "baker", "contract", "stakepool", "validator", "node", "fiatprovider"]


class NewRequest(BaseModel):
    """The body of a call that creates a request."""

    # Unknown fields are ignored, and null means that the field is not given.
    model_config = ConfigDict(strict=True, extra="ignore", alias_generator=to_camel)

    blockchain: str | None = None
    currency: str | None = None
    label: NotBlank
    address: NotBlank
    linked_internal_address_ids: list[LinkedId] | None = None
    linked_wallet_ids: list[LinkedId] | None = None
    network: str | None = None
    memo: str | None = None
    address_type: AddressType | None = None
    contract_type: str | None = None
    customer_id: str | None = None
    exchange_account_id: str | None = None
    visibility_group_id: str | None = Field(default=None, alias="visibilityGroupID")

    @property
    def chain(self) -> str:
        """The chain, from `blockchain` or its deprecated alias `currency`."""
        if self.blockchain and self.currency and not equal_ignoring_case(self.blockchain, self.currency):
            raise invalid(f"blockchain {self.blockchain} and currency {self.currency} differ")
        chain = self.blockchain or self.currency
        if not chain or not chain.strip():
            raise invalid("blockchain: Field required")
        return chain


class _Listing(BaseModel):
    limit: int = Field(default=DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    offset: int = Field(default=0, ge=0, le=2**31)
    ids: list[str] = []


class Search(_Listing):
    """The parameters that select requests. The maximum limit is an assumption."""

    addresses: list[str] = []
    include_pending: bool = Field(default=False, alias="includeForApproval")
    #: Whether the rules are returned once, beside the requests, and not in each request.
    rules_once: bool = Field(default=False, alias="rulesContainerNormalized")


class ApprovalSearch(_Listing):
    """The parameters that select requests for approval by the caller."""

    include_signed: bool = Field(default=False, alias="includeAlreadySignedByUser")


Ids = Annotated[list[str], Field(min_length=1, max_length=MAX_BATCH)]


class Approval(BaseModel):
    """The body of an approval."""

    model_config = ConfigDict(strict=True)

    ids: Ids
    signature: str
    comment: NotBlank


class Rejection(BaseModel):
    """The body of a rejection."""

    model_config = ConfigDict(strict=True)

    ids: Ids
    comment: NotBlank


class Deletion(BaseModel):
    """The body of a deletion."""

    model_config = ConfigDict(strict=True)

    id: str
    comment: NotBlank
