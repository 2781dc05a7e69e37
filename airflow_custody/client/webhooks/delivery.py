"""The verification of a webhook's deliveries: pure, no I/O."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping

from airflow_custody.client.arguments import check_seconds, check_time, describe
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.text import read_number


def verify_delivery(
    headers: Mapping[str, str],
    body: bytes | bytearray | memoryview,
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
    :param tolerance: seconds that the delivery's time stamp may differ from this machine's clock, zero or more. Default
        300.
    :param first_time: called with the id of a delivery that is otherwise good; returns whether it sees the id for the
        first time, and must remember ids for twice ``tolerance``. The service repeats a delivery under the same id.
        None (default): repeats are not detected. Not an asynchronous function.
    :param now: Unix time in seconds; None (default): now.
    :return: the delivery's id.
    :raises CustodyRequestError: if a header is missing, no signature matches, the time stamp is too far off, or it
        was seen before.
    :raises CustodyConfigurationError: if the secret is missing, or another argument is not what it must be.
    """
    # First what the caller set: none of it may turn the check into one that accepts.
    if not isinstance(secret, str) or not secret.strip():
        # Everybody knows the empty one. A wrong value is not quoted: it may be a secret.
        raise CustodyConfigurationError(
            "the webhook's secret is missing, or is not text", setting="secret", code="credentials-missing"
        )
    tolerance = check_seconds("tolerance", tolerance, CustodyConfigurationError)
    now = time.time() if now is None else check_time("now", now, CustodyConfigurationError)
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise _refused(f"its body must be bytes, exactly as they came, not {describe(body)}")
    given = {name.lower(): value for name, value in headers.items()}
    try:
        identifier, timestamp, signatures = (given[f"x-webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise _refused(f"the header {missing.args[0]} is missing") from None
    # No two texts become the same bytes, whatever came.
    text = f"{identifier}.{timestamp}.".encode(errors="surrogatepass") + bytes(body)
    expected = hmac.digest(secret.encode(), text, hashlib.sha256)
    # All are compared, so that the time it takes does not tell which one matches.
    matches = [hmac.compare_digest(_decode(each), expected) for each in signatures.split()]
    if not any(matches):
        raise _refused("no signature matches")
    # Only what the service has signed is worth reading.
    seconds = read_number(timestamp, 10**12 - 1)
    if seconds is None:
        raise _refused("its time stamp cannot be read")
    if not abs(now - seconds) <= tolerance:
        raise _refused(f"its time stamp is more than {tolerance:g} s from this machine's")
    # Not any true value: the coroutine of an asynchronous function is one, whatever the function would say.
    if first_time is not None and first_time(identifier) not in (True,):
        raise _refused("it was seen before, or first_time did not return True")
    return identifier


def _decode(signature: str) -> bytes:
    version, _, text = signature.partition(",")
    try:
        return base64.b64decode(text, validate=True) if version == "v1" else b""
    except ValueError:
        return b""


def _refused(why: str) -> CustodyRequestError:
    return CustodyRequestError(
        f"the delivery is refused: {why}", operation="verify webhook delivery", code="delivery-refused"
    )
