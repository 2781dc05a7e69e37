"""URLs of webhooks, fit to be shown."""

from __future__ import annotations

import re
from typing import Any

from airflow_custody.client.secrets import REDACTED

# Everything before and after the host may be a secret: many services take a token in a path.
_PLACE = re.compile(
    r"(?P<scheme>https?)://(?P<user>[^/?#\\]*@)?(?P<host>[\w.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?P<port>:[0-9]{1,5})?"
    r"(?P<rest>[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)


def without_secrets(url: Any) -> str | None:
    """
    Return where a URL leads to, without what may be a secret in it: its scheme, host and port; None: there is none.

    Text that may not be a host is not shown.
    """
    if not url:
        return None
    place = _PLACE.fullmatch(str(url))
    # Characters that should have been encoded: the host may be a part of the password.
    if place is None or "@" in (place["rest"] or ""):
        return REDACTED
    user, rest = (f"{REDACTED}@" if place["user"] else ""), (f"/{REDACTED}" if (place["rest"] or "/") != "/" else "")
    return f"{place['scheme']}://{user}{place['host']}{place['port'] or ''}{rest}"
