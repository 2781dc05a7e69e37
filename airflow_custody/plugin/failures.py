"""
Descriptions of failed reads, in our own words.

Anyone who may edit connections can have the API server read any host, so no text of a response is shown.
"""

from __future__ import annotations

from airflow_custody.client.error_codes import ErrorCode, label
from airflow_custody.client.errors import CustodyConfigurationError, CustodyError, CustodyNotFoundError
from airflow_custody.client.text import sanitize

BROKEN = "Something unexpected went wrong. The log of the API server says what."

_FAILURES: dict[ErrorCode, str] = {
    "credentials-missing": "the connection has no credentials",
    "credentials-refused": "the credentials were refused",
    "token-expired": "the token has expired",
    "role-missing": "the user of the connection lacks a role",
    "unknown-host": "there is no such host",
    "unreachable": "the service cannot be reached",
    "tls-failed": "there is no trusted TLS connection to the service",
    "no-response": "there was no complete response in time",
    "rate-limited": "the service asks for fewer calls",
    "service-failed": "the service failed",
    "response-unusable": "what responded is not the custody service, or its response cannot be used",
    "listing-changed": "the listing changed while it was read",
    "not-found": "the service does not know it",
    "not-offered": "the service does not offer this",
    "request-refused": "the service refused the request",
    "not-verified": "signatures do not prove it",
}


class NothingReadError(Exception):
    """Raised when nothing of a service could be read; its text explains why, in our own words."""


def describe_failure(error: CustodyError) -> str:
    """
    Describe a failure, its cause by the error's code, and advice.

    :param error: the error. Its message is not used: it may quote a response, or the value of a setting.
    """
    if error.setting == "custody_conn_id":
        text = "This connection is not defined, or its secrets backend cannot be read."
    elif isinstance(error, CustodyConfigurationError):
        setting = f" ({sanitize(error.setting, 60)})" if error.setting else ""
        text = f"A setting of the connection{setting} is missing or wrong. 'custody check' says why."
    else:
        # A gateway's 404 proves nothing about the requested object.
        is_foreign = isinstance(error, CustodyNotFoundError) and not error.from_service
        why = _FAILURES.get("response-unusable" if is_foreign else error.code, "for a reason that has no name")
        status = "" if error.status is None else f" (status {error.status})"
        what = f"{error.operation or 'Reading'} failed: {why}{status}."
        text = f"{what} {sanitize(error.advice, 600)}" if error.advice else what
    return f"{text} {label(error.code)}"
