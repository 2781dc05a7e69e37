"""The forms in which a secret is redacted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote, quote_plus

from hypothesis import strategies as st


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON, raw": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    # As .NET and Gson write it.
    "JSON, escaped": lambda text: "".join(
        each
        if each.isascii() and each.isalnum()
        else json.dumps(each)[1:-1]
        if ord(each) > 126
        else f"\\u{ord(each):04X}"
        for each in text
    ),
    "URL": lambda text: quote(text, safe=""),
    "URL, slashes": quote,
    "URL, form": quote_plus,
    "base64": in_base64,
    "base64, unpadded": lambda text: in_base64(text).rstrip("="),
    "base64, URL": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


def forms_of(secret: str) -> set[str]:
    """Return all forms of a secret that nothing may show."""
    return {form(secret) for form in FORMS.values()}


def is_latin_1(text: str) -> bool:
    with suppress(UnicodeEncodeError):
        return bool(text.encode("latin-1")) or not text
    return False


#: Secrets with all that some format escapes.
secrets = st.text(
    st.one_of(
        st.sampled_from("\"\\&<>%+/ é€😀'=;#u0x41"),
        st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]),
    ),
    min_size=4,
    max_size=40,
)
#: Those that can be sent in a header.
tokens = st.text(
    st.one_of(st.sampled_from("\"\\&<>%+/é'=;#u0x41.-_"), st.characters(min_codepoint=0x21, max_codepoint=0x7E)),
    min_size=4,
    max_size=40,
)
