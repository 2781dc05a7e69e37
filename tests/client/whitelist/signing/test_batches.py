"""The progress of batches: what is logged, and what an error says."""

from __future__ import annotations

import logging

import pytest

from airflow_custody.client.whitelist.signing.batches import BatchProgress


@pytest.mark.parametrize(
    ("sizes", "logged"),
    [
        ([3], []),
        ([100, 2], ["Batch 1 of 2: 100 of 102 requests are signed.", "Batch 2 of 2: 102 of 102 requests are signed."]),
    ],
    ids=["one batch", "two batches"],
)
def test_several_batches_are_logged_and_a_single_one_is_not(
    sizes: list[int], logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    batches = [[str(number) for number in range(size)] for size in sizes]
    progress = BatchProgress("signed", batches, logging.getLogger(__name__))
    with caplog.at_level(logging.INFO):
        for number in range(len(batches)):
            progress.done_now(number)
    assert caplog.messages == logged
    assert progress.done == sum(sizes)
