"""Everything the sandbox knows, in one object."""

from __future__ import annotations

from airflow_custody.sandbox.faults.connections import Connections
from airflow_custody.sandbox.faults.delays import Delays
from airflow_custody.sandbox.faults.store import FaultStore
from airflow_custody.sandbox.health.store import HealthStore
from airflow_custody.sandbox.request_log import RequestLog
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.api_keys import ApiKeyStore
from airflow_custody.sandbox.users.approvers import ApproverStore
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import TokenStore
from airflow_custody.sandbox.webhooks.calls import CallStore
from airflow_custody.sandbox.webhooks.store import WebhookStore
from airflow_custody.sandbox.whitelist.approvals import Approvals
from airflow_custody.sandbox.whitelist.attacks.store import Attacks
from airflow_custody.sandbox.whitelist.signers import Signers
from airflow_custody.sandbox.whitelist.store import WhitelistStore

# Any version from 3.14 on has the same operations here.
DEFAULT_VERSION = "3.20"


class Service:
    """The stores of the service, and what injects faults into it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.users = UserStore(state)
        self.tokens = TokenStore(state)
        self.api_keys = ApiKeyStore(state)
        self.health = HealthStore(state)
        self.rules = RuleStore(state, self.users)
        self.approvers = ApproverStore(state, self.users, self.tokens, self.rules)
        self.whitelist = WhitelistStore(state, self.users, self.rules)
        self.approvals = Approvals(self.users, self.whitelist)
        self.signers = Signers(state, self.users, self.whitelist)
        self.attacks = Attacks(state, self.rules, self.whitelist, self.signers)
        self.webhooks = WebhookStore(state)
        self.webhook_calls = CallStore(state)
        self.faults = FaultStore()
        self.delays = Delays()
        self.connections = Connections()
        self.request_log = RequestLog(lambda: [*self.tokens.all(), *self.users.passwords()])

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the service that the sandbox imitates."""
        return tuple(int(part) for part in self.state.get_setting("version", DEFAULT_VERSION).split("."))

    def reset(self) -> None:
        """
        Go back to the state of a fresh sandbox; only the main token and the super-administrators' keys stay.

        Calls that a fault still delays are cut off, or they would do their work in the next test.
        """
        self.state.clear()
        self.health.load()
        self.faults.clear()
        self.delays.cancel()
        self.request_log.clear()
