"""The verification of a webhook's deliveries. Nothing here reads from the service."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from airflow_custody.client.arguments import check_seconds, check_time, describe
from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError
from airflow_custody.client.text import read_number
from airflow_custody.client.webhooks.models import WebhookEvent, read_event


@dataclass(frozen=True)
class Delivery:
    """
    A verified delivery.

    :param id: its id. If the service repeats the delivery, the id stays the same.
    :param type: type of the event, such as ``currencyStatus.updated``; None: the body does not have the published form.
    :param created_at: time of the event by the service's clock; None: not given, or not readable.
    :param data: what the event is about, by the service's names, with ids as text. Empty: the body does not have the
        published form.
    """

    id: str
    type: str | None
    created_at: datetime | None
    data: Mapping[str, object]


def verify_delivery(
    headers: Mapping[str, str],
    body: bytes | bytearray | memoryview,
    secret: str,
    *,
    tolerance: float = 30.0,
    first_time: Callable[[str], bool] | None = None,
    now: float | None = None,
) -> Delivery:
    """
    Verify that a delivery comes from the service, is recent, and was not seen before.

    Signatures of unknown versions are ignored.

    :param headers: the delivery's headers, with names in upper or lower case.
    :param body: the delivery's body, exactly as received.
    :param secret: the webhook's secret.
    :param tolerance: seconds that the delivery's time stamp may differ from this machine's clock, zero or more. Default
        30, as the makers of the service advise. Raise it only if the clock cannot be synchronized.
    :param first_time: called with the id of an otherwise valid delivery. Returns whether the id is new. The function
        must not be asynchronous. To refuse a replayed delivery, it must remember ids for twice ``tolerance``. The
        service itself repeats a delivery with the same id but a new time stamp, maybe much later. To handle each event
        only once, remember ids for longer. None (default): repeated deliveries are not detected.
    :param now: Unix time in seconds; None (default): now.
    :return: the delivery.
    :raises CustodyRequestError: if a header is missing, no signature matches, the time stamp is too far off, or the
        delivery was seen before.
    :raises CustodyConfigurationError: if the secret is missing, or another argument is wrong.
    """
    # Check the arguments first, because a wrong argument must never cause a delivery to be accepted.
    if not isinstance(secret, str) or not secret.strip():
        # Refuse an empty secret, because it protects nothing. Do not quote a wrong value, because it may be a secret.
        raise CustodyConfigurationError(
            "the webhook's secret is missing, or is not text", setting="secret", code="credentials-missing"
        )
    tolerance = check_seconds("tolerance", tolerance, CustodyConfigurationError)
    now = time.time() if now is None else check_time("now", now, CustodyConfigurationError)
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise _refused(f"its body must be bytes, exactly as received, not {describe(body)}")
    identifier, timestamp, signatures = _read_headers(headers)
    # This encoding maps different texts to different bytes, even if they are not valid Unicode.
    text = f"{identifier}.{timestamp}.".encode(errors="surrogatepass") + bytes(body)
    if not _is_signed(text, secret, signatures):
        raise _refused("no signature matches")
    # The time stamp is only worth reading if the service has signed it.
    seconds = read_number(timestamp, 10**12 - 1)
    if seconds is None:
        raise _refused("its time stamp cannot be read")
    if not abs(now - seconds) <= tolerance:
        order = "behind" if now > seconds else "ahead of"
        raise _refused(
            f"its time stamp is {abs(now - seconds):.1f} s {order} this machine's clock; {tolerance:g} s are allowed",
            "If all deliveries are refused, synchronize this machine's clock (NTP), or raise 'tolerance'.",
        )
    # Any other true value is not enough: an asynchronous function returns a coroutine, which is always true.
    if first_time is not None and first_time(identifier) not in (True,):
        raise _refused("it was seen before, or first_time did not return True")
    try:
        event = read_event(bytes(body).decode())
    except UnicodeDecodeError:
        event = WebhookEvent()
    return Delivery(identifier, event.type, event.created_at, event.data)


def _read_headers(headers: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the id, the time stamp and the signatures of a delivery."""
    given = {name.lower(): value for name, value in headers.items()}
    try:
        return given["x-webhook-id"], given["x-webhook-timestamp"], given["x-webhook-signature"]
    except KeyError as missing:
        raise _refused(f"the header {missing.args[0]} is missing") from None


def _is_signed(text: bytes, secret: str, signatures: str) -> bool:
    """Tell whether one of the signatures signs the text."""
    expected = hmac.digest(secret.encode(), text, hashlib.sha256)
    # Compare all signatures, so that the time taken does not reveal which one matches.
    matches = [hmac.compare_digest(_decode(each), expected) for each in signatures.split()]
    return any(matches)


def _decode(signature: str) -> bytes:
    version, _, text = signature.partition(",")
    try:
        # A signature of an unknown version, such as the announced v1a, never matches.
        return base64.b64decode(text, validate=True) if version == "v1" else b""
    except ValueError:
        return b""


def _refused(why: str, advice: str | None = None) -> CustodyRequestError:
    return CustodyRequestError(
        f"the delivery is refused: {why}", operation="verify webhook delivery", code="delivery-refused", advice=advice
    )
