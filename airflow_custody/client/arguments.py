"""
Checks of arguments: the type of each value, and the range of each number. Errors name the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_custody.client.errors import CustodyError, CustodyRequestError
from airflow_custody.client.text import lost_fault, sanitize

#: The largest id, because the service's ids are 64-bit integers.
MAX_ID = 2**63 - 1
#: The longest accepted duration in seconds, about 30 years.
MAX_SECONDS = 1e9
#: Maximum number of rows on one page of the service, and of objects in one batch.
MAX_PAGE_SIZE = 100
#: How long, in seconds, the service's listings may lag behind a change.
LOOKUP_WAIT = 30.0
#: Advice for text that native rendering has converted to another type. The filter ``| string`` does not prevent this.
NATIVE_RENDERING = (
    " (pass it as text. In a DAG with render_template_as_native_obj=True, Airflow converts rendered text that looks "
    "like a Python value. In such a DAG, {{ ... | tojson }}, literal('...') and an upstream task's text remain text)"
)
# The texts to which a template renders None: without a filter, and with the filter ``tojson``.
_RENDERED_NONE = ("None", "null")


def describe(value: object) -> str:
    """
    Describe a value and its type briefly; only its type if the type is unknown.
    """
    kind = sanitize(type(value).__name__, 40)
    if value is None:
        return "None"
    if isinstance(value, str):
        return sanitize(str.__repr__(value[:80]), 40)
    # Quote only numbers of limited size, because Python refuses to convert very long numbers to text.
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**40):
        return f"the {kind} {value!r}"
    return f"a value of type {kind}"


def text_fault(value: object) -> str | None:
    """Explain why a value is not text, or has lost a character; None if neither is true."""
    if isinstance(value, str):
        return lost_fault(value)
    return "is missing" if value is None else f"must be text, not {describe(value)}"


def identifier_fault(value: object) -> str | None:
    """
    Explain why a value is not an id (text or a whole number); None if it is one.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return None if 0 <= value <= MAX_ID else f"must be an id, not {describe(value)}"
    if isinstance(value, str):
        return lost_fault(value)
    return "is missing" if value is None else f"must be text or a whole number, not {describe(value)}"


def check_text(name: str, value: object, error: type[CustodyError] = CustodyRequestError) -> str:
    """
    Check that a value is text that is not empty, and return it.

    :param name: the parameter's name.
    :param value: its value.
    :param error: type of the error to raise. Default :class:`CustodyRequestError`.
    :raises CustodyError: (of the given type) if the value is not text or is blank; ``setting`` names the parameter.
    """
    if not isinstance(value, str):
        hint = "" if value is None else NATIVE_RENDERING
        raise _wrong(error, name, f"{text_fault(value)}; nothing is sent{hint}")
    if fault := text_fault(value):
        raise _wrong(error, name, f"{fault}; nothing is sent")
    if not value.strip():
        raise _wrong(error, name, "is empty; nothing is sent")
    return str.__str__(value)


def _wrong(error: type[CustodyError], name: str, why: str) -> CustodyError:
    return error(f"{name} {why}", setting=name.partition("[")[0], code="parameter-wrong")


def check_identifier(name: str, value: object, error: type[CustodyError] = CustodyRequestError) -> str:
    """
    Return an id, which may be text or a whole number, as text.

    Parameters and errors are those of :func:`check_text`.
    """
    fault = identifier_fault(value)
    if fault is not None:
        raise _wrong(error, name, f"{fault}; nothing is sent")
    return int.__repr__(value) if isinstance(value, int) else check_text(name, value, error)


def check_names(
    name: str, value: object, error: type[CustodyError] = CustodyRequestError, *, may_be_empty: bool = False
) -> list[str] | None:
    """
    Return names as a list; None if they were not given.

    A single name may be given as text.

    :param name: the parameter's name.
    :param value: its value.
    :param error: type of the error to raise.
    :param may_be_empty: whether an empty list is accepted. Default False.
    :raises CustodyError: (of the given type) for any other value; ``setting`` names the parameter.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return [check_text(name, value, error)]
    if isinstance(value, (bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise _wrong(error, name, f"must be a list of names, not {describe(value)}; nothing is sent")
    names = [check_text(f"{name}[{index}]", each, error) for index, each in enumerate(value)]
    if not names and not may_be_empty:
        raise _wrong(error, name, "is an empty list; omit the parameter instead")
    return names


def check_flag(name: str, value: object) -> bool:
    """
    Return a flag that is given as a bool, or as text from a template.

    Errors are those of :func:`check_text`.
    """
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise _wrong(CustodyRequestError, name, f"must be True or False, not {describe(value)}; nothing is sent")
    return value


def check_seconds(name: str, value: object, error: type[CustodyError] = CustodyRequestError) -> float:
    """
    Return a number of seconds, from zero to :data:`MAX_SECONDS`.

    Parameters and errors are those of :func:`check_text`.
    """
    if not _is_number(value) or not 0 <= value <= MAX_SECONDS:  # type: ignore[operator]
        raise _wrong(error, name, f"must be a number of seconds, not {describe(value)}")
    return float(value)  # type: ignore[arg-type]


def check_time(name: str, value: object, error: type[CustodyError] = CustodyRequestError) -> float:
    """Return a Unix time in seconds; parameters and errors are those of :func:`check_text`."""
    if not _is_number(value) or not 0 <= value < 1e12:  # type: ignore[operator]
        raise _wrong(error, name, f"must be a Unix time in seconds, not {describe(value)}")
    return float(value)  # type: ignore[arg-type]


def plain_names(value: object) -> Any:
    """
    Return names as a list, which can be serialized.

    Text, such as a template, and other values are returned unchanged.

    A set is sorted, because its order differs between processes, and Airflow identifies a watcher by its arguments.
    """
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)) else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_missing(value: object) -> bool:
    """
    Tell whether a value is None, or one of the texts to which a template renders None: ``None`` or ``null``.
    """
    return value is None or (isinstance(value, str) and str.__str__(value).strip() in _RENDERED_NONE)


def refuse_missing(name: str, value: object, *, advice: str = "") -> None:
    """
    Refuse a value that is missing when the task runs.

    An upstream task or a template may have returned None.

    :param name: the parameter's name, as written in a DAG file.
    :param value: the parameter's value when the task runs.
    :param advice: advice about None, for the error.
    :raises CustodyRequestError: if the value is None, the text ``None`` or ``null``, or a list that contains one of
        these.
    """
    if value is None:
        why = "is None: check the DAG file, the template or the upstream task; nothing is sent"
        raise _wrong(CustodyRequestError, name, why + advice)
    if isinstance(value, str) and is_missing(value):
        why = f"is the text {str.__str__(value).strip()!r}: its template found no value; nothing is sent"
        raise _wrong(CustodyRequestError, name, why + advice)
    if isinstance(value, (list, tuple, set, frozenset)):
        for index, each in enumerate(value):
            if each is None or isinstance(each, str):
                # Give no position for a member of a set, because sets have no order.
                refuse_missing(name if isinstance(value, (set, frozenset)) else f"{name}[{index}]", each)
