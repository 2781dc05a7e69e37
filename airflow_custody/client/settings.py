"""The settings of a client, with defaults, meanings and checks."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields
from datetime import datetime, timezone
from functools import cached_property
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from requests.utils import get_environ_proxies, select_proxy
from urllib3.util import Url, parse_url

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.files import read_file
from airflow_custody.client.http.operation import API_ROOT
from airflow_custody.client.secrets import as_secret
from airflow_custody.client.text import is_pem, pem_text, sanitize
from airflow_custody.client.verification.keys import MAX_KEYS, KeyTextError, is_bare_base64, read_public_keys
from airflow_custody.client.verification.pins import PIN_SETTINGS, VerificationPins, wrong_setting
from airflow_custody.client.whitelist.status_words import EFFECTIVE_STATUSES, REJECTED_STATUSES, StatusWords

DEFAULT_TIMEOUT = 30.0
DEFAULT_MAX_RETRIES = 3
# Large enough for the largest usual response: a page of 100 requests, each with its own copy of the rules. In base64,
# rules with 800 users have 290 KB, and three signatures that were made in batches of 100 have 27 KB.
DEFAULT_MAX_RESPONSE_BYTES = 32 * 1024 * 1024

# Each part of a DNS name has 1 to 63 characters. An IPv6 address is in brackets.
_HOST = re.compile(r"\[.+\]|[^.]{1,63}(\.[^.]{1,63})*\.?")
# Minimum length of a private key in characters, even in base64. A shorter text cannot be one, so it can be quoted.
_MIN_KEY = 40
# The words in the first lines of a certificate and of a private key in PEM.
_PEM_PARTS = ("CERTIFICATE-----", "PRIVATE KEY-----")
# The environment variables for a proxy, in the order in which Python's standard library reads them.
_PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def _os_text(exception: Exception) -> str:
    return sanitize(getattr(exception, "strerror", None) or exception or type(exception).__name__, 120)


# --- the base URL --------------------------------------------------------------------------------------------


def _refused_url(why: str) -> CustodyConfigurationError:
    return CustodyConfigurationError(f"the base URL {why}", setting="base_url")


def _parse_base_url(value: object) -> Url:
    """Return the parts of a base URL, or refuse it."""
    if not isinstance(value, str) or not value.strip():
        raise _refused_url("is missing (an example: https://custody.example.com)")
    if re.search(r"[\s\\\x00-\x20\x7f]", value):
        raise _refused_url("contains white space, a control character or a backslash")
    if not re.match("https?://", value, re.IGNORECASE):
        raise _refused_url("must begin with https:// (or http:// for a service on this machine)")
    parsed: Url | None = None
    with suppress(ValueError):
        parsed = parse_url(value)
    if parsed is None:
        raise _refused_url("cannot be read as a URL")
    if parsed.auth is not None or "@" in value:
        raise _refused_url("must not contain a user name, password or '@': there is a separate setting for the token")
    return parsed


def _check_base_url(value: object) -> str:
    """Return the base URL without a trailing slash, or refuse it."""
    parsed = _parse_base_url(value)
    if not _HOST.fullmatch(parsed.host or ""):
        raise _refused_url("has no valid host: it is missing, or a part of its name is empty or too long")
    # Check the original text, because the parser has already resolved '.' and '..'.
    if re.search(r"[?#]|/\.{1,2}(/|$)", str(value)):
        raise _refused_url("must not contain a query, a fragment, or '.' or '..' in its path")
    path = (parsed.path or "").rstrip("/")
    if path.endswith(API_ROOT):
        raise _refused_url(f"must end before {API_ROOT}, which is added to it")
    return parsed._replace(path=path or None).url


# --- TLS -----------------------------------------------------------------------------------------------------


def _check_verify(value: object) -> bool | str:
    """
    Return the setting for verifying TLS. Refuse a CA bundle that cannot be used.
    """
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.strip().lower(), value)
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise wrong_setting("verify", "must be true, false or the path of a CA bundle")
    path = os.fspath(value)
    if is_pem(path):
        raise wrong_setting("verify", "must be the path of a CA bundle, not the bundle itself")
    try:
        # Check the kind and size of the file first, because OpenSSL would read any file to its end.
        read_file(path)
        ssl.create_default_context(cafile=path)
        return path
    except (OSError, ValueError) as exception:
        why = _os_text(exception)
    raise wrong_setting("verify", f"is not a usable CA bundle: {sanitize(path, 120)}: {why}")


def _check_client_cert(value: object) -> str | tuple[str, str] | None:
    """
    Return the paths of the client's certificate and key. Refuse files that cannot be used.
    """
    if value is None:
        return None
    paths = _certificate_paths(value)
    if fault := _certificate_fault(paths):
        raise wrong_setting("client_cert", f"cannot be used: {fault}")
    return paths[0] if len(paths) == 1 else (paths[0], paths[1])


def _certificate_fault(paths: list[str]) -> str | None:
    """
    Explain why a client's certificate and key cannot be used; None if they can.

    :param paths: the path of a file with both, or the path of the certificate and the path of the key.
    """
    texts, names = [], [sanitize(path, 120) for path in paths]
    for path, name in zip(paths, names, strict=True):
        try:
            texts.append(read_file(path).decode("ascii", "replace"))
        except (OSError, ValueError) as exception:
            return f"{name}: {_os_text(exception)}"
    has_certificate, has_key = (["-----BEGIN" in each and what in each for each in texts] for what in _PEM_PARTS)
    if not has_certificate[0]:
        if has_key[0] and has_certificate[-1]:
            return "the two paths are swapped: the certificate comes first, then its private key"
        return f"{names[0]} has no certificate in PEM"
    if not has_key[-1]:
        return f"{names[-1]} has no private key in PEM"
    if "ENCRYPTED" in texts[-1]:
        return f"the private key in {names[-1]} is encrypted; decrypt it, for example with 'openssl pkey'"
    try:
        # Pass an empty password, so that an encrypted key fails, and does not prompt on a terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*paths, password="")  # type: ignore[misc]
    except (OSError, ValueError) as exception:
        if getattr(exception, "reason", None) == "KEY_VALUES_MISMATCH":
            return f"the private key in {names[-1]} does not belong to the certificate in {names[0]}"
        return f"{', '.join(names)}: {_os_text(exception)}"
    return None


def _certificate_paths(value: object) -> list[str]:
    parts: Any = os.fspath(value).split(",") if isinstance(value, (str, os.PathLike)) else value
    is_right = isinstance(parts, (list, tuple)) and len(parts) in (1, 2)
    if not is_right or not all(isinstance(part, (str, os.PathLike)) and str(part).strip() for part in parts):
        raise wrong_setting("client_cert", "must be the path of a PEM file, or the two paths of certificate and key")
    paths = [os.fspath(part).strip() for part in parts]
    if any(map(is_pem, paths)):
        raise wrong_setting("client_cert", "must be a path, not the certificate or the key itself")
    return paths


# --- the proxy -----------------------------------------------------------------------------------------------


@plain_dataclass(frozen=True)
class Proxy:
    """
    A proxy that can be used.

    :param url: the proxy's URL, which may contain a password.
    :param place: the setting or environment variable that it comes from, for messages.
    """

    url: SecretStr
    place: str

    @property
    def is_https(self) -> bool:
        """Whether the connection to the proxy is encrypted."""
        return self.url.get_secret_value().lower().startswith("https:")

    @property
    def address(self) -> str:
        """The proxy's host and port, without user name and password."""
        return urlsplit(self.url.get_secret_value()).netloc.rpartition("@")[2]

    @property
    def secrets(self) -> list[SecretStr]:
        """The texts that contain the proxy's password; empty if it has no password."""
        parts = urlsplit(self.url.get_secret_value())
        user, password = parts.username or "", parts.password or ""
        more = [password, unquote(password), f"{unquote(user)}:{unquote(password)}"]
        return [self.url, *map(SecretStr, more)] if password else []


