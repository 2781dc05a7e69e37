"""Keep secrets in objects whose ``repr`` hides them, and redact secrets in text from outside."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import SecretStr

#: The replacement for a secret.
REDACTED = "***"
# Matches a URL. Everything before and after its host may be a secret, because many services accept a token in the path.
_PLACE = re.compile(
    r"(?P<scheme>https?)://(?P<user>[^/?#\\]*@)?(?P<host>[\w.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?P<port>:[0-9]{1,5})?"
    r"(?P<rest>[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
# Punctuation that may surround a URL in a sentence.
_AROUND_URLS = "\"'`.,;:!?()<>[]{}"
# Slashes that mark a word as a URL: plain, JSON-escaped, or URL-encoded.
_IN_URLS = ("//", "\\/", "%2f")


def as_secret(text: str | SecretStr) -> SecretStr:
    """
    Return a secret in a form that error reports do not show.

    Error reports, such as Sentry's, contain the local variables of every function in a traceback. Therefore a function
    that gets a secret as text wraps it at once, and unwraps it only where it is used, without assigning it to a
    variable.

    :param text: the secret, as text or already in this form.
    """
    # Import pydantic only here, because a DAG file may import this module.
    from pydantic import SecretStr

    return text if isinstance(text, SecretStr) else SecretStr(text)


def redact(text: str, secrets: Iterable[str]) -> str:
    """
    Return a text with its secrets replaced.

    Secrets are found verbatim, URL-encoded, JSON-escaped and in base64.

    :param text: any text.
    :param secrets: the secrets.
    """
    # Replace the longest secret first, because one secret may be part of another.
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = _pattern(secret).sub(REDACTED, text)
    return text


@lru_cache(maxsize=256)
def _pattern(secret: str) -> re.Pattern[str]:
    data = secret.encode("utf-8", "surrogatepass")
    encoded = base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()
    # Search for the base64 text without its padding, which finds it with and without padding.
    forms = "|".join(re.escape(each.rstrip("=")) for each in encoded)
    return re.compile(f"{''.join(map(_any_form, secret))}|{forms}")


def _any_form(character: str) -> str:
    """
    Return a pattern for all forms of a character: verbatim, URL-encoded and JSON-escaped.

    Each character of a secret may have any of these forms, because encoders differ in which characters they escape.
    """
    if character.isascii() and character.isalnum():
        return character
    in_json = {json.dumps(character)[1:-1], "\\/" if character == "/" else character}
    units = character.encode("utf-16-be", "surrogatepass").hex()
    in_json.add("".join(f"\\u{units[index : index + 4]}" for index in range(0, len(units), 4)))
    in_url = {"".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))}
    in_url |= {"+"} if character == " " else set()
    return f"(?:{'|'.join(f'(?i:{re.escape(each)})' for each in sorted(in_json | in_url | {character}))})"


def without_secrets(url: Any) -> str | None:
    """
    Return a URL's scheme, host and port, without possible secrets; None if there is no URL.

    If the host may be part of a secret, the whole URL is redacted.
    """
    if not url:
        return None
    place = _PLACE.fullmatch(str(url))
    # If the password has unencoded characters, the apparent host may be part of the password.
    if place is None or "@" in (place["rest"] or ""):
        return REDACTED
    user, rest = (f"{REDACTED}@" if place["user"] else ""), (f"/{REDACTED}" if (place["rest"] or "/") != "/" else "")
    return f"{place['scheme']}://{user}{place['host']}{place['port'] or ''}{rest}"


def shorten_urls(text: str) -> str:
    """Return a text with its URLs shortened by :func:`without_secrets`."""
    words = text.split()
    for position, word in enumerate(words):
        if any(each in word.lower() for each in _IN_URLS):
            words[position] = without_secrets(word.strip(_AROUND_URLS)) or REDACTED
    return " ".join(words)
