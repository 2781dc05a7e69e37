"""The wire format of protobuf at its limits: the last possible value, and the first impossible one."""

from __future__ import annotations

import pytest

from airflow_custody.client.verification.protobuf import Field, messages, read_message
from airflow_custody.client.verification.results import RefusalError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MESSAGE = {
    1: Field("small", "uint32"),
    2: Field("large", "uint64"),
    3: Field("choice", "enum"),
    4: Field("text", "string"),
    5: Field("many", "uint32", repeated=True),
    6: messages("inner", {1: Field("small", "uint32")}),
}


def varint(value: int, size: int = 0) -> bytes:
    """Encode a number. With a size, use this number of bytes, of which the last ones may have no effect."""
    found = bytearray()
    while value >= 0x80 or len(found) < size - 1:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, wire_type: int, content: bytes) -> bytes:
    return varint(number << 3 | wire_type) + content


def sized(content: bytes) -> bytes:
    return varint(len(content)) + content


READ: list[tuple[bytes, str, object]] = [
    *((field(1, VARINT, varint(each)), "small", each) for each in (0, 1, 127, 128, 2**32 - 1)),
    *((field(2, VARINT, varint(each)), "large", each) for each in (2**32, 2**63, 2**64 - 1)),
    # A number may be longer than it must be, up to ten bytes.
    *((field(2, VARINT, varint(5, size)), "large", 5) for size in (1, 2, 9, 10)),
    # A negative enum has 64 bits.
    *((field(3, VARINT, varint(each)), "choice", each) for each in (0, 2**31 - 1, 2**64 - 2**31, 2**64 - 1)),
    (field(4, BYTES, sized("é".encode())), "text", "é"),
    (field(5, VARINT, varint(7)), "many", [7]),
    (field(5, VARINT, varint(7)) + field(5, BYTES, sized(varint(2**32 - 1) + varint(0))), "many", [7, 2**32 - 1, 0]),
    (field(6, BYTES, sized(field(1, VARINT, varint(7)))), "inner", [{"small": 7}]),
    # Other fields are skipped, of any number and type.
    *((field(each, VARINT, varint(1)), "small", 0) for each in (7, 2**29 - 1)),
    (field(7, FIXED64, bytes(8)) + field(1, VARINT, varint(7)), "small", 7),
    (field(7, FIXED32, bytes(4)) + field(1, VARINT, varint(7)), "small", 7),
    (field(7, BYTES, sized(bytes(3))) + field(1, VARINT, varint(7)), "small", 7),
]


@pytest.mark.parametrize(("data", "name", "value"), READ, ids=repr)
def test_values_at_their_bounds(data: bytes, name: str, value: object) -> None:
    absent = {"small": 0, "large": 0, "choice": 0, "text": "", "many": [], "inner": []}
    assert read_message(b"", MESSAGE) == absent
    assert read_message(data, MESSAGE) == {**absent, name: value}
    # If a field ends too early, the bytes are not a message.
    for end in range(1, len(data)):
        if data[:end] not in WHOLE:
            with pytest.raises(RefusalError):
                read_message(data[:end], MESSAGE)


WHOLE = {
    field(5, VARINT, varint(7)),
    field(7, FIXED64, bytes(8)),
    field(7, FIXED32, bytes(4)),
    field(7, BYTES, sized(bytes(3))),
}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (field(1, VARINT, varint(2**32)), "small is larger than 32 bits"),
        (field(5, BYTES, sized(varint(2**32))), "many is larger than 32 bits"),
        (field(2, VARINT, varint(2**64)), "larger than 64 bits"),
        (field(2, VARINT, varint(2**70 - 1)), "larger than 64 bits"),
        (field(2, VARINT, varint(5, 11)), "a number has no end"),
        *((field(3, VARINT, varint(each)), "not a valid enum value") for each in (2**31, 2**32, 2**64 - 2**31 - 1)),
        *((field(each, VARINT, varint(1)), "an invalid number") for each in (0, 2**29)),
        *((field(7, each, bytes(8)), f"wire type {each}, which is not supported") for each in (3, 4, 6, 7)),
        *((field(1, each, sized(bytes(4))), f"small has the wire type {each}") for each in (BYTES, FIXED32)),
        *((field(4, each, bytes(8)), f"text has the wire type {each}") for each in (VARINT, FIXED64)),
        (field(4, BYTES, sized(b"\xff")), "text is not UTF-8"),
        (field(1, VARINT, varint(1)) * 2, "small is repeated"),
        (field(7, BYTES, varint(4) + bytes(3)), "ends within a field"),
        (field(7, FIXED64, bytes(7)), "ends within a field"),
        (field(7, FIXED32, bytes(3)), "ends within a field"),
    ],
    ids=repr,
)
def test_values_beyond_their_bounds_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(RefusalError, match=why):
        read_message(data, MESSAGE)