def _check_proxy(value: object) -> SecretStr | None:
    value = value if isinstance(value, SecretStr) else SecretStr(str(value or ""))
    return _check_proxy_url(value, "'proxy'", "proxy") if value else None


def _is_usable_proxy(url: SecretStr) -> bool:
    """
    Tell whether the URL of a proxy can be used.

    Both libraries that parse the URL later must be able to read it, and it must be possible to send its password in a
    header.
    """
    try:
        address, parts = parse_url(url.get_secret_value()), urlsplit(url.get_secret_value())
        parts.port  # noqa: B018 - it raises ValueError for a wrong port
        f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode("iso-8859-1")
    except ValueError:
        return False
    # If a password has an unencoded "/", "?" or "#", its start would be read as the proxy's port, and be reported.
    is_split = "@" in f"{parts.path}{parts.query}{parts.fragment}"
    return address.scheme in ("http", "https") and bool(address.host) and not is_split


def _check_proxy_url(url: SecretStr, place: str, setting: str) -> SecretStr:
    """Return a proxy's URL, or refuse a URL that cannot be used."""
    if _is_usable_proxy(url):
        return url
    # Do not quote the value, because it may hold a password.
    raise CustodyConfigurationError(
        f"{place} must be a URL like http://host.example.com:3128; a user name and a password in it must be "
        "percent-encoded, and be ISO-8859-1",
        setting=setting,
    )


