"""Operations that the service does not offer, or that are disabled."""

from __future__ import annotations

from typing import Any

import pytest
from support.service.sandbox_api import ETH, PATH, Api, refused

from airflow_custody.sandbox import Sandbox

ID = "3f1c1f0e-6c1b-4c57-9d0e-6a3c5f3f0b11"


def test_only_the_contract(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.add_webhook(id=ID)
    sandbox.control.configure(operations="contract")
    assert api.get("/health?tenantId=1").status_code == 200
    assert api.create() == "3711"
    assert api.call("PATCH", f"/webhooks/{ID}", {"status": "disabled"}).json()["webhook"]["status"] == "disabled"
    assert api.call("DELETE", f"/webhooks/{ID}").json() == {}
    for method, path in [
        *(("GET", each) for each in ("/users/me", "/rules", PATH, f"{PATH}/3711", "/webhooks", "/webhooks/calls")),
        *(("POST", each) for each in ("/webhooks", f"{PATH}/approve", "/authentication/token", "/health")),
        *(("GET", each) for each in (f"/webhooks/{ID}", "/health/all", "/health/", "/")),
        ("DELETE", f"/webhooks/{ID}/more"),
    ]:
        assert refused(api.call(method, path, {}), 404) == "Not Found"


def test_disabled_operations_are_refused_without_naming_a_role(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(disabled=["GET /rules", f"GET {PATH}/{{id}}"])
    number = api.create()
    for path in ("/rules", f"{PATH}/{number}"):
        assert refused(api.get(path), 403) == "This endpoint has been disabled"
    assert api.listed() == []
    sandbox.control.configure(disabled=[])
    assert api.get("/rules").status_code == 200


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ({"result": "ok"}, "application/json", '{"result":"ok"}'),
        ([], "application/json", "[]"),
        ("", None, ""),
        ("<html>ok</html>", "text/html; charset=utf-8", "<html>ok</html>"),
    ],
    ids=str,
)
def test_the_response_to_a_change_of_a_webhook_is_a_setting(
    api: Api, sandbox: Sandbox, body: Any, content_type: str | None, text: str
) -> None:
    sandbox.control.add_webhook(id=ID)
    sandbox.control.configure(webhook_response=body)
    for method, change in (("PATCH", {"status": "disabled"}), ("DELETE", None)):
        response = api.call(method, f"/webhooks/{ID}", change)
        assert response.status_code == 200
        assert response.headers.get("content-type") == content_type
        assert response.text == text
    assert sandbox.control.webhooks() == []
    refused(api.call("DELETE", f"/webhooks/{ID}"), 404)


def test_a_refusal_can_be_part_of_a_longer_text(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(role_refusal="filter failed: {} (E7)")
    token = sandbox.control.add_token(["TPUser"])
    body = {"blockchain": "ETH", "label": "x", "address": ETH}
    message = refused(api.post(PATH, body, token=token), 403)
    assert message == "filter failed: one of the 'whitelistedaddresscreator' role is required (E7)"


def test_an_error_can_have_an_id(api: Api, sandbox: Sandbox) -> None:
    sandbox.control.configure(error_ids=True)
    one, two = (api.get(f"{PATH}/9").json() for _ in range(2))
    assert one["details"][0] == {"message": one["message"], "code": 404, "id": one["details"][0]["id"]}
    assert one["details"][0]["id"] != two["details"][0]["id"]
