"""A program that signs a request with a key in an HSM. Tests run this."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from airflow_custody.client import CustodyClient, WhitelistRequest
from airflow_custody.client.signers.pkcs11 import Pkcs11Signer
from airflow_custody.client.whitelist.signing.sending import RequestSigner


def sign(client: CustodyClient, request_id: str, expected: WhitelistRequest) -> None:
    """Sign a request if it has the expected content."""
    signer = Pkcs11Signer(
        module=os.environ["CUSTODY_PKCS11_MODULE"],
        token="treasury",
        key="first-signer",
        pin=lambda: Path(os.environ["CUSTODY_PIN_FILE"]).read_text().strip(),
    )
    request_signer = RequestSigner(client, signer, log=logging.getLogger("custody"))
    request_signer.sign([request_id], {request_id: expected}, "checked by the treasury's program")
