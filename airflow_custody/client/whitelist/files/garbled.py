"""
Find values garbled by a spreadsheet, a data frame or a database.

Such software writes a word for a missing value, respells a whole number, or turns a text into a date or a truth value.
Requesting a garbled value could lose funds, because a memo may select the account. Garbled values are refused in CSV
files, in rows without a file, and in YAML files unless they are quoted, because text in these places may come from such
software.
"""

from __future__ import annotations

import re

from airflow_custody.client.text import sanitize
from airflow_custody.client.whitelist.models import LISTS

#: The fields that identify accounts and objects. If their value looks like a number, its exact spelling matters.
IDS_AND_MEMO = (*LISTS, "memo", "customer_id", "exchange_account_id", "visibility_group_id")
_LABEL = "label"
_MAX_VALUE = 100

# Words that software writes for a missing value. NIL in capitals is not one, because it is the symbol of a chain.
_NULL_WORDS = re.compile(
    r"(?i:[+-]?nan|nat|n/?a|n\.a\.|null|none|undefined|<(?:na|n/a|nan|nat|null|none|undefined|unset)>"
    r"|[(\[](?:null|none|nan|nil|blank|empty)[)\]]|-?1\.#(?:ind|qnan)|[+-]?inf(?:inity)?|\\n)|nil|<nil>"
)
# Error values of Excel and LibreOffice in several languages, values in columns that are too narrow, and the word that
# Google Sheets displays while it computes.
_ERROR_WORDS = re.compile(r"#+|#[¡¿]?[^\Wa-z]+(?:/[^\Wa-z]+)*[!?]?|#N/A N/A|Err:[0-9]+|Loading\.\.\.")
# The months' names and abbreviations in the languages in which spreadsheets are common.
_MONTH = (
    "jan|january|feb|february|mar|march|apr|april|may|jun|june|jul|july|aug|august|sep|sept|september|oct|october|nov|"
    "november|dec|december|"
    "januar|jän|jänner|februar|mär|märz|mrz|mai|juni|juli|okt|oktober|dez|dezember|"
    "janv|janvier|févr|février|mars|avr|avril|juin|juil|juillet|août|septembre|octobre|novembre|déc|décembre|"
    "ene|enero|febrero|marzo|abr|abril|mayo|junio|julio|ago|agosto|septiembre|octubre|noviembre|dic|diciembre|"
    "gen|gennaio|febbraio|mag|maggio|giu|giugno|lug|luglio|set|settembre|ott|ottobre|dicembre|"
    "janeiro|fev|fevereiro|março|maio|junho|julho|setembro|out|outubro|novembro|dezembro|"
    "januari|februari|maart|mrt|mei|augustus"
)
_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp][Mm])?(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?"
_DATE = (
    # 2026-01-02; 1/2/2026, 01.02.26; 12-Mar, 02. Jan 2026; Jan-26, Jan 2, 2026; 1月2日.
    r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}"
    r"|[0-9]{1,2}(?P<mark>[-/.])[0-9]{1,2}(?P=mark)(?:[0-9]{2}|[0-9]{4})"
    rf"|[0-9]{{1,2}}\.?[-/. ]?(?i:{_MONTH})\.?(?:[-/., ]{{1,2}}[0-9]{{2,4}})?"
    rf"|(?i:{_MONTH})\.?[-/. ][0-9]{{1,4}}(?:,? [0-9]{{4}})?"
    r"|(?:[0-9]{4}年)?[0-9]{1,2}月(?:[0-9]{1,2}日)?"
)
_ROUNDED = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE]\+[0-9]+")
_WRITTEN_AS = (
    (re.compile(r"[+-]?[0-9]+(?:[.,][0-9]*)?[eE][+-]?[0-9]+"), "is a number in exponent notation"),
    (re.compile(r"[+-]?[0-9]+[.,]0*"), "is a whole number with a decimal point"),
    (
        re.compile(r"[+-]?[0-9]{1,3}(?:[.,'’ \u00a0\u202f][0-9]{3})+(?:[.,]0*)?"),
        "is a number with thousands separators",
    ),
    (re.compile(rf"(?:{_DATE})(?:[ T]{_TIME})?"), "is a date into which software has converted another value"),
    (
        re.compile(r"(?i:true|false|wahr|falsch|vrai|faux|verdadero|falso|vero|verdadeiro|waar|onwaar)"),
        "is a truth value into which software has converted another value",
    ),
    (re.compile(r"b'.*'|b\".*\"", re.DOTALL), "is Python's text for bytes"),
)
_MEANT = "if the value is correct, write it in quotes in a YAML or JSON file"


def is_null_word(text: str) -> bool:
    """Tell whether software writes this text for a missing value."""
    return _NULL_WORDS.fullmatch(text) is not None


def garbled_fault(name: str, text: str, correct: str) -> str:
    """
    Explain why a text is probably garbled; empty if it is not.

    :param name: the field.
    :param text: the field's text, or a member of its list.
    :param correct: advice on how to correct the value at its source.
    """
    if is_null_word(text.strip()):
        return f"{sanitize(text, _MAX_VALUE)} is another program's word for a missing value: leave it out; {_MEANT}"
    what = _garbled(name, text)
    return f"{sanitize(text, _MAX_VALUE)} {what}: {correct}; {_MEANT}" if what else ""


def _garbled(name: str, text: str) -> str:
    if _ERROR_WORDS.fullmatch(text):
        return "is an error value of a spreadsheet"
    if _ROUNDED.fullmatch(text):
        return "is a number in exponent notation"
    # A label may begin with an apostrophe, because some names do.
    if text.startswith("=") or (text.startswith("'") and name != _LABEL):
        return f"begins with {text[0]}, which spreadsheets do not treat as part of the value"
    if name in LISTS and text[:1] in ("[", "(", "{"):
        return "is a program's text for a list"
    if name not in IDS_AND_MEMO:
        return ""
    return next((what for pattern, what in _WRITTEN_AS if pattern.fullmatch(text)), "")
