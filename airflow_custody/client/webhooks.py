"""
Webhook configurations, their calls, and how a delivery is verified.

Published knowledge, not part of the given interface.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ConfigDict

from airflow_custody.client.errors import CustodyConfigurationError, CustodyRequestError

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    from typing_extensions import TypedDict

#: The most characters that a webhook's secret may have.
LONGEST_SECRET = 150
_LENIENT = ConfigDict(coerce_numbers_to_str=True)


class WireWebhook(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    id: str
    type: str | None
    url: str | None
    status: str | None
    timeoutUntil: str | None
    updatedAt: str | None
    createdAt: str | None


class WireCursor(TypedDict, total=False):
    __pydantic_config__ = _LENIENT  # type: ignore[misc]
    currentPage: str | None
    hasNext: bool | None


class WireWebhooks(TypedDict, total=False):
    webhooks: list[WireWebhook] | None
    cursor: WireCursor | None


class WireCreatedWebhook(TypedDict, total=False):
    webhook: WireWebhook | None
    secret: str | None


class WireCalls(TypedDict, total=False):
    # What a call consists of is not published.
    calls: list[dict[str, Any]] | None
    cursor: WireCursor | None


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
    :param tolerance: seconds that the delivery's time may differ from this machine's. Default 300.
    :param first_time: told the id of a delivery that is otherwise good; returns whether it sees it for the first time,
        and must remember ids for twice ``tolerance``. The service repeats a delivery under the same id. None
        (default): repeats are not looked for.
    :param now: Unix time in seconds; None (default): now.
    :return: the delivery's id.
    :raises CustodyRequestError: if a header is missing, no signature fits, the time is too far off, or it was seen
        before.
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
    wanted = hmac.digest(secret.encode(), text, hashlib.sha256)
    # All are compared, so that the time it takes does not tell which one fits.
    fits = [hmac.compare_digest(_decoded(each), wanted) for each in signatures.split()]
    if not any(fits):
        raise _refused("no signature fits")
    # Only what the service has signed is worth reading.
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        raise _refused("its time can not be read")
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise _refused(f"its time is more than {tolerance:g} s from this machine's")
    if first_time is not None and not first_time(identifier):
        raise _refused("it was seen before")
    return identifier


def _decoded(signature: str) -> bytes:
    version, _, text = signature.partition(",")
    try:
        return base64.b64decode(text, validate=True) if version == "v1" else b""
    except (binascii.Error, ValueError):
        return b""


def _refused(why: str) -> CustodyRequestError:
    return CustodyRequestError(f"the delivery is refused: {why}", operation="verify webhook delivery")
