"""The settings of a client: each with its default, its meaning and its check."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from urllib3.util import Url, parse_url

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.http.operation import API_ROOT
from airflow_custody.client.proxy_settings import Proxy, check_proxy, environment_proxy
from airflow_custody.client.text import sanitize
from airflow_custody.client.verification.pin_settings import (
    check_keys,
    check_minimum,
    check_networks,
    check_time,
    parse_keys,
    parse_names,
)

if TYPE_CHECKING:
    from airflow_custody.client.verification.verifier import VerificationPins

DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_RETRIES = 3
DEFAULT_MAX_RESPONSE_BYTES = 64 * 1024 * 1024

# Of a name in the DNS.
_MAX_HOST, _MAX_LABEL = 253, 63

#: Returns the value to use, or raises CustodyConfigurationError; gets the setting's name and its value.
Check = Callable[[str, Any], Any]


# --- checks ------------------------------------------------------------------------------------------------


def _check_base_url(name: str, value: object) -> str:
    """Return the base URL without a trailing slash, or refuse it."""

    def refused(why: str) -> CustodyConfigurationError:
        return CustodyConfigurationError(f"the base URL {why}", setting=name, code="setting-wrong")

    if not isinstance(value, str) or not value.strip():
        raise refused("is missing (an example: https://custody.example.com)")
    if re.search(r"[\s\\\x00-\x20\x7f]", value):
        raise refused("contains white space, a control character or a backslash")
    if re.match(r"https?:(?!//)", value, re.IGNORECASE):
        raise refused("must begin with https:// (or http://), with two slashes")
    parsed = _parse_url(value)
    if parsed is None:
        raise refused("cannot be read as a URL")
    if parsed.scheme not in ("http", "https"):
        raise refused("must begin with https:// (or http:// for a service on this machine)")
    if parsed.auth is not None or "@" in value:
        raise refused("must not contain a user name, password or '@': the token has a setting of its own")
    if not parsed.host:
        raise refused("names no host")
    if not _is_host(parsed.host):
        raise refused("names a host that cannot exist: a part of its name is empty or too long")
    if parsed.query is not None or parsed.fragment is not None or "?" in value or "#" in value:
        raise refused("must not contain a query or fragment")
    path = (parsed.path or "").rstrip("/")
    if path.endswith(API_ROOT):
        raise refused(f"must end before {API_ROOT}, which is added to it")
    if re.search(r"/\.{1,2}(/|$)", value):  # the parser has resolved them already
        raise refused("must not contain '.' or '..' in its path")
    return parsed._replace(path=path or None).url


def _check_number(*, minimum: float, maximum: float = float("inf"), whole: bool = False) -> Check:
    """Return the check for a number within bounds."""

    def check(name: str, value: object) -> float:
        number_type = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, number_type) or not minimum <= value <= maximum:
            span = f"from {minimum:g} to {maximum:g}" if maximum != float("inf") else f"of at least {minimum:g}"
            raise CustodyConfigurationError(
                f"'{name}' must be a {'whole ' if whole else ''}number {span}, not {sanitize(repr(value), 40)}",
                setting=name,
                code="setting-wrong",
            )
        return value

    return check


def _check_size(name: str, value: object) -> int:
    return int(_check_number(minimum=1)(name, value))


def _check_boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise CustodyConfigurationError(f"'{name}' must be true or false", setting=name, code="setting-wrong")
    return value


def _check_text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise CustodyConfigurationError(f"'{name}' must be a text", setting=name, code="setting-wrong")
    return value


def _check_header(name: str, value: object) -> str | None:
    text = _check_text(name, value)
    if text is not None and not (text.isascii() and text.isprintable()):
        raise CustodyConfigurationError(
            f"'{name}' must be printable ASCII, to be sent in a header", setting=name, code="setting-wrong"
        )
    return text


def _check_verify(name: str, value: object) -> bool | str:
    """Return what to verify TLS with, or refuse a CA bundle that cannot be used."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise CustodyConfigurationError(
            f"'{name}' must be true, false or the path of a CA bundle", setting=name, code="setting-wrong"
        )
    path = os.fspath(value)
    try:
        if os.path.isdir(path):
            ssl.create_default_context(capath=path)
        else:
            ssl.create_default_context(cafile=path)
        return path
    except (OSError, ValueError) as exception:
        why = _os_text(exception)
    raise CustodyConfigurationError(
        f"'{name}' names no usable CA bundle: {sanitize(path, 120)}: {why}", setting=name, code="setting-wrong"
    )


