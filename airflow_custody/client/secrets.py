"""Redaction of secrets in text from elsewhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from functools import lru_cache

#: The replacement for a secret.
REDACTED = "***"


def redact(text: str, secrets: Iterable[str]) -> str:
    """
    Return a text with its secrets replaced: as they are, URL-encoded, JSON-escaped, and in base64.

    :param text: any text.
    :param secrets: the secrets.
    """
    # The longest first: one may be part of another.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = _pattern(secret).sub(REDACTED, text)
    return text


@lru_cache(maxsize=256)
def _pattern(secret: str) -> re.Pattern[str]:
    data = secret.encode("utf-8", "surrogatepass")
    encoded = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    # A form without padding also matches the form with it.
    forms = "|".join(re.escape(each.rstrip("=")) for each in encoded)
    return re.compile(f"{''.join(map(_any_form, secret))}|{forms}")


def _any_form(character: str) -> str:
    """Return a pattern for a character: as it is, URL-encoded, or escaped in JSON. Writers escape different ones."""
    if character.isascii() and character.isalnum():
        return character
    in_json = {json.dumps(character)[1:-1], "\\/" if character == "/" else character}
    units = character.encode("utf-16-be", "surrogatepass").hex()
    in_json.add("".join(f"\\u{units[index : index + 4]}" for index in range(0, len(units), 4)))
    in_url = {"".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))}
    in_url |= {"+"} if character == " " else set()
    return f"(?:{'|'.join(f'(?i:{re.escape(each)})' for each in sorted(in_json | in_url | {character}))})"
