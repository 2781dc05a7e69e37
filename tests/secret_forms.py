"""All the forms in which a service may echo a secret."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from contextlib import suppress
from html.entities import codepoint2name
from urllib.parse import quote, quote_plus

from hypothesis import strategies as st


def in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def as_go_writes(text: str) -> str:
    text = json.dumps(text, ensure_ascii=False)[1:-1]
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def named_entities(text: str) -> str:
    return "".join(
        f"&{codepoint2name[ord(each)]};" if ord(each) in codepoint2name else html.escape(each) for each in text
    )


def upper_case_hex(text: str) -> str:
    return "".join(f"\\u{ord(each):04X}" if ord(each) < 0x10000 else in_json(each) for each in text)


def every_byte(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def read_as_latin_1(text: str) -> str:
    return text.encode().decode("latin-1")


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": in_json,
    "JSON, raw": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON, Go": as_go_writes,
    "JSON, upper case": upper_case_hex,
    "JSON, slashes": lambda text: in_json(text).replace("/", "\\/"),
    "HTML": html.escape,
    "HTML, named": named_entities,
    "HTML, decimal": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "HTML, hexadecimal": lambda text: "".join(f"&#x{ord(each):x};" for each in text),
    "HTML, upper case": lambda text: "".join(f"&#X{ord(each):04X};" for each in text),
    "URL": lambda text: quote(text, safe=""),
    "URL, slashes": quote,
    "URL, form": quote_plus,
    "URL, every byte": every_byte,
    "read as Latin-1": read_as_latin_1,
    "base64": in_base64,
    "base64, unpadded": lambda text: in_base64(text).rstrip("="),
    "base64, URL": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64, in a URL": lambda text: quote(in_base64(text), safe=""),
    "JSON in JSON": lambda text: in_json(in_json(text)),
    "HTML in JSON": lambda text: in_json(html.escape(text)),
    "HTML in Go's JSON": lambda text: as_go_writes(html.escape(text)),
    "JSON in HTML": lambda text: html.escape(in_json(text)),
    "URL in JSON": lambda text: in_json(quote_plus(text)),
    "URL in a URL": lambda text: quote(quote(text)),
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
