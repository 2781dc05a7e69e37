"""The verification of a webhook's deliveries: pure, no I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping

from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.text import is_decimal


def verify_delivery(
    headers: Mapping[str, str],
    body: bytes,
    secret: str,
    *,
    tolerance: float = 300.0,
    first_time: Callable[[str], bool] | None = None,
    now: float | None = None,
) -> str:
    """
    Verify that a delivery comes from the service, is recent, and was not seen before.

    :param headers: the delivery's headers; their names in any case.
    :param body: the delivery's body, exactly the bytes that came.
    :param secret: the webhook's secret.
    :param tolerance: seconds that the delivery's time stamp may differ from this machine's clock. Default 300.
    :param first_time: called with the id of a delivery that is otherwise good; returns whether it sees the id for the
        first time, and must remember ids for twice ``tolerance``. The service repeats a delivery under the same id.
        None (default): repeats are not detected.
    :param now: Unix time in seconds; None (default): now.
    :return: the delivery's id.
    :raises CustodyRequestError: if a header is missing, no signature matches, the time stamp is too far off, or it
        was seen before.
    :raises CustodyConfigurationError: if the secret is empty.
    """
    if not secret:
        # Everybody knows the empty one.
        raise CustodyConfigurationError("the webhook's secret is missing", setting="secret")
    given = {name.lower(): value for name, value in headers.items()}
    try:
        identifier, timestamp, signatures = (given[f"x-webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise _refused(f"the header {missing.args[0]} is missing") from None
    text = f"{identifier}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    expected = hmac.digest(secret.encode(), text, hashlib.sha256)
    # All are compared, so that the time it takes does not tell which one matches.
    matches = [hmac.compare_digest(_decode(each), expected) for each in signatures.split()]
    if not any(matches):
        raise _refused("no signature matches")
    # Only what the service has signed is worth reading.
    if not is_decimal(timestamp) or len(timestamp) > 12:
        raise _refused("its time stamp cannot be read")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise _refused(f"its time stamp is more than {tolerance:g} s from this machine's")
    if first_time is not None and not first_time(identifier):
        raise _refused("it was seen before")
    return identifier


def _decode(signature: str) -> bytes:
    version, _, text = signature.partition(",")
    try:
        return base64.b64decode(text, validate=True) if version == "v1" else b""
    except (binascii.Error, ValueError):
        return b""


def _refused(why: str) -> CustodyRequestError:
    return CustodyRequestError(f"the delivery is refused: {why}", operation="verify webhook delivery")