def _check_client_cert(name: str, value: object) -> str | tuple[str, str] | None:
    """Return the paths of the client's certificate and key, or refuse what cannot be used."""
    if value is None:
        return None
    parts = [value] if isinstance(value, (str, os.PathLike)) else value
    if (
        not isinstance(parts, (list, tuple))
        or not 1 <= len(parts) <= 2
        or not all(isinstance(part, (str, os.PathLike)) and str(part) for part in parts)
    ):
        raise CustodyConfigurationError(
            f"'{name}' must be the path of a PEM file, or the two paths of certificate and key",
            setting=name,
            code="setting-wrong",
        )
    paths = [os.fspath(part) for part in parts]
    try:
        # An empty password: an encrypted key fails here instead of asking on a terminal that is not there.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*paths, password="")  # type: ignore[misc]
        return paths[0] if len(paths) == 1 else (paths[0], paths[1])
    except (OSError, ValueError) as exception:
        why = _os_text(exception)
    raise CustodyConfigurationError(
        f"'{name}' cannot be used: {sanitize(', '.join(paths), 160)}: {why}", setting=name, code="setting-wrong"
    )


def _is_host(host: str) -> bool:
    """Tell whether a host is an address, or a name that can be looked up."""
    labels = host.rstrip(".").split(".")
    is_short = len(host) <= _MAX_HOST and all(0 < len(label) <= _MAX_LABEL for label in labels)
    return host.startswith("[") or is_short


def _parse_url(url: str) -> Url | None:
    """Return the URL as the parser reads it that decides where a connection goes; None if it cannot."""
    try:
        return parse_url(url)
    except ValueError:
        return None


def _os_text(exception: Exception) -> str:
    return sanitize(getattr(exception, "strerror", None) or exception or type(exception).__name__, 120)


# --- settings as text, as a connection's URI has them --------------------------------------------------------


def _parse_number(value: Any) -> Any:
    if isinstance(value, str):
        for number_type in (int, float):
            try:
                return number_type(value)
            except ValueError:
                continue
    return value


def _parse_boolean(value: Any) -> Any:
    return {"true": True, "false": False}.get(value.strip().lower(), value) if isinstance(value, str) else value


def _parse_paths(value: Any) -> Any:
    """Turn "certificate,key" into the pair."""
    parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    return tuple(parts) if isinstance(parts, (list, tuple)) and len(parts) != 1 else value


# --- the settings ------------------------------------------------------------------------------------------


def _setting(
    default: Any, check: Check, parse: Callable[[Any], Any] = lambda value: value, *, secret: bool = False
) -> Any:
    return field(default=default, repr=not secret, metadata={"check": check, "parse": parse})