def _environment_proxy(url: str) -> Proxy | None:
    """Return the environment's proxy for a URL; None if there is none."""
    proxy = SecretStr(select_proxy(url, get_environ_proxies(url)) or "")
    if not proxy:
        return None
    variable = next((each for each in _PROXY_VARIABLES if os.environ.get(each) == proxy.get_secret_value()), None)
    # On macOS and Windows, the proxy may come from the system's settings.
    place = f"the environment variable {variable}" if variable else "the proxy in the system's settings"
    # Environment and system settings often have only host and port, without a scheme.
    if "://" not in proxy.get_secret_value():
        proxy = SecretStr(f"http://{proxy.get_secret_value()}")
    return Proxy(_check_proxy_url(proxy, place, variable or "proxy"), place)


# --- pinned keys ---------------------------------------------------------------------------------------------


def is_key_text(text: str) -> bool:
    """
    Tell whether a text is meant to be a public key, and not the path of a file.
    """
    return "-----" in text or is_bare_base64(text)


def _read_keys(value: object) -> tuple[str, ...] | None:
    """
    Return the texts with public keys. For a path, read the text from the file.
    """
    if value is None:
        return None
    texts = [value] if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(each, (str, os.PathLike)) for each in texts):
        raise wrong_setting("superadmin_keys", "must be public keys in PEM, or the path of a file with them")
    if len(texts) > MAX_KEYS:
        raise wrong_setting("superadmin_keys", f"has {len(texts)} entries, but the maximum is {MAX_KEYS}")
    return tuple(_read_key(os.fspath(each)) for each in texts)


def _read_key(text: str) -> str:
    if is_key_text(text):
        return text
    # Quote the text only if it looks like a path, because it may be a key without its first line, even a private key.
    shown = f"{sanitize(text, 200)}: " if "." in text or len(text) < _MIN_KEY or os.path.exists(text) else ""
    try:
        found = pem_text(read_file(text).decode("utf-8-sig"))
        return "".join(key.pem for key in read_public_keys(found))
    except UnicodeDecodeError:
        why = "it is binary, not PEM; 'openssl pkey -pubin -inform DER -in FILE' converts it"
    except KeyTextError as error:
        why = str(error)
    except (OSError, ValueError) as exception:
        why = _os_text(exception)
    raise wrong_setting(
        "superadmin_keys", f"is neither a public key in PEM nor a readable file of public keys: {shown}{why}"
    )


