"""
Helpers for signing or rejecting requests in batches.

They report the progress in the log and in errors, and find requests with the same text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import count, count_of, lines, name_some

Batches = Sequence[Sequence[str]]


def same_texts(hashes: Mapping[str, str]) -> list[str]:
    """
    Name the requests with the same text.

    The service may list one request under two ids.

    :param hashes: the hash of each request's text, by id.
    :return: for each text that several requests share, the ids of these requests, joined for a message.
    """
    by_hash: dict[str, list[str]] = {}
    for id_, hash_ in hashes.items():
        by_hash.setdefault(hash_, []).append(id_)
    return [name_some(ids) for ids in by_hash.values() if len(ids) > 1]


def log_progress(log: logging.Logger, batches: Batches, number: int, done: int, verb: str) -> None:
    """
    Log that a batch is done, if there are several.

    :param log: the log.
    :param batches: the ids of the requests in each batch.
    :param number: the index of the batch.
    :param done: the number of requests that are done, including those of this batch.
    :param verb: participle of the operation: ``signed``, ``rejected``.
    """
    if len(batches) > 1:
        counted = count_of(done, sum(map(len, batches)), "request")
        log.info("Batch %d of %d: %s %s.", number + 1, len(batches), counted, verb)


@contextmanager
def failing_in(batches: Batches, number: int, done: int, verb: str) -> Iterator[None]:
    """
    If there are several batches, add the failed batch and the number of finished requests to an error.

    A batch is done completely, or not at all.

    :param batches: the ids of the requests in each batch.
    :param number: the index of the batch.
    :param done: the number of requests that are done.
    :param verb: participle of the operation: ``signed``, ``rejected``.
    """
    try:
        yield
    except CustodyError as error:
        if len(batches) == 1:
            raise
        ids = batches[number]
        words = (
            f"This was batch {number + 1} of {len(batches)}: {count(len(ids), 'request')}, from {ids[0]} to {ids[-1]}. "
            f"{count_of(done, sum(map(len, batches)), 'request')} already {verb}."
        )
        if done:
            words += " A later try continues with the remaining requests."
        raise error.with_facts(advice=lines(words, error.advice)) from None
