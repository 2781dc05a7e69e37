"""Settings of a client: where its secret may go, and what is refused before anything is sent."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl

from requests.utils import get_environ_proxies
from urllib3.util import parse_url

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.operations import API_ROOT
from airflow_custody.client.text import readable

# --- where the token may go --------------------------------------------------------------------------------


def checked_base_url(base_url: object) -> str:
    """Return the base URL without a trailing slash, or refuse it."""

    def refuse(why: str) -> CustodyConfigurationError:
        return CustodyConfigurationError(f"the base URL {why}", setting="base_url")

    if not isinstance(base_url, str) or not base_url.strip():
        raise refuse("is missing (an example: https://custody.example.com)")
    if re.search(r"[\s\\\x00-\x20\x7f]", base_url):
        raise refuse("holds white space, a control character or a backslash")
    try:
        parsed = parse_url(base_url)  # the parser that decides where the connection goes
    except ValueError:
        raise refuse("can not be read as a URL") from None
    if parsed.scheme not in ("http", "https"):
        raise refuse("must begin with https:// (or http:// for a service on this machine)")
    if parsed.auth is not None or "@" in base_url:
        raise refuse("must not hold a user name, password or '@': the token has a setting of its own")
    if not parsed.host:
        raise refuse("names no host")
    if parsed.query is not None or parsed.fragment is not None or "?" in base_url or "#" in base_url:
        raise refuse("must not hold a query or fragment")
    path = (parsed.path or "").rstrip("/")
    if path.endswith(API_ROOT):
        raise refuse(f"must end before {API_ROOT}, which is added to it")
    if re.search(r"/\.{1,2}(/|$)", base_url):  # the parser has resolved them already
        raise refuse("must not hold '.' or '..' in its path")
    return parsed._replace(path=path or None).url


def checked_proxies(base_url: str, proxy: str | None, *, allow_http: bool) -> dict[str, str]:
    """Return the proxies to use, and refuse plain HTTP where others could read the token."""
    parsed = parse_url(base_url)
    if parsed.scheme == "http" and not allow_http:
        if not _is_loopback(str(parsed.host)):
            raise CustodyConfigurationError(
                f"the base URL is plain HTTP to {parsed.host}: the token would travel in clear text; use "
                "https://, or set 'allow_http' if the network in between is yours",
                setting="base_url",
            )
        if proxy:
            raise CustodyConfigurationError(
                "a proxy for plain HTTP would read the token; use https://, or set 'allow_http'",
                setting="proxy",
            )
    if proxy:
        try:
            address = parse_url(proxy)
        except ValueError:
            address = None
        if address is None or address.scheme not in ("http", "https") or not address.host:
            # The value is not shown: it may hold a password.
            raise CustodyConfigurationError(
                "the proxy must be a URL like http://proxy.example.com:3128", setting="proxy"
            )
        return {"http": proxy, "https": proxy}
    if parsed.scheme == "https":
        # HTTPS_PROXY and NO_PROXY, as everywhere; over TLS a proxy sees the host's name and nothing else.
        return get_environ_proxies(base_url)
    return {}


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# --- the others --------------------------------------------------------------------------------------------


def checked_number(
    setting: str, value: object, *, at_least: float, at_most: float = float("inf"), whole: bool = False
) -> float:
    """Return a number within its bounds, or refuse it."""
    kind = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kind) or not at_least <= value <= at_most:
        span = f"from {at_least:g}" + (f" to {at_most:g}" if at_most != float("inf") else " on")
        raise CustodyConfigurationError(
            f"'{setting}' must be a {'whole ' if whole else ''}number {span}, not {readable(repr(value), 40)}",
            setting=setting,
        )
    return value


def checked_verify(verify: object) -> bool | str:
    """Return what to verify TLS with, or refuse a CA bundle that can not be used."""
    if isinstance(verify, bool):
        return verify
    if not isinstance(verify, (str, os.PathLike)) or not str(verify):
        raise CustodyConfigurationError("'verify' must be true, false or the path of a CA bundle", setting="verify")
    path = os.fspath(verify)
    try:
        if os.path.isdir(path):
            ssl.create_default_context(capath=path)
        else:
            ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as exception:
        raise CustodyConfigurationError(
            f"'verify' names no usable CA bundle: {readable(path, 120)}: {_os_text(exception)}",
            setting="verify",
        ) from None
    return path


def checked_client_cert(client_cert: object) -> str | tuple[str, str] | None:
    """Return the paths of the client's certificate and key, or refuse what can not be used."""
    if client_cert is None:
        return None
    parts = [client_cert] if isinstance(client_cert, (str, os.PathLike)) else client_cert
    if (
        not isinstance(parts, (list, tuple))
        or not 1 <= len(parts) <= 2
        or not all(isinstance(part, (str, os.PathLike)) and str(part) for part in parts)
    ):
        raise CustodyConfigurationError(
            "'client_cert' must be the path of a PEM file, or the two paths of certificate and key",
            setting="client_cert",
        )
    paths = [os.fspath(part) for part in parts]
    try:
        # An empty password: an encrypted key fails here instead of asking on a terminal that is not there.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*paths, password="")  # type: ignore[misc]
    except (OSError, ValueError) as exception:
        raise CustodyConfigurationError(
            f"'client_cert' can not be used: {readable(', '.join(paths), 160)}: {_os_text(exception)}",
            setting="client_cert",
        ) from None
    return paths[0] if len(paths) == 1 else (paths[0], paths[1])


def _os_text(exception: Exception) -> str:
    return readable(getattr(exception, "strerror", None) or exception or type(exception).__name__, 120)
