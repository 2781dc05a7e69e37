"""
Values that a spreadsheet, a data frame or a database has garbled: a missing value that became a word, a whole number
that became another spelling of it. Requesting one could lose funds, because a memo may select the account.

They are refused where the text may have gone through such software: in CSV, in rows, and without quotes in YAML.
"""

from __future__ import annotations

import re

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.models import LISTS

#: The fields that tell accounts and objects apart: one that looks like a number must be spelled exactly as it was.
IDS_AND_MEMO = (*LISTS, "memo", "customer_id", "exchange_account_id", "visibility_group_id")
_LABEL = "label"
_MAX_VALUE = 100

# What software writes for a missing value. NIL is the symbol of a chain.
_NULL_WORDS = re.compile(
    r"(?i:[+-]?nan|nat|n/?a|n\.a\.|null|none|undefined|<(?:na|n/a|nan|nat|null|none|undefined|unset)>"
    r"|[(\[](?:null|none|nan|nil|blank|empty)[)\]]|-?1\.#(?:ind|qnan)|[+-]?inf(?:inity)?|\\n)|nil|<nil>"
)
# Of Excel and LibreOffice in several languages, and of columns that are too narrow; while Google Sheets computes.
_ERROR_WORDS = re.compile(r"#+|#[¡¿]?[^\Wa-z]+(?:/[^\Wa-z]+)*[!?]?|#N/A N/A|Err:[0-9]+|Loading\.\.\.")
_ROUNDED = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE]\+[0-9]+")
_WRITTEN_AS = (
    (re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE][+-]?[0-9]+"), "is a number in exponent notation"),
    (re.compile(r"[+-]?[0-9]+[.,]0*"), "is a whole number with a decimal point"),
    (
        re.compile(r"[+-]?[0-9]{1,3}(?:[.,'’ \u00a0\u202f][0-9]{3})+(?:[.,]0*)?"),
        "is a number with separators of thousands",
    ),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]00:00:00(?:\.0+)?"), "is a date that was something else before"),
    (re.compile(r"b'.*'|b\".*\"", re.DOTALL), "is how Python shows bytes"),
)
_MEANT = "if it is meant, write it in quotes in a YAML or JSON file"


def is_null_word(text: str) -> bool:
    """Tell whether a text is a word that software writes for a missing value."""
    return _NULL_WORDS.fullmatch(text) is not None


def garbled_fault(name: str, text: str, correct: str) -> str:
    """
    Explain why a text is probably not the value that was meant; empty if it may be.

    :param name: the field.
    :param text: its text, or a member of its list.
    :param correct: advice on how to correct it where it comes from.
    """
    if is_null_word(text.strip()):
        return f"{sanitize(text, _MAX_VALUE)} is how software writes a missing value: leave it out; {_MEANT}"
    what = _garbled(name, text)
    return f"{sanitize(text, _MAX_VALUE)} {what}: {correct}; {_MEANT}" if what else ""


def _garbled(name: str, text: str) -> str:
    if _ERROR_WORDS.fullmatch(text):
        return "is what a spreadsheet writes in place of a value"
    if _ROUNDED.fullmatch(text):
        return "is a number in exponent notation"
    # Some names begin with an apostrophe.
    if text.startswith("=") or (text.startswith("'") and name != _LABEL):
        return f"begins with {text[0]}, which a spreadsheet does not take as part of the value"
    if name in LISTS and text[:1] in ("[", "(", "{"):
        return "is how a program shows a list"
    if name not in IDS_AND_MEMO:
        return ""
    return next((what for pattern, what in _WRITTEN_AS if pattern.fullmatch(text)), "")
