"""The reader of protobuf messages: what it takes, and that it refuses what could be read in two ways."""

from __future__ import annotations

import base64

import pytest
from worked_example import CONTAINER

from airflow_custody.client.verification.protobuf import Field, Message, messages, read_message
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rules_container import read_container

INNER: Message = {1: Field("name", "string"), 2: Field("data", "bytes")}
MESSAGE: Message = {
    1: Field("text", "string"),
    2: Field("data", "bytes"),
    3: Field("small", "uint32"),
    4: Field("large", "uint64"),
    5: Field("words", "enum", repeated=True),
    6: messages("inner", INNER),
}
EMPTY = {"text": "", "data": b"", "small": 0, "large": 0, "words": [], "inner": []}
DATA = base64.b64decode(CONTAINER)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", {}),
        ("0a02c3a9", {"text": "é"}),
        ("12020aff", {"data": b"\x0a\xff"}),
        ("18ffffffff0f", {"small": 2**32 - 1}),
        ("20ffffffffffffffffff01", {"large": 2**64 - 1}),
        ("188000", {"small": 0}),  # longer than it needs to be
        ("2a03000b01", {"words": [0, 11, 1]}),
        ("28002a010b2801", {"words": [0, 11, 1]}),  # packed and one by one
        ("2a00", {"words": []}),
        ("32030a016132001a", None),
        ("32030a01613200", {"inner": [{"name": "a", "data": b""}, {"name": "", "data": b""}]}),
        # Unknown fields are skipped: varint, 8 bytes, bytes, 4 bytes, the largest number.
        ("7801" + "790102030405060708" + "7a020a01" + "7d01020304" + "0a0161", {"text": "a"}),
        ("f8ffffff0f01", {}),
    ],
)
def test_read(data: str, expected: dict[str, object] | None) -> None:
    if expected is None:
        with pytest.raises(RefusalError):
            read_message(bytes.fromhex(data), MESSAGE)
    else:
        assert read_message(bytes.fromhex(data), MESSAGE) == {**EMPTY, **expected}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("80", "a number does not end"),
        ("18" + "80" * 10 + "00", "a number does not end"),
        ("20" + "ff" * 9 + "02", "larger than 64 bits"),
        ("0001", "a number that there is not"),
        ("f8ffffff1f01", "a number that there is not"),
        ("1b", "wire type 3"),
        ("1c", "wire type 4"),
        ("1e", "wire type 6"),
        ("7f", "wire type 7"),
        ("0801", "its field text has the wire type 0"),
        ("1a0101", "its field small has the wire type 2"),
        ("1d01020304", "its field small has the wire type 5"),
        ("2d01020304", "its field words has the wire type 5"),
        ("3001", "its field inner has the wire type 0"),
        ("0a01610a0161", "its field text comes twice"),
        ("18001800", "its field small comes twice"),
        ("0a01ff", "is not UTF-8"),
        ("0a03eda080", "is not UTF-8"),
        ("188080808010", "larger than a uint32"),
        ("0a0561", "it ends within a field"),
        ("7a05", "it ends within a field"),
        ("79010203", "it ends within a field"),
        ("0affffffffffffffffff01", "it ends within a field"),
        ("2a0180", "a number does not end"),
        ("32020a05", "it ends within a field"),
    ],
)
def test_refused(data: str, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        read_message(bytes.fromhex(data), MESSAGE)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (DATA + DATA[:208], "two users have the same id"),
        (DATA + bytes.fromhex("12050a036f7073"), "two groups have the same id"),
        (DATA + bytes.fromhex("5000"), "its field timestamp comes twice"),
        # A cell of a line that cannot be read, also after the first, and when its type has another payload.
        (DATA + bytes.fromhex("3206" + "2a04" + "0a02" + "ffff"), "does not end"),
        (DATA + bytes.fromhex("320e2a0c0a0208000a0608011202087f"), "field path has the wire type 0"),
    ],
)
def test_rules_that_could_be_read_in_two_ways(what: bytes, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        read_container(what)
