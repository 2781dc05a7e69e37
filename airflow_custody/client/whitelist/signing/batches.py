"""Progress of batches of requests, for the log and for errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import count, count_of, lines, name_some


def same_texts(hashes: Mapping[str, str]) -> list[str]:
    """
    Name the requests with the same text.

    The service may list one request under two ids.

    :param hashes: the hash of each request's text, by id.
    :return: for each text that several requests have, a text with the ids of these requests.
    """
    by_hash: dict[str, list[str]] = {}
    for id_, hash_ in hashes.items():
        by_hash.setdefault(hash_, []).append(id_)
    return [name_some(ids) for ids in by_hash.values() if len(ids) > 1]


class BatchProgress:
    """
    The progress of batches.

    A batch is done completely, or not at all. A single batch is not mentioned in the log or in errors.

    :param verb: participle of the operation: ``signed``, ``rejected``.
    :param batches: the ids of the requests in each batch.
    :param log: the log for messages about progress.
    """

    def __init__(self, verb: str, batches: Sequence[Sequence[str]], log: logging.Logger) -> None:
        self._verb = verb
        self._batches = batches
        self._log = log
        self._total = sum(map(len, batches))
        #: The number of requests that are done.
        self.done = 0

    def done_before(self, number: int) -> None:
        """Count a batch that needs no operation in this try."""
        self.done += len(self._batches[number])

    def done_now(self, number: int) -> None:
        """Count and log a batch that this try has done."""
        self.done_before(number)
        if len(self._batches) > 1:
            counted = count_of(self.done, self._total, "request")
            self._log.info("Batch %d of %d: %s %s.", number + 1, len(self._batches), counted, self._verb)

    @contextmanager
    def failing_in(self, number: int) -> Iterator[None]:
        """Add the failed batch and the progress to an error."""
        try:
            yield
        except CustodyError as error:
            if len(self._batches) > 1:
                ids = self._batches[number]
                words = (
                    f"This was batch {number + 1} of {len(self._batches)}: {count(len(ids), 'request')}, from {ids[0]} "
                    f"to {ids[-1]}. {count_of(self.done, self._total, 'request')} already {self._verb}."
                )
                if self.done:
                    words += " A later try continues with the remaining requests."
                error.advice = lines(words, error.advice)
            raise
