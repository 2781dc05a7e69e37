"""Signers whose keys are in an Airflow connection."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from airflow_custody.client.errors import CustodyConfigurationError
from airflow_custody.client.signers import NamedSigner, PemSigner
from airflow_custody.client.signers.pkcs11 import Pkcs11Key, Pkcs11Signer
from airflow_custody.hooks._lookup import ConnectionFields, find_connection, mask

if TYPE_CHECKING:
    from pydantic import SecretStr

# Parts of a PEM text: header and footer; attributes and escaped line ends; base64 text of the key.
_MARKERS = re.compile(r"-----[A-Z0-9 ]*-----")
_ATTRIBUTES = re.compile(r"[\w-]{1,64}:\s*[^\s\\]+|\\[nrt]")
_BASE64 = re.compile(r"[A-Za-z0-9+/=]+")
_LINE = 64
# Minimum length of a text that is masked. The last line of a key may be this short; the words BEGIN and PRIVATE of a
# broken header are shorter, and must not be masked.
_MIN_MASKED = 8
# Maximum length of a key in characters. A P-256 key only has some hundred, and each further line to mask makes
# Airflow's masker slower.
_MAX_KEY = 16 * 1024
_HSM_EXTRAS = ("pkcs11_module", "pkcs11_token", "pkcs11_key")
_PLACE = "The signing key comes from the Airflow connection {!r}."
_ADVICE = "Create a connection with this id, or correct the signer's id."
_NOT_TEXT = "the connection's Password is not text: put it in quotation marks in its definition"


def _mask_key(pem: SecretStr) -> None:
    """Mask a key in logs, however it is broken into lines."""
    for block in _MARKERS.split(pem.get_secret_value()):
        lines = _BASE64.findall(_ATTRIBUTES.sub(" ", block))
        key = "".join(lines)
        for each in {key, *lines, *(key[at : at + _LINE] for at in range(0, len(key), _LINE))}:
            if len(each) >= _MIN_MASKED:
                mask(each)


class ConnectionSigner(PemSigner):
    """
    A signer with a P-256 key in an Airflow connection.

    The connection can have any type. Its extra ``private_key`` is the key in PEM format. If the key is encrypted, the
    connection's Password is the password of the key. Both are masked in logs. The connection is read when the task
    runs.

    :param signing_conn_id: id of the connection; also the signer's name.
    """

    def __init__(self, signing_conn_id: str) -> None:
        NamedSigner.__init__(self, signing_conn_id, _PLACE.format(signing_conn_id))

    def _read_key(self) -> tuple[SecretStr, SecretStr]:
        connection = find_connection(self.name, _ADVICE, setting="signer")
        pem = _text_of(connection, "private_key")
        if not pem:
            raise self._unusable("the connection has no extra 'private_key'")
        if len(pem) > _MAX_KEY:
            mask(pem)
            raise self._unusable(f"it has more than {_MAX_KEY} characters, so it is not a P-256 key")
        _mask_key(pem)
        if connection.password is None:
            raise self._unusable(_NOT_TEXT)
        return pem, connection.password


class Pkcs11ConnectionSigner(Pkcs11Signer):
    """
    A signer with an HSM's P-256 key, configured in an Airflow connection.

    The connection can have any type. Its Password is the token's PIN. Its extras are ``pkcs11_module``, the absolute
    path of the HSM's PKCS#11 library on the worker, and ``pkcs11_token`` and ``pkcs11_key``, the labels of the token
    and of the key pair. The PIN is masked in logs if it has at least five characters: Airflow does not mask shorter
    PINs. The worker loads the library and passes the PIN to it, so users who can change the connection can run their
    own library. The connection is read when the task runs.

    In all other respects, this is a :class:`~airflow_custody.client.signers.pkcs11.Pkcs11Signer`. It needs the
    package's extra ``pkcs11``.

    :param signing_conn_id: id of the connection; also the signer's name.
    """

    def __init__(self, signing_conn_id: str) -> None:
        NamedSigner.__init__(self, signing_conn_id, _PLACE.format(signing_conn_id))

    def _where(self) -> Pkcs11Key:
        connection = find_connection(self.name, _ADVICE, setting="signer")
        if connection.password is None:
            raise self._unusable(_NOT_TEXT)
        found = {name: _text_of(connection, name).get_secret_value() for name in _HSM_EXTRAS}
        missing = [name for name, value in found.items() if not value]
        if missing:
            raise self._unusable(f"the connection has no extra {', '.join(map(repr, missing))}")
        module, token, key = found.values()
        if not os.path.isabs(module):
            # Refuse a relative path, because its meaning depends on the process's working directory and environment.
            raise self._unusable("the extra 'pkcs11_module' must be an absolute path")
        return Pkcs11Key(module, token, key, connection.password)


def _text_of(connection: ConnectionFields, name: str) -> SecretStr:
    """
    Return an extra of a connection; empty if it is missing, or not text.

    :raises CustodyConfigurationError: if the extras are not a JSON object, or a name is repeated.
    """
    from pydantic import SecretStr

    if connection.extras is None:
        raise CustodyConfigurationError(
            f"the signing key {connection.conn_id!r} cannot be used: the connection's Extra is not a JSON object, or "
            "repeats a name",
            setting="signer",
            advice="Correct the Extra of the Airflow connection. JSON requires double quotation marks.",
        )
    value = connection.extras.get_secret_value().get(name)
    return SecretStr(value if isinstance(value, str) else "")
