"""JSON from outside is read in bounded memory: a few bytes of text may need much memory."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from airflow_custody.client import CustodyClient, CustodyResponseError
from airflow_custody.client.auth import BearerToken
from airflow_custody.client.json_text import UnusableJsonError, check_structure, read_json
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.signed_text import read_signed_text
from airflow_custody.client.webhooks.models import read_payload
from airflow_custody.sandbox import Sandbox

MIB = 2**20


@pytest.mark.parametrize("unit", ["[]", "0", '{"":0}'])
def test_the_number_of_values_is_limited_by_the_limit_of_bytes(unit: str) -> None:
    text = f"[{','.join([unit] * 200_000)}]"
    for given in (text, text.encode()):
        with pytest.raises(UnusableJsonError, match="it has more than 131072 values"):
            check_structure(given, 8 * MIB)
    assert len(read_json(text.encode(), 64 * MIB)) == 200_000


def test_a_small_limit_of_bytes_admits_small_values() -> None:
    assert len(read_json(b"[" + b"0," * 9_000 + b"0]", 20_000)) == 9_001


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a":1,"a":2}', "repeats a key"),
        ("[" * 100_000 + "]" * 100_000, "more than 16384 values"),
        ("[" * 8_000 + "]" * 8_000, "nested too deeply"),
        ("NaN", "NaN is not JSON"),
        ("{", "Expecting"),
    ],
    ids=["repeated", "very deep", "deep", "NaN", "half"],
)
def test_unusable_json_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_json(text.encode(), MIB)


def test_other_texts_from_outside() -> None:
    many = "[" + "0," * 100_000 + "0]"
    assert read_payload(many) == many
    with pytest.raises(RefusalError):
        read_signed_text(many, "x")
    # The payload of a token, which is base64, is JSON within JSON.
    assert BearerToken("a.W1tbW1tb.c").expires is None
    deep = "a." + "W1tb" * 50_000 + ".c"
    assert BearerToken(deep).expires is None


def test_a_response_of_many_small_values_is_refused_in_little_memory(sandbox: Sandbox) -> None:
    # Without a limit of values, this takes 3.7 GB.
    body = '{"result":[' + '{"id":[]},' * (8 * MIB // 10 - 10) + "0]}"
    sandbox.control.add_fault("status", status=200, body=body)
    with CustodyClient(sandbox.url, sandbox.token, max_retries=0, max_response_bytes=8 * MIB) as client:
        tracemalloc.start()
        with pytest.raises(CustodyResponseError, match="it has more than 131072 values"):
            list(client.find_whitelist_requests())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    # The body is held twice while it is read, and once more as text for the message.
    assert peak < 8 * len(body) + 64 * MIB


def test_a_page_of_a_hundred_requests_with_their_rules_is_read(sandbox: Sandbox, client: CustodyClient) -> None:
    row = {
        "rulesContainer": "A" * 290_000,
        "signedAddress": {"signatures": [{"hashes": ["a" * 64] * 100, "userSignature": {"x": "y" * 100}}] * 3},
    }
    body = json.dumps({"result": [{**row, "id": str(number)} for number in range(100)], "totalItems": "100"})
    sandbox.control.add_fault("status", status=200, body=body)
    assert len(list(client.find_whitelist_requests())) == 100
