"""Read the expected contents of whitelisting requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from airflow_custody.client.arguments import describe, refuse_missing
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.whitelist.ids import check_request_id, fetch_items
from airflow_custody.client.whitelist.models import WhitelistRequest


def expected_by_id(ids: Sequence[str], expected: Any, *, consequence: str) -> dict[str, WhitelistRequest]:
    """
    Return the expected content of each request, by its id.

    :param ids: the requests' ids.
    :param expected: the create task's ``request``, a list of such values, or the same fields written by hand. Each
        entry needs the key ``id``, unless there is only one request and one entry.
    :param consequence: the effect of an error, such as "nothing was signed". Each error message ends with it.
    :raises CustodyRequestError: if ``expected`` has another form, or is empty.
    """
    refuse = partial(_refusal, consequence=consequence)
    entries = _entries_of(expected, refuse)
    only_id = ids[0] if len(ids) == len(entries) == 1 else None
    found: dict[str, WhitelistRequest] = {}
    for entry in entries:
        number, fields = _read_entry(entry, only_id, refuse)
        if number in found:
            raise refuse("names an id twice")
        try:
            found[number] = WhitelistRequest(**fields)
        except CustodyRequestError as error:
            raise refuse(f"is wrong for request {number}: {error.message}") from None
    return found


def _refusal(why: str, advice: str | None = None, *, consequence: str) -> CustodyRequestError:
    return CustodyRequestError(f"'expected' {why}; {consequence}", advice=advice, code="parameter-wrong")


def _entries_of(expected: Any, refuse: Callable[..., CustodyRequestError]) -> Sequence[Any]:
    if isinstance(expected, (bytes, bytearray)) or not isinstance(expected, Iterable):
        raise refuse(f"must be the 'request' of a create task, or a list of such values, not {describe(expected)}")
    entries = [expected] if isinstance(expected, Mapping) else fetch_items(expected)
    if isinstance(expected, str) or not any(entries):
        raise refuse("is empty: it must have the content of the requests (did a template render to nothing?)")
    return entries


def _read_entry(
    entry: Any, only_id: str | None, refuse: Callable[..., CustodyRequestError]
) -> tuple[str, dict[str, Any]]:
    """
    Return the id and the fields of an entry.

    If there is only one request, an entry without an id is for that request.
    """
    if not isinstance(entry, Mapping) or not all(isinstance(name, str) for name in entry):
        raise refuse("must contain only the 'request' of create tasks")
    fields = dict(entry)
    for name, value in fields.items():
        refuse_missing(f"expected[{name!r}]", value, advice=". Leave the key out if the request has no such value")
    number = fields.pop("id", only_id)
    if number is None:
        raise refuse(
            "has an entry without an id",
            "With several requests, each entry of the list needs the key 'id'.",
        )
    return check_request_id(number, "an id in 'expected'"), fields
