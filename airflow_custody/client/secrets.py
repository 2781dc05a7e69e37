"""Redaction of secrets in text from elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

#: The replacement for a secret.
REDACTED = "***"


def redact(text: str, secrets: Iterable[str]) -> str:
    """
    Return a text with its secrets replaced: as they are, URL-encoded, JSON-escaped, and in base64.

    :param text: any text.
    :param secrets: the secrets.
    """
    # The longest first: one may be part of another.
    for form in sorted({form for secret in secrets if secret for form in _forms(secret)}, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return text


def _forms(secret: str) -> set[str]:
    data = secret.encode("utf-8", "surrogatepass")
    in_json = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    in_base64 = {base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()}
    # A form without padding also matches the form with it.
    return {
        secret,
        quote(data),
        quote(data, safe=""),
        quote_plus(data),
        *in_json,
        *(each.rstrip("=") for each in in_base64),
    }
