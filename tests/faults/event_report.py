"""What Airflow has seen of the webhook calls that were written while things broke: the table, and what went wrong."""

from __future__ import annotations

from event_faults import CUT_OFF, ROWS, kept_unseen
from event_journal import Journal, Seen
from event_names import CONSUMERS, FIRST, READ, SECOND, TOO_EARLY

# Calls that are named for each fault and consumer.
_MAX_NAMED = 5
_HEAD = ("Fault", "Calls", "Seen by watchers", "twice", "Seen by the task", "twice", "Order")
_COMPARISON = "for comparison: the cursor is saved before the event"


def lost(journal: Journal, seen: dict[str, Seen], consumer: str) -> list[str]:
    """Return the ids of the calls that a consumer has not seen, but for those of the journal that was cut off."""
    return [
        call_id
        for call_id, call in journal.calls.items()
        if call.row != CUT_OFF and journal.is_for(call_id, consumer) and call_id not in seen[consumer].times
    ]


def evaluate(journal: Journal, seen: dict[str, Seen]) -> list[str]:
    """Return in words what went wrong."""
    failures: dict[tuple[str, str], list[str]] = {}
    for consumer, name in CONSUMERS.items():
        mine = seen[consumer]
        for call_id in [*lost(journal, seen, consumer), *kept_unseen(journal, seen, consumer)]:
            failures.setdefault((journal.calls[call_id].row, consumer), []).append(f"{name} never saw call {call_id}")
        for call_id, newer in mine.disorder.items():
            text = f"{name} saw call {call_id} after call {newer}, which is newer"
            failures.setdefault((journal.calls[call_id].row, consumer), []).append(text)
        unknown = [f"{name} saw call {call_id}, which was not written" for call_id in mine.times.keys() - journal.calls]
        if unknown:
            failures["all", consumer] = unknown
        if not mine.gaps:
            failures.setdefault((CUT_OFF, consumer), []).append(f"{name} did not report it")
    if not lost(journal, seen, TOO_EARLY):
        failures[_COMPARISON, TOO_EARLY] = ["no call was lost, so this run proves nothing"]
    lines = []
    for (row, _), texts in failures.items():
        lines += [f"{row}: {text}" for text in texts[:_MAX_NAMED]]
        if len(texts) > _MAX_NAMED:
            lines.append(f"{row}: ... and so {len(texts) - _MAX_NAMED} more")
    return lines


def print_table(journal: Journal, seen: dict[str, Seen]) -> None:
    """Print the table as Markdown, with aligned columns."""
    rows: list[tuple[str, ...]] = [_HEAD, ("",) * len(_HEAD)]
    for row in ROWS:
        call_ids = [call_id for call_id, call in journal.calls.items() if call.row == row]
        watchers = [FIRST if journal.is_for(call_id, FIRST) else SECOND for call_id in call_ids]
        by_watchers = [seen[name].times.get(call_id, 0) for name, call_id in zip(watchers, call_ids, strict=True)]
        by_task = [seen[READ].times.get(call_id, 0) for call_id in call_ids]
        in_order = not any(call_id in seen[consumer].disorder for consumer in CONSUMERS for call_id in call_ids)
        order = "WRONG" if not in_order else "gap reported" if row == CUT_OFF else "kept"
        rows.append((row, str(len(call_ids)), *_counts(by_watchers), *_counts(by_task), order))
    call_ids = [call_id for call_id, call in journal.calls.items() if call.row != CUT_OFF]
    times = [seen[TOO_EARLY].times.get(call_id, 0) for call_id in call_ids]
    rows.append((_COMPARISON, str(len(call_ids)), *_counts(times), "", "", f"{times.count(0)} LOST"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for cells in rows:
        fill = " " if any(cells) else "-"
        print("| " + " | ".join(cell.ljust(width, fill) for cell, width in zip(cells, widths, strict=True)) + " |")


def _counts(times: list[int]) -> tuple[str, str]:
    """Return how many calls were seen, and how many of them more than once."""
    return str(sum(each > 0 for each in times)), str(sum(each > 1 for each in times))
