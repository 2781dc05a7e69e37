"""All stores of the sandbox in one object."""

from __future__ import annotations

from typing import Any

from airflow_custody.sandbox.faults.connections import Connections
from airflow_custody.sandbox.faults.store import FaultStore
from airflow_custody.sandbox.health.store import HealthStore
from airflow_custody.sandbox.request_log import RequestLog
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tenant.store import TenantStore
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import TokenStore
from airflow_custody.sandbox.webhooks.calls import CallStore
from airflow_custody.sandbox.webhooks.store import WebhookStore
from airflow_custody.sandbox.whitelist.approvals import Approvals
from airflow_custody.sandbox.whitelist.signers import SignerStore
from airflow_custody.sandbox.whitelist.store import WhitelistStore


class Service:
    """The stores of the service, and its injected faults."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.users = UserStore(state)
        self.tokens = TokenStore(state, self.users)
        self.health = HealthStore(state)
        self.rules = RuleStore(state, self.users)
        self.tenant = TenantStore(state)
        self.whitelist = WhitelistStore(state, self.users, self.rules, self.tenant)
        self.approvals = Approvals(state, self.users, self.whitelist)
        self.signers = SignerStore(state, self.users, self.tokens, self.rules, self.whitelist)
        self.webhooks = WebhookStore(state)
        self.webhook_calls = CallStore(state)
        self.faults = FaultStore()
        self.connections = Connections()
        self.request_log = RequestLog()

    def about(self) -> dict[str, Any]:
        """Return ``sandbox`` (true), and the imitated ``version`` of the service."""
        return {"sandbox": True, "version": self.state.settings.version}

    def reset(self) -> None:
        """
        Restore the state of a fresh sandbox, without faults and logged requests.

        Only the main token and the super-administrators' keys are kept. Calls that a fault is delaying are aborted, and
        do no more work.
        """
        self.state.clear()
        self.health.reload()
        self.faults.clear_faults()
        self.connections.cut_off_delays()
        self.request_log.clear_request_log()
