"""Which proxy is used: how its URL is checked, wherever it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from requests.utils import get_environ_proxies, select_proxy
from urllib3.util import parse_url

from airflow_custody.client.errors import CustodyConfigurationError

# As the standard library reads them: the first that is set counts.
_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@dataclass(frozen=True)
class Proxy:
    """
    A proxy that can be used.

    :param url: its URL, which may contain a password.
    :param place: what messages call the setting that it comes from.
    """

    url: str = field(repr=False)
    place: str

    @property
    def address(self) -> str:
        """Its host and port, without user name and password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def check_proxy(name: str, value: object) -> str | None:
    """Return the URL of a proxy, or refuse it; None if there is none."""
    if value is None or value == "":
        return None
    return _check_url(str(value), f"'{name}'", name)


def environment_proxy(url: str) -> Proxy | None:
    """
    Return the proxy that the environment names for a URL; None if it names none.

    :raises CustodyConfigurationError: if it cannot be used.
    """
    proxy = select_proxy(url, get_environ_proxies(url))
    if not proxy:
        return None
    variable = next((each for each in _VARIABLES if os.environ.get(each) == proxy), None)
    # macOS and Windows have settings of their own.
    place = f"the environment variable {variable}" if variable else "the proxy in the system's settings"
    # There, and only there, host and port alone are usual.
    return Proxy(_check_url(proxy if "://" in proxy else f"http://{proxy}", place, variable or "proxy"), place)


def _check_url(url: str, place: str, setting: str) -> str:
    if not _is_usable(url):
        # The value is not quoted: it may hold a password.
        raise CustodyConfigurationError(
            f"{place} must be a URL like http://host.example.com:3128; a user name and a password in it must be "
            "percent-encoded, and be ISO-8859-1",
            setting=setting,
            code="setting-wrong",
        )
    return url


def _is_usable(url: str) -> bool:
    """Tell whether both parsers that will read the URL can, and whether its password can be sent in a header."""
    try:
        address = parse_url(url)
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it raises what the parser leaves
        if "@" in f"{parts.path}{parts.query}{parts.fragment}":
            # A password with a "/", "?" or "#": its beginning would be taken for the proxy's port, and be shown.
            return False
        f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode("iso-8859-1")
    except ValueError:
        return False
    return address.scheme in ("http", "https") and bool(address.host)