@dataclass(frozen=True)
class ClientSettings:
    """
    The settings of a client. They are checked when the object is made.

    :param base_url: where the service is, ``https://custody.example.com``; a path prefix is allowed. Plain HTTP
        is refused except to this machine.
    :param timeout: seconds for one whole exchange: connecting, sending, waiting, and reading a response that
        trickles in. A retry has the same time again. Default 30.
    :param verify: whether to verify the service's TLS certificate; or the path of a CA bundle to verify it with.
        Environment variables do not change it. Default True.
    :param client_cert: path of one PEM file with certificate and key, or the pair of paths. Default None.
    :param proxy: URL of a proxy, ``http://`` or ``https://``; None (default): for HTTPS, as ``HTTPS_PROXY``, else
        ``ALL_PROXY``, and ``NO_PROXY`` say.
    :param max_retries: maximum number of retries within one call. Default 3.
    :param max_response_bytes: maximum size of a response in bytes. Default 64 MiB.
    :param allow_http: whether the token may travel over plain HTTP to another machine. Default False.
    :param superadmin_keys: the super-administrators' public keys, with which whitelisted addresses are verified: PEM
        texts, or the path of a file with them. Default None: nothing is verified, what the service says counts.
    :param superadmin_minimum: how many of these keys must have signed the rules. Required with ``superadmin_keys``.
    :param networks: names of the networks that are accepted. Default None: any.
    :param allow_legacy_signatures: whether addresses count that were signed in a legacy form. Default False.
    :param rules_not_before: Unix time in seconds, or an ISO 8601 date, before which no rules count. Default None.
    :param user_agent: what to add to the ``User-Agent``, which names this package and its version. Default None.
    :param source: where the user finds these settings, for error messages. Default None.
    :raises CustodyConfigurationError: if a setting is missing or wrong; ``setting`` names it.
    """

    base_url: str = _setting("", _check_base_url)
    timeout: float = _setting(DEFAULT_TIMEOUT, _check_number(minimum=0.001, maximum=86_400), _parse_number)
    verify: bool | str = _setting(True, _check_verify, _parse_boolean)
    client_cert: str | tuple[str, str] | None = _setting(None, _check_client_cert, _parse_paths)
    # Its URL may contain a password.
    proxy: str | None = _setting(None, check_proxy, secret=True)
    max_retries: int = _setting(DEFAULT_MAX_RETRIES, _check_number(minimum=0, maximum=20, whole=True), _parse_number)
    max_response_bytes: int = _setting(DEFAULT_MAX_RESPONSE_BYTES, _check_size, _parse_number)
    allow_http: bool = _setting(False, _check_boolean, _parse_boolean)
    superadmin_keys: tuple[str, ...] | None = _setting(None, check_keys, parse_keys)
    superadmin_minimum: int | None = _setting(None, check_minimum, _parse_number)
    networks: tuple[str, ...] | None = _setting(None, check_networks, parse_names)
    allow_legacy_signatures: bool = _setting(False, _check_boolean, _parse_boolean)
    rules_not_before: int | None = _setting(None, check_time)
    user_agent: str | None = _setting(None, _check_header)
    source: str | None = _setting(None, _check_text)

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, each.metadata["check"](each.name, getattr(self, each.name)))
        self._check_plain_http()
        self._check_pins()

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ClientSettings:
        """
        Return settings made of values that may be text, as a connection's URI has them.

        :param values: the settings by name; what is None or an empty text is not set.
        :raises CustodyConfigurationError: as the class does.
        """
        given = {
            each.name: each.metadata["parse"](values[each.name])
            for each in fields(cls)
            if values.get(each.name) not in (None, "")
        }
        return cls(**given)

    @property
    def base_url_text(self) -> str:
        """The base URL as error messages name it: by where the user finds it, or by itself."""
        if self._from_options:
            return self.name("base_url")
        return f"the base URL of {self.source}" if self.source else f"the base URL {self.base_url}"

    @property
    def user_text(self) -> str:
        """The user as error messages name it: by the connection that signs in."""
        return f"The user of {self.source}" if self.source and not self._from_options else "The user"

    def name(self, setting: str) -> str:
        """Return a setting as error messages name it, with where the user finds it."""
        if self._from_options:
            return f"--{setting.replace('_', '-')}"
        return f"{setting!r} of {self.source}" if self.source else repr(setting)

    @property
    def _from_options(self) -> bool:
        return str(self.source).startswith("--")

    @property
    def pins(self) -> VerificationPins | None:
        """What whitelisted addresses are verified with; None: nothing is."""
        if self.superadmin_keys is None:
            return None
        from airflow_custody.client.verification.verifier import VerificationPins

        return VerificationPins(
            self.superadmin_keys,
            self.superadmin_minimum or 0,
            networks=self.networks,
            allow_legacy_signatures=self.allow_legacy_signatures,
            rules_not_before=self.rules_not_before,
        )

    @property
    def proxy_in_use(self) -> Proxy | None:
        """The proxy that requests go through: for HTTPS, if none is set, the environment's; None: there is none."""
        if self.proxy:
            return Proxy(self.proxy, self.name("proxy"))
        # Over TLS a proxy sees the host's name and nothing else.
        return environment_proxy(self.base_url) if self.base_url.startswith("https:") else None

    def _check_pins(self) -> None:
        """Refuse a part of what is needed to verify: whoever gives it expects that something is verified."""
        if self.superadmin_keys is None:
            for name in ("superadmin_minimum", "networks", "allow_legacy_signatures", "rules_not_before"):
                if getattr(self, name):
                    raise CustodyConfigurationError(
                        f"'{name}' needs 'superadmin_keys': without these, nothing is verified",
                        setting=name,
                        code="pins-wrong",
                    )
        elif self.superadmin_minimum is None:
            raise CustodyConfigurationError(
                "'superadmin_minimum' is missing: how many of the pinned keys must have signed the rules",
                setting="superadmin_minimum",
                code="pins-wrong",
            )
        self.pins  # noqa: B018 - it raises if they cannot be used

    def _check_plain_http(self) -> None:
        """Refuse plain HTTP where others could read the token."""
        parsed = parse_url(self.base_url)
        if parsed.scheme != "http" or self.allow_http:
            return
        if not _is_loopback(str(parsed.host)):
            raise CustodyConfigurationError(
                f"the base URL is plain HTTP to {parsed.host}: the token would travel in clear text; use "
                "https://, or set 'allow_http' if the network in between is yours",
                setting="base_url",
                code="setting-wrong",
            )
        if self.proxy:
            raise CustodyConfigurationError(
                "a proxy for plain HTTP would read the token; use https://, or set 'allow_http'",
                setting="proxy",
                code="setting-wrong",
            )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
