"""A base URL that leads to Airflow itself: what is said of its own API server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from airflow_runs import AIRFLOW

from airflow_custody.client import CustodyClient, CustodyError, CustodyOutcomeUnknownError, WhitelistRequest
from airflow_custody.hooks.custody import CustodyHook

pytestmark = pytest.mark.skipif(AIRFLOW < (3, 0), reason="the web server of Airflow 2 responds with pages")
WEBHOOK = "00000000-0000-4000-8000-000000000000"
REQUEST = WhitelistRequest(label="Treasury", address="0x" + "ab" * 20, blockchain="ETH")


@pytest.fixture(scope="module")
def url(airflow_db: None) -> Iterator[str]:
    """Serve Airflow's own app, and return its URL."""
    import uvicorn
    from airflow.api_fastapi.app import create_app

    server = uvicorn.Server(uvicorn.Config(create_app(apps="core"), lifespan="off", log_config=None))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(600)


@pytest.mark.parametrize("login", [None, "ann"])
def test_the_button_says_that_another_program_is_there(
    monkeypatch: pytest.MonkeyPatch, url: str, login: str | None
) -> None:
    connection = {"conn_type": "custody", "host": url, "login": login, "password": "a-password-of-ann"}
    monkeypatch.setenv("AIRFLOW_CONN_BANK", json.dumps(connection))
    good, text = CustodyHook("bank").test_connection()
    assert not good
    assert "Another program or a gateway may be there: check the base URL of this connection." in text
    assert text.endswith("[custody/response-unusable]")


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.list_health_checks(),
        lambda client: client.get_current_user(),
        lambda client: client.set_webhook_status(WEBHOOK, "disabled"),
        lambda client: client.delete_webhook(WEBHOOK),
    ],
    ids=["get", "get user", "patch", "delete"],
)
def test_each_method(url: str, call: Callable[[CustodyClient], object]) -> None:
    with CustodyClient(url, "a-token-of-nobody", max_retries=0) as client, pytest.raises(CustodyError) as caught:
        call(client)
    assert (caught.value.code, caught.value.from_service) == ("response-unusable", False)
    assert f"Another program or a gateway may be there: check the base URL {url}." in str(caught.value.advice)


def test_a_create_may_have_been_done(url: str) -> None:
    with CustodyClient(url, "a-token-of-nobody") as client, pytest.raises(CustodyOutcomeUnknownError) as caught:
        client.create_whitelist_request(REQUEST)
    assert f"check the base URL {url}" in str(caught.value)