def _split_names(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def _read_date(value: Any) -> Any:
    """
    Convert an ISO 8601 date to Unix time in seconds. A date without a time zone is in UTC.
    """
    if not isinstance(value, str):
        return value
    with suppress(ValueError, OverflowError):
        date = TypeAdapter(datetime).validate_python(value.strip())
        return int((date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp())
    return value


# --- words ---------------------------------------------------------------------------------------------------


def _read_words(value: object) -> tuple[str, ...]:
    """
    Return words without surrounding white space, each once.

    Empty words are left out. If the value is None or has no words, the setting counts as not set.
    """
    words: Any = value.split(",") if isinstance(value, str) else () if value is None else value
    are_texts = isinstance(words, (list, tuple, set, frozenset)) and all(isinstance(each, str) for each in words)
    # Refuse the text of a list in JSON or Python, because it would be split into words that never match.
    if not are_texts or (isinstance(value, str) and re.match(r"\s*[\[({\"']", value)):
        raise ValueError("must be a list of words, or words separated by commas, without brackets or quotation marks")
    return tuple(dict.fromkeys(each.strip() for each in words if each.strip()))


# --- changed files -------------------------------------------------------------------------------------------


def digests_of_files(values: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """
    Return a digest of each file that these settings name, to detect that a file has changed.

    :param values: the settings by name, as in a connection.
    :return: the digests, by setting and path. For a file that cannot be read, the reason takes the place of the digest.
    """
    found: dict[tuple[str, str], str] = {}
    for name in ("verify", "client_cert", "superadmin_keys"):
        value = values.get(name)
        texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str) and text]
        if name == "client_cert":
            texts = [path.strip() for text in texts for path in text.split(",")]
        for path in texts:
            if name == "superadmin_keys" and is_key_text(path):
                continue
            try:
                found[name, path] = hashlib.sha256(read_file(path)).hexdigest()
            except (OSError, ValueError) as exception:
                found[name, path] = _os_text(exception)
    return found


# --- the settings --------------------------------------------------------------------------------------------


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("Input should be a number")
    return value


_Number = BeforeValidator(_no_boolean)


@plain_dataclass(frozen=True)
class FormField:
    """
    The field for a setting in a connection's form. Its type and limits are those of the setting.

    :param label: the field's label.
    :param schema: additional keys of the field's JSON schema. Default: no keys.
    """

    label: str
    schema: Mapping[str, Any] = field(default_factory=dict)


# Each setting is one field: type, check, form field, default and meaning. After a change, run
# ``python tests/client/test_settings.py``, which renews the copies in CustodyClient and get_provider_info.py.
@dataclass(frozen=True, config=ConfigDict(extra="forbid", use_attribute_docstrings=True))
class ClientSettings:
    """
    The settings of a client.

    The settings are checked when the object is created. Values may be text, as in a connection's URI.

    :raises CustodyConfigurationError: if a setting is missing or wrong; ``setting`` names it.
    """

    base_url: Annotated[str, BeforeValidator(_check_base_url)] = Field("", validate_default=True)
    """URL of the service, ``https://custody.example.com``; a path prefix is allowed. Plain HTTP is refused except to
    this machine."""
    timeout: Annotated[float, Field(ge=0.001, le=86_400), _Number, FormField("Timeout (seconds)")] = DEFAULT_TIMEOUT
    """Seconds allowed for connecting, for each wait for data, and for reading the whole response body. Each retry gets
    the full time again. Default: 30."""
    verify: Annotated[bool | str, BeforeValidator(_check_verify), FormField("TLS verification")] = True
    """Whether to verify the service's TLS certificate (true or false), or the path of a CA bundle to verify it with.
    Environment variables do not change it. Default: true."""
    client_cert: Annotated[
        str | tuple[str, str] | None, BeforeValidator(_check_client_cert), FormField("Client certificate")
    ] = None
    """Path of a PEM file with certificate and key, or the paths of two files, comma-separated or as a pair. Default:
    none."""
    proxy: Annotated[str | SecretStr | None, PlainValidator(_check_proxy), FormField("Proxy")] = None
    """URL of a proxy, ``http://`` or ``https://``. Default: for an HTTPS base URL, the proxy in the environment
    variable ``HTTPS_PROXY``, or else ``ALL_PROXY``, unless ``NO_PROXY`` excludes the host; for plain HTTP, none."""
    max_retries: Annotated[int, Field(ge=0, le=20), _Number, FormField("Retries")] = DEFAULT_MAX_RETRIES
    """Maximum number of retries of a call that is safe to repeat. Default: 3."""
    max_response_bytes: Annotated[int, Field(ge=1), _Number, FormField("Maximum response size (bytes)")] = (
        DEFAULT_MAX_RESPONSE_BYTES
    )
    """Maximum size of a response in bytes. A larger response is refused, and so is a response with more JSON values
    than this size divided by 64. Default: 33554432 (32 MiB)."""
    allow_http: Annotated[bool, FormField("Allow plain HTTP")] = False
    """Whether the token may travel unencrypted, over plain HTTP, to another machine. Default: no."""
    superadmin_keys: Annotated[
        str | Sequence[str] | None,
        PlainValidator(_read_keys),
        FormField("Super-administrators' public keys", {"format": "multiline"}),
    ] = None
    """Public keys of the super-administrators, for verifying whitelisted addresses: PEM text, or the path of a file,
    which must be absolute in a connection. Get the keys from the people who hold them, not from the service. Default:
    none; then no address is verified, and the service's data is trusted."""
    superadmin_minimum: Annotated[
        int | None, _Number, FormField("Super-administrators' signatures", {"minimum": 1})
    ] = None
    """Number of the super-administrators' keys that must have signed the rules. Required if keys are set."""
    networks: Annotated[Collection[str] | None, PlainValidator(_split_names), FormField("Networks")] = None
    """Names of the accepted networks, as a list or as comma-separated text. Default: any network."""
    allow_legacy_signatures: Annotated[bool, FormField("Allow legacy signatures")] = False
    """Whether to accept addresses that were signed in a legacy form, which does not cover all fields. Default: no."""
    rules_not_before: Annotated[int | str | None, PlainValidator(_read_date), FormField("Rules not before")] = None
    """Oldest accepted date of the rules: a date such as 2026-01-31, or Unix time in seconds. Default: no limit."""
    effective_statuses: Annotated[
        Collection[str], PlainValidator(_read_words), FormField("Status words of requests in effect")
    ] = ()
    """Status words of requests in effect, as a list or as comma-separated text, compared without regard to case. A
    request with an unknown word never counts as in effect. Default: ``approved``, from a published example."""
    rejected_statuses: Annotated[
        Collection[str], PlainValidator(_read_words), FormField("Status words of rejected requests")
    ] = ()
    """Status words of rejected requests, as a list or as comma-separated text, compared without regard to case.
    Default: ``rejected``, ``declined``, ``expired``, ``canceled`` and ``cancelled``, some of them guesses. Your words
    replace the default."""
    accept_fields: Annotated[Collection[str], PlainValidator(_read_words), FormField("Accepted fields")] = ()
    """Keys of a request's payload that may have a value that was not requested, as a list or as comma-separated text:
    keys that this service fills in, such as ``tnParticipantID``. Write an unknown key of a link after the link's own
    key, such as ``linkedWallets.owner``. ``envelope.action`` accepts an unknown action word. Default: none."""
    user_agent: str | None = None
    """Text to add to the ``User-Agent``, which names this package and its version. Default: none."""
    source: str | None = None
    """Where the user can change these settings; named in error messages. Default: none."""

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_setting(cls, values: Any, handler: Any) -> Any:
        """Turn pydantic's error into one that names the setting."""
        try:
            settings = handler(values)
            settings._check_together()
            return settings
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        is_own = first["type"] == "value_error"
        why = str(first["ctx"]["error"]) if is_own else first["msg"].replace("Input should", "must", 1)
        # Do not quote the value of an unknown setting, because it may be a secret.
        shown = "" if first["type"] == "unexpected_keyword_argument" else f", not {sanitize(repr(first['input']), 40)}"
        raise wrong_setting(str(first["loc"][0]), f"{why}{shown}")

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ClientSettings:
        """
        Return settings from a form's values.

        :param values: the settings by name; None or an empty text means not set.
        :raises CustodyConfigurationError: like the class.
        """
        names = (each.name for each in fields(cls))
        return cls(**{name: values[name] for name in names if values.get(name) not in (None, "")})

    @property
    def base_url_text(self) -> str:
        """
        The name of the base URL in error messages: the command-line option, the source of the settings, or the URL
        itself.
        """
        if self._from_options:
            return self.name("base_url")
        return f"the base URL of {self.source}" if self.source else f"the base URL {self.base_url}"

    @property
    def user_text(self) -> str:
        """The user in error messages, such as ``The user of Airflow connection 'custody_default'``."""
        return f"The user of {self.source}" if self.source and not self._from_options else "The user"

    def name(self, *settings: str) -> str:
        """Return the name and the place of a setting, or of several alternatives, for messages."""
        if self._from_options:
            return " or ".join(f"--{each.replace('_', '-')}" for each in settings)
        names = " or ".join(map(repr, settings))
        return f"{names} of {self.source}" if self.source else names

    @property
    def _from_options(self) -> bool:
        return str(self.source).startswith("--")

    @cached_property
    def pins(self) -> VerificationPins | None:
        """The pinned keys and limits for verifying addresses; None: nothing is verified."""
        if self.superadmin_keys is None:
            return None
        return VerificationPins(
            self.superadmin_keys,
            self.superadmin_minimum or 0,
            networks=self.networks,
            allow_legacy_signatures=self.allow_legacy_signatures,
            rules_not_before=self.rules_not_before,  # type: ignore[arg-type]  # a date is a number by now
        )

    @cached_property
    def status_words(self) -> StatusWords:
        """The status words of this installation: the settings, or else the defaults."""
        return StatusWords(
            tuple(self.effective_statuses) or EFFECTIVE_STATUSES, tuple(self.rejected_statuses) or REJECTED_STATUSES
        )

    @cached_property
    def proxy_in_use(self) -> Proxy | None:
        """
        The proxy for requests, from the settings or (for an HTTPS base URL) from the environment; None: no proxy is
        used.
        """
        if self.proxy:
            return Proxy(as_secret(self.proxy), self.name("proxy"))
        # Use the environment's proxy only with TLS. Without TLS, a proxy that the user did not choose would learn the
        # token; with TLS, it only learns the host's name.
        return _environment_proxy(self.base_url) if self.base_url.startswith("https:") else None

    def _check_together(self) -> None:
        """
        Refuse combinations of settings that cannot be used.

        These are a user agent that cannot be sent, a token over plain HTTP, incomplete settings for verification, and
        a status word with two meanings.
        """
        if self.user_agent and not (self.user_agent.isascii() and self.user_agent.isprintable()):
            raise wrong_setting("user_agent", "must be printable ASCII, to be sent in a header")
        if self.base_url.startswith("http:") and not self.allow_http:
            self._check_plain_http()
        self.proxy_in_use  # noqa: B018 - it raises an error if the proxy cannot be used
        words = self.status_words
        self._check_pins()
        if both := [each for each in words.effective if words.meaning(each) == "rejected"]:
            why = f"contains {sanitize(both[0], 40)!r}, which is in 'rejected_statuses', or in its default"
            raise wrong_setting("effective_statuses", why)

    def _check_plain_http(self) -> None:
        """Refuse plain HTTP, except to this machine and without a proxy."""
        host = str(parse_url(self.base_url).host)
        is_loopback = host.lower() == "localhost"
        with suppress(ValueError):
            is_loopback = is_loopback or ipaddress.ip_address(host.strip("[]")).is_loopback
        if not is_loopback:
            raise CustodyConfigurationError(
                f"the base URL is plain HTTP to {host}: the token would be sent unencrypted; use https://, or set "
                "'allow_http' if you trust the network in between",
                setting="base_url",
            )
        if self.proxy:
            raise wrong_setting("proxy", "would read the token over plain HTTP; use https://, or set 'allow_http'")

    def _check_pins(self) -> None:
        """Refuse incomplete pins. Setting any of them implies verification."""
        values = {name: getattr(self, name) for name in PIN_SETTINGS}
        values["allow_legacy_signatures"] = self.allow_legacy_signatures or None
        given = [name for name, value in values.items() if value is not None]
        if not given:
            return
        if self.superadmin_keys is None:
            raise wrong_setting(given[0], "needs 'superadmin_keys': without them, nothing is verified")
        if self.superadmin_minimum is None:
            raise wrong_setting(
                "superadmin_minimum", "is missing: set the number of pinned keys that must have signed the rules"
            )
        self.pins  # noqa: B018 - it raises an error if the pins cannot be used
