"""The reader of protobuf messages: what it takes, and that it refuses what could be read in two ways."""

from __future__ import annotations

import base64
import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worked_example import CONTAINER

from airflow_custody.client.verification.protobuf import Field, Message, messages, read_message
from airflow_custody.client.verification.results import RefusalError
from airflow_custody.client.verification.rules_container import RulesContainer, read_container, read_signatures

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


def read(data: bytes) -> RulesContainer | None:
    try:
        return read_container(data)
    except RefusalError:
        return None


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read(data)
    with contextlib.suppress(RefusalError):
        read_signatures(data)


@settings(max_examples=300)
@given(st.integers(0, len(DATA) - 1), st.integers(0, 255), st.integers(0, 3))
def test_changed_rules_are_read_or_refused(place: int, byte: int, size: int) -> None:
    read(DATA[:place] + bytes([byte]) * size + DATA[place + 1 :])


@pytest.mark.parametrize("size", range(0, len(DATA), 7))
def test_cut_rules_lose_something(size: int) -> None:
    found = read(DATA[:size])
    assert found is None or found != read_container(DATA)


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


@pytest.mark.parametrize(
    "data",
    [
        b"\x78\x01" * 50_000,  # unknown numbers
        b"\x0a\x00" * 50_000,  # users without an id
        b"\x1a\x80" * 50_000,
        b"\x32\x02\x12\x00" * 50_000,  # rules with a path without groups
        b"\x0a\xff\xff\xff\x7f" * 50_000,
        b"\x80" * 100_000,
    ],
    ids=["unknown", "users", "lengths", "rules", "huge", "endless"],
)
def test_large_ones_take_a_bounded_time(data: bytes) -> None:
    started = time.process_time()
    read(data)
    assert time.process_time() - started < 5
