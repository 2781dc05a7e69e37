"""Reading the tenant's currencies and configuration, as the service reports them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_custody.client import CustodyClient, CustodyError, CustodyResponseError
from airflow_custody.client.tenant.models import Currency, TenantConfig
from airflow_custody.sandbox import Sandbox


def test_currencies_without_the_values_that_the_service_leaves_out(client: CustodyClient, sandbox: Sandbox) -> None:
    ether = {"id": 7, "symbol": "ETH", "name": "Ether", "displayName": "Ethereum", "blockchain": "ETH", "new": [1]}
    listed = [{**ether, "network": "mainnet", "decimals": 18, "enabled": True}, {"symbol": "USDC", "isToken": True}, {}]
    sandbox.control.add_fault("status", path="/currencies", status=200, body={"result": listed})
    native, token, empty = client.list_currencies()
    assert native == Currency("7", "ETH", "Ether", "Ethereum", "", "ETH", "mainnet", "18", enabled=True)
    assert (native.is_chain, token.is_chain) == (True, False)
    assert (token.enabled, empty) == (False, Currency())


def test_disabled_currencies_are_listed_on_demand(client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.configure(disabled_currencies=["DOT"])
    assert "DOT" in {each.symbol for each in client.list_currencies()}
    assert "DOT" not in {each.symbol for each in client.list_currencies(show_disabled=False)}
    queries = [each["query"] for each in sandbox.control.request_log(path="/currencies")]
    assert queries == [{"showDisabled": ["true"]}, {}]


def test_a_tenant_may_have_no_currency(client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.add_fault("status", path="/currencies", status=200, body={})
    assert client.list_currencies() == []


CONFIG = {"tenantId": 1, "superAdminMinimumSignatures": 2, "protectEngineVersion": "3.20", "isMFAMandatory": True}


@pytest.mark.parametrize("body", [CONFIG, {"config": CONFIG}], ids=["flat", "in an object"])
def test_the_configuration(client: CustodyClient, sandbox: Sandbox, body: dict[str, Any]) -> None:
    sandbox.control.add_fault("status", path="/config", status=200, body=body)
    assert client.get_tenant_config() == TenantConfig("1", 2, "3.20", is_mfa_mandatory=True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/currencies", {"status": "UP"}),
        ("/currencies", {"result": "ok"}),
        ("/config", {}),
        ("/config", {"config": {"superAdminMinimumSignatures": "2"}}),
        ("/config", {"tenantId": "1", "superAdminMinimumSignatures": "two"}),
        ("/config", {"tenantId": "1", "superAdminMinimumSignatures": "-1"}),
    ],
)
def test_another_form_is_not_interpreted(client: CustodyClient, sandbox: Sandbox, path: str, body: Any) -> None:
    sandbox.control.add_fault("status", path=path, status=200, body=body)
    with pytest.raises(CustodyResponseError):
        client.list_currencies() if path == "/currencies" else client.get_tenant_config()


def test_a_service_may_not_offer_them(client: CustodyClient, sandbox: Sandbox) -> None:
    sandbox.control.configure(not_offered=["GET /currencies", "GET /config/tenant"])
    for call in (client.list_currencies, client.get_tenant_config):
        with pytest.raises(CustodyError) as caught:
            call()
        assert caught.value.not_offered_by_service
        assert caught.value.code == "not-offered"


def test_user_and_key_in_the_rules_in_force(sandbox: Sandbox) -> None:
    ann = sandbox.control.add_signers(["ann", "bob"])[0]
    names = ("enforcedInRules", "publicKeyEnforcedInRules")
    with CustodyClient(sandbox.url, ann["token"]) as client:
        assert not {*names} & client.get_current_user().keys()
        user = client.get_current_user(check_enforced=True)
        assert [user.get(name) for name in names] == [True, True]
