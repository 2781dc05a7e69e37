"""Readings of what is not published about whitelisting requests: how a service may store, date and list them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from airflow_custody.sandbox.wire import timestamp


class Behaviour(BaseModel):
    """
    How the service treats the whitelisting requests that are created from now on.

    The defaults are those of a fresh sandbox: it stores what was sent, dates it by this machine's clock, lists it to
    everybody of the tenant, and deletes it at once.
    """

    model_config = ConfigDict(extra="forbid")

    address_form: Literal["as sent", "lower", "upper", "no prefix"] = "as sent"
    label_length: Annotated[int, Field(ge=1)] | None = None
    chain_name: str | None = None
    drop_links: bool = False
    fill: dict[str, str] = {}
    fill_always: dict[str, str] = {}
    creator_sees_own: bool = True
    rules_on_pending: bool = True
    deletion: Literal["at once", "signed"] = "at once"
    clock_offset: float = 0.0
    created_at: str | None = None

    def stored(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a request as the service stores them."""
        found = {**self.fill, **fields}
        if self.drop_links:
            found = {name: value for name, value in found.items() if not name.startswith("linked")}
        found = {**found, "address": self._spelled(fields["address"]), "label": fields["label"][: self.label_length]}
        return {**found, **self.fill_always}

    def shows_rules(self, is_pending: bool) -> bool:
        """Tell whether the service shows a request's rules."""
        return self.rules_on_pending or not is_pending

    def dated(self) -> str:
        """Return the date of creation that the service gives to a request that is created now."""
        return self.created_at or timestamp(self.clock_offset)

    def _spelled(self, address: str) -> str:
        if self.address_form == "lower":
            return address.lower()
        if self.address_form == "upper":
            return address.upper()
        return address.removeprefix("0x") if self.address_form == "no prefix" else address
