"""The ids of whitelisting requests: checking them, and cutting them into batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard, TypeVar

from airflow_custody.client.arguments import MAX_ID, MAX_PAGE_SIZE, describe
from airflow_custody.client.errors import CustodyRequestError
from airflow_custody.client.text import count, name_some, read_number

T = TypeVar("T")


def check_request_id(value: object, name: str = "the id of a whitelisting request") -> str:
    """
    Check the id of a whitelisting request.

    The id must be a number, because it becomes part of URLs, and ids are sorted by number before they are signed.

    :param value: the id, a decimal number of at most 64 bits, as text or as an int.
    :param name: the value's name in errors.
    :return: the id as text.
    :raises CustodyRequestError: if the value is not such a number.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID:
        return int.__repr__(value)
    if isinstance(value, str) and read_number(value, MAX_ID) is not None:
        return str.__str__(value)
    raise CustodyRequestError(f"{name} must be a whole number, like '3711', not {describe(value)}; nothing is sent")


def check_request_ids(
    values: object,
    name: str = "request_ids",
    *,
    limit: int | None = MAX_PAGE_SIZE,
    merge: bool = False,
    may_be_empty: bool = False,
) -> list[str]:
    """
    Check the ids of several requests.

    :param values: one id of a whitelisting request, or several.
    :param name: the name of the values in errors.
    :param limit: maximum number of ids; None: no limit. Default 100, the size of a batch.
    :param merge: whether repeated ids count once. Default False: they are refused.
    :param may_be_empty: whether an empty list is allowed. Default False.
    :return: the ids in ascending numeric order, in which they are signed.
    :raises CustodyRequestError: if there are no ids or too many, or an id is not a number or is repeated.
    """
    given = _check_each_id(values, name)
    ids = sorted(dict.fromkeys(given) if merge else given, key=int)
    if not ids and not may_be_empty:
        raise CustodyRequestError(f"{name} is an empty list: there are no ids; nothing is sent")
    repeated = [str(each) for each, times in Counter(map(int, ids)).items() if times > 1]
    if repeated and not merge:
        raise CustodyRequestError(f"{name}: the id {name_some(repeated)} is repeated; nothing is sent")
    if limit is not None and len(ids) > limit:
        raise CustodyRequestError(
            f"there are {count(len(ids), 'id')}, and a batch holds at most {limit}; nothing is sent"
        )
    return ids


def _check_each_id(values: object, name: str) -> list[str]:
    if isinstance(values, (str, int)):
        return [check_request_id(values, name)]
    if is_list_of_ids(values):
        return [check_request_id(each, f"{name}[{index}]") for index, each in enumerate(fetch_items(values))]
    raise CustodyRequestError(f"{name} must be one id or a list of ids, not {describe(values)}; nothing is sent")


def is_list_of_ids(value: object) -> TypeGuard[Iterable[object]]:
    """Tell whether a value is any kind of list of ids, and not a single id."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray, Mapping))


def fetch_items(values: Iterable[T]) -> list[T]:
    """Return the items of a list. A lazy list, such as a mapped task's XCom, is fetched in one call."""
    return list(values[:]) if isinstance(values, Sequence) else list(values)


def cut_into_batches(ids: Sequence[str]) -> list[list[str]]:
    """Return the ids in batches of at most 100. The same ids in the same order always form the same batches."""
    return [list(ids[start : start + MAX_PAGE_SIZE]) for start in range(0, len(ids), MAX_PAGE_SIZE)]
