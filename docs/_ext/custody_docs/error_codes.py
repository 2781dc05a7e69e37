"""The page of error codes, made of their catalogue."""

from __future__ import annotations

from airflow_custody.client import errors
from airflow_custody.client.error_codes import ErrorCode, label
from airflow_custody.client.error_codes.catalogue import GROUPS, Entry
from custody_docs.rest import block, code, escape, heading, page, table

_INTRODUCTION = (
    "The text of each error ends with its code, such as ``[custody/token-expired]``. Texts change from version to "
    "version. A code keeps its name and its meaning, so runbooks and alerts can rely on it.",
    "The text has the code and no address, because this documentation may be anywhere. "
    ":doc:`custody errors CODE </reference/command-line/errors>` prints what is on this page. In Python, the code is "
    ":attr:`error.code <airflow_custody.client.errors.CustodyError>`; ``error.error_code`` is the service's own code. "
    "In the event of a trigger and in the JSON of ``custody check`` it is ``code``.",
    "Every :class:`~airflow_custody.client.errors.CustodyError` has a code, and so has the time-out of a sensor. These "
    "have none: a :class:`TypeError` or :class:`ValueError` while Airflow reads a DAG file, which names the parameter; "
    "and a task that is skipped because there is nothing to do.",
    "*Retried* says whether Airflow tries a task again that fails so, as far as its ``retries`` allow.",
)
#: The statuses of responses that people search for, and the code that an error then has.
STATUSES: tuple[tuple[str, ErrorCode], ...] = (
    ("301", "redirected"),
    ("302", "redirected"),
    ("400", "bad-request"),
    ("401", "credentials-refused"),
    ("403", "role-missing"),
    ("404", "not-found"),
    ("408", "timed-out"),
    ("409", "conflict"),
    ("422", "bad-request"),
    ("429", "rate-limited"),
    ("500", "service-failed"),
    ("502", "service-failed"),
    ("503", "service-failed"),
    ("504", "service-failed"),
)
_RETRIED = {True: "Yes", False: "No", None: "That depends"}


def error_codes() -> str:
    """Return the page of error codes."""
    parts = [heading("Error codes"), *_INTRODUCTION]
    for group in GROUPS:
        parts += [heading(group.title, 1), *(part for entry in group.entries for part in _entry(entry))]
    return page(*parts)


def by_status() -> list[str]:
    """
    Return the section that lists codes by HTTP status.

    Each status is an entry of the index: a search leaves out what is only a number in a text.
    """
    titles = {entry.code: entry.title for group in GROUPS for entry in group.entries}
    anchors = {entry.code: entry.anchor for group in GROUPS for entry in group.entries}
    rows = [
        (f":index:`{status}`", f":ref:`{name} <{anchors[name]}>`", escape(titles[name])) for status, name in STATUSES
    ]
    return [
        heading("By HTTP status", 1),
        "The code of the error if the service responds with a status. A create that ends with 500 or more is "
        "``outcome-unknown``. A 404 to an operation that is not documented may be ``not-offered``.",
        table(("Status", "Code", "Meaning"), rows),
    ]


def _entry(entry: Entry) -> list[str]:
    return [
        f".. _{entry.anchor}:",
        heading(entry.code, 2),
        f"{escape(entry.title)}.",
        block(f"{entry.message} {label(entry.code)}").replace("\n", "\n   :class: message\n", 1),
        f":Cause: {escape(entry.cause)}\n"
        f":What to do: {escape(entry.cure)}\n"
        f":Retried: {_RETRIED[entry.is_retried]}\n"
        f":Error: {', '.join(map(_type, entry.errors))}",
    ]


def _type(name: str) -> str:
    """Return the name of an error, as a link to its description if it has one."""
    is_documented = hasattr(errors, name)
    return f":exc:`~airflow_custody.client.errors.{name}`" if is_documented else code(name)
