"""Texts of the pages about reading a service: durations, and why a read failed."""

from __future__ import annotations

from itertools import pairwise

from airflow_custody.client.error_codes import label
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyNotFoundError
from airflow_custody.client.text import sanitize

UNEXPECTED = "Unexpected error. See the log of the API server."

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """
    Return a time span as text, such as ``2 h 5 min``.

    The text has the largest unit, and also the next smaller unit if the number of largest units is below ten.

    :param seconds: the time span; a negative time span counts as zero.
    """
    rest = max(0, int(seconds))
    for (size, unit), (smaller_size, smaller_unit) in pairwise(_UNITS):
        if rest < size:
            continue
        amount = rest // size
        smaller_amount = rest % size // smaller_size
        if smaller_amount and amount < 10:
            return f"{amount} {unit} {smaller_amount} {smaller_unit}"
        return f"{amount} {unit}"
    return f"{rest} s"


def describe_failure(error: CustodyError) -> str:
    """
    Describe a failed read by the code of its error, with advice.

    The message of the error is not used, because it may quote a response or the value of a setting. Anyone who may
    edit connections can make the API server read any host, so no part of a response is shown.

    :param error: the error.
    """
    return f"{_describe_cause(error)} {label(error.code)}"


def _describe_cause(error: CustodyError) -> str:
    if error.setting == "custody_conn_id":
        return "This connection is not defined, or its secrets backend cannot be read."
    if isinstance(error, CustodyConfigurationError):
        setting = f" ({sanitize(error.setting, 60)})" if error.setting else ""
        return f"A setting of the connection{setting} is missing or wrong. Run 'custody check' for details."
    # A gateway's 404 proves nothing about the requested object.
    if isinstance(error, CustodyNotFoundError) and not error.from_service:
        cause = "response unusable"
    else:
        cause = error.code.replace("-", " ")
    status = "" if error.status is None else f" (status {error.status})"
    advice = f" {sanitize(error.advice, 600)}" if error.advice else ""
    return f"{error.operation or 'Reading'} failed: {cause}{status}.{advice}"
