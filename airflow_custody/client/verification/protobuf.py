"""
A strict reader of protobuf messages, for the signed rules.

No value can be read in two ways: if the wire format allows several readings, this reader refuses the message. It
refuses a repeated field that must occur only once, a known field with an unexpected wire type, groups, and numbers that
do not fit their type. It skips unknown fields, because the service may add fields to its messages. The depth of
recursion depends only on the expected message, not on the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_custody.client.verification.results import RefusalError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES = 10
_LAST_FIELD_NUMBER = (1 << 29) - 1
# The bits above the low 31 of a negative enum value. It is written with 64 bits, and all of these bits are set.
_NEGATIVE_ENUM = (1 << 33) - 1
_NUMBERS = frozenset({"uint32", "uint64", "enum"})


@dataclass(frozen=True)
class Field:
    """
    A field of a message.

    :param name: its name.
    :param kind: type of its values.
    :param repeated: whether the field may be repeated. Default False.
    :param message: if the values are messages: the fields of these messages, by number. Default None.
    """

    name: str
    kind: Literal["string", "bytes", "uint32", "uint64", "enum", "message"]
    repeated: bool = False
    message: Mapping[int, Field] | None = None

    @property
    def default(self) -> Any:
        """The value of the field if the message lacks it."""
        return [] if self.repeated else {"string": "", "bytes": b""}.get(self.kind, 0)


Message = Mapping[int, Field]


def messages(name: str, message: Message) -> Field:
    """Return a repeated field whose values are messages."""
    return Field(name, "message", repeated=True, message=message)


def read_message(data: bytes, message: Message) -> dict[str, Any]:
    """
    Return the values of a message's fields by name. The value of an absent field is 0, empty, or an empty list.

    :param data: the message's bytes.
    :param message: its fields, by number.
    :raises RefusalError: if the data is not such a message.
    """
    found: dict[str, Any] = {}
    for number, wire_type, value in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        if field.repeated:
            found.setdefault(field.name, []).extend(_values(field, wire_type, value))
        elif field.name in found:
            raise RefusalError(f"its field {field.name} is repeated")
        else:
            found[field.name] = _value(field, wire_type, value)
    return {field.name: field.default for field in message.values()} | found


def _values(field: Field, wire_type: int, value: Any) -> list[Any]:
    if wire_type == _BYTES and field.kind in _NUMBERS:  # packed
        numbers, position = [], 0
        while position < len(value):
            number, position = _varint(value, position)
            numbers.append(_value(field, _VARINT, number))
        return numbers
    return [_value(field, wire_type, value)]


def _value(field: Field, wire_type: int, value: Any) -> Any:
    if wire_type != (_VARINT if field.kind in _NUMBERS else _BYTES):
        raise RefusalError(f"its field {field.name} has the wire type {wire_type}")
    if field.kind == "uint32" and value >> 32:
        raise RefusalError(f"its field {field.name} is larger than 32 bits")
    # Refuse a larger number, because other readers keep only its low 32 bits, and so may read a different value.
    if field.kind == "enum" and value >> 31 not in (0, _NEGATIVE_ENUM):
        raise RefusalError(f"its field {field.name} is not a valid enum value")
    if field.message is not None:
        return read_message(value, field.message)
    if field.kind == "string":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise RefusalError(f"its field {field.name} is not UTF-8") from None
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """
    Yield number, wire type and value of each field.

    The value is a number for a varint, otherwise bytes.
    """
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire_type = key >> 3, key & 7
        if not 1 <= number <= _LAST_FIELD_NUMBER:
            raise RefusalError("a field has an invalid number")
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, wire_type, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise RefusalError(f"a field has the wire type {wire_type}, which is not supported")
        if size > len(data) - position:
            raise RefusalError("it ends within a field")
        yield number, wire_type, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the next position."""
    value = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 64:
                raise RefusalError("a number is larger than 64 bits")
            return value, position + index + 1
    raise RefusalError("a number has no end")
