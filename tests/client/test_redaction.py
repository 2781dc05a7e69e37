"""Secrets in text from elsewhere are replaced: as they are, URL-encoded, JSON-escaped and in base64."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_forms import FORMS, secrets

from airflow_custody.client.secrets import REDACTED, redact


@given(secrets, st.sampled_from(list(FORMS)))
def test_a_secret_is_redacted_in_every_form(secret: str, form: str) -> None:
    marked = f"{secret}Zq7"
    text = redact(f"<{FORMS[form](marked)}>", [marked])
    assert FORMS[form](marked) not in text
    assert REDACTED in text


@pytest.mark.parametrize("secret", ["", "====", "tea"])
def test_what_is_no_secret_stays(secret: str) -> None:
    assert redact("no such text", [secret]) == "no such text"


def test_what_holds_another_secret_is_redacted_whole() -> None:
    assert redact("t0ken-and-more", ["t0ken", "t0ken-and-more"]) == REDACTED
