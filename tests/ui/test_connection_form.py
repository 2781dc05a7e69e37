"""Airflow's form for a connection of type Custody, and its test button."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect
from support.browser.page_visitor import SMALL, Visitor

from airflow_custody.get_provider_info import get_provider_info
from airflow_custody.sandbox import Sandbox

Visit = Callable[..., Visitor]
TYPE = get_provider_info()["connection-types"][0]
_TIMEOUT = 120_000
#: A low window, so that the note of the test button is near the form.
_LOW = {**SMALL, "height": 520}


def open_form(page: Page, url: str, conn_id: str) -> Locator:
    """Open the form for a new connection of this type, and return it."""
    page.goto(f"{url}/connections")
    page.get_by_role("button", name="Add Connection").click()
    form = page.get_by_role("dialog")
    form.locator("input[name=connection_id]").fill(conn_id)
    kind = form.get_by_role("combobox").first
    kind.click()
    kind.fill("custody")
    page.get_by_role("option", name="Custody", exact=True).click()
    expect(form.locator("input[name=host]")).to_be_visible(timeout=_TIMEOUT)
    return form


def fill_in(form: Locator, *, base_url: str, token: str, port: str = "") -> None:
    """Fill in the fields that every connection needs."""
    form.locator("input[name=host]").fill(base_url)
    form.locator("input[name=password]").fill(token)
    form.locator("input[name=port]").fill(port)


def save(page: Page, form: Locator) -> None:
    """Save the connection, and wait until the form is closed."""
    form.get_by_role("button", name="Save").click()
    expect(form).to_be_hidden(timeout=_TIMEOUT)


def press_test(page: Page, conn_id: str) -> Locator:
    """Press the test button of a connection, and return the note with the result."""
    # Reload the page, which removes the note that the connection was saved.
    page.reload()
    row = page.get_by_role("row").filter(has_text=conn_id)
    row.get_by_role("button", name="Test Connection").click()
    # The tooltip of the button would hide other rows.
    page.mouse.move(0, 0)
    note = page.get_by_role("status").filter(has_text="Test Connection")
    expect(note.first).to_be_visible(timeout=_TIMEOUT)
    expect(note.first).to_be_in_viewport(ratio=1)
    expect(note.first).to_have_css("opacity", "1")
    return note.first


@pytest.fixture
def service(services: dict[str, Sandbox]) -> Sandbox:
    return services["custody_default"]


@pytest.mark.picture
def test_the_form_has_labels_placeholders_and_descriptions(visit: Visit, service: Sandbox) -> None:
    visitor = visit(viewport={"width": 1024, "height": 910})
    form = open_form(visitor.page, visitor.url, "custody_production")
    for name, label in TYPE["ui-field-behaviour"]["relabeling"].items():
        expect(form.get_by_text(label, exact=True)).to_be_visible()
        expect(form.locator(f"input[name={name}]")).to_be_visible()
    for name, text in TYPE["ui-field-behaviour"]["placeholders"].items():
        assert form.locator(f"input[name={name}]").get_attribute("placeholder") == text
    assert not form.locator("input[name=schema]").count()
    fill_in(form, base_url="https://custody.example.com", token="a-token-to-look-at", port="443")
    visitor.take_picture("connection-form", around=form)
    form.get_by_text("Extra Fields", exact=True).click()
    for field in TYPE["conn-fields"].values():
        expect(form.get_by_text(field["label"], exact=True)).to_be_visible(timeout=_TIMEOUT)
        expect(form.get_by_text(field["description"], exact=True)).to_be_visible()


def test_the_button_names_the_roles_that_the_user_lacks(visit: Visit, service: Sandbox) -> None:
    visitor = visit(viewport=_LOW)
    form = open_form(visitor.page, visitor.url, "custody_reader")
    token = service.control.add_token(["TPUser"])
    fill_in(form, base_url=service.url, token=token, port=str(urlsplit(service.url).port))
    save(visitor.page, form)
    note = press_test(visitor.page, "custody_reader")
    expect(note).to_contain_text("Test Connection Successful")
    expect(note).to_contain_text("Missing: WhitelistedAddressCreator (creating whitelisting requests)")


def test_the_button_reports_a_wrong_scheme(visit: Visit, service: Sandbox) -> None:
    visitor = visit(viewport=_LOW)
    form = open_form(visitor.page, visitor.url, "custody_wrong")
    # A URL without a scheme counts as HTTPS.
    fill_in(form, base_url=urlsplit(service.url).netloc, token=service.token, port=str(urlsplit(service.url).port))
    save(visitor.page, form)
    note = press_test(visitor.page, "custody_wrong")
    expect(note).to_contain_text("Start the base URL of this connection with http://")


def test_without_a_port_airflows_button_is_a_bad_request(visit: Visit, service: Sandbox) -> None:
    # If this fails, Airflow handles an empty port, and the placeholder and the documentation need no port any longer.
    visitor = visit()
    form = open_form(visitor.page, visitor.url, "custody_portless")
    fill_in(form, base_url=service.url, token=service.token)
    save(visitor.page, form)
    service.control.clear_request_log()
    expect(press_test(visitor.page, "custody_portless")).to_contain_text("Bad Request")
    assert service.control.request_log() == []
