"""Everything the sandbox knows, in one object."""

from __future__ import annotations

from typing import Any

from airflow_custody.sandbox.faults.connections import Connections
from airflow_custody.sandbox.faults.store import FaultStore
from airflow_custody.sandbox.health.store import HealthStore
from airflow_custody.sandbox.request_log import RequestLog
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import TokenStore
from airflow_custody.sandbox.webhooks.calls import CallStore
from airflow_custody.sandbox.webhooks.store import WebhookStore
from airflow_custody.sandbox.whitelist.approvals import Approvals
from airflow_custody.sandbox.whitelist.signers import SignerStore
from airflow_custody.sandbox.whitelist.store import WhitelistStore


class Service:
    """The stores of the service, and the faults that are injected into it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.users = UserStore(state)
        self.tokens = TokenStore(state, self.users)
        self.health = HealthStore(state)
        self.rules = RuleStore(state, self.users)
        self.whitelist = WhitelistStore(state, self.users, self.rules)
        self.approvals = Approvals(state, self.users, self.whitelist)
        self.signers = SignerStore(state, self.users, self.tokens, self.rules, self.whitelist)
        self.webhooks = WebhookStore(state)
        self.webhook_calls = CallStore(state)
        self.faults = FaultStore()
        self.connections = Connections()
        self.request_log = RequestLog()

    def about(self) -> dict[str, Any]:
        """Return whether this is a sandbox, and which version of the service it imitates."""
        return {"sandbox": True, "version": self.state.settings.version}

    def reset(self) -> None:
        """
        Go back to the state of a fresh sandbox, without faults and logged requests; only the main token and the
        super-administrators' keys stay.

        Calls that a fault still delays are cut off, and do no more work.
        """
        self.state.clear()
        self.health.reload()
        self.faults.clear_faults()
        self.connections.cut_off_delays()
        self.request_log.clear_request_log()
