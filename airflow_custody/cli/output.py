"""What commands print: data to standard output, messages to standard error."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from airflow_custody.client.errors import CustodyError
from airflow_custody.client.text import sanitize

_MAX_MESSAGE = 4000


class Output:
    """
    Where a command prints its data, and as what.

    :param form: ``table``, ``json``, ``yaml`` or what else the command offers.
    :param stream: where it is printed.
    """

    def __init__(self, form: str, stream: TextIO) -> None:
        self.form = form
        self._stream = stream
        #: Whether the reader has gone, as ``head`` does.
        self.closed = False

    def data(self, data: Any, table: Iterable[str], *, long: str = "") -> None:
        """
        Print data.

        :param data: plain JSON data, for JSON and YAML. Both are printed in ASCII, what is not is escaped.
        :param table: its lines for people, printed otherwise.
        :param long: a key whose value, a dict of lists, is printed in JSON with one element of a list on each line:
            indented more, it would become many times as long. Default: none.
        """
        if self.form == "json" and isinstance(data.get(long) if long else None, dict):
            rest = _to_json({name: value for name, value in data.items() if name != long}, indent=2)
            self.text(f"{rest[:-2]},\n  {json.dumps(long)}: {_in_lines(data[long])}\n}}")
            return
        if self.form == "json":
            self.text(_to_json(data, indent=2))
        elif self.form == "yaml":
            self.text(to_yaml(data))
        else:
            self.text("\n".join(table))

    def entry(self, data: Any, line: str) -> None:
        """Print one of several pieces of data: JSON in a line, YAML as a document."""
        if self.form == "json":
            self.text(_to_json(data))
        elif self.form == "yaml":
            self.text("---\n" + to_yaml(data))
        else:
            self.text(line)

    def text(self, text: str) -> None:
        """Print a text, with one line break at its end."""
        if self.closed or not text:
            return
        text = text.rstrip("\n") + "\n"
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                # A file with other characters in it would be another file.
                self._stream.buffer.write(text.encode("utf-8", "backslashreplace"))
            self._stream.flush()
        except BrokenPipeError:
            self.closed = True
            discard(self._stream)
        except OSError as error:
            # What is left in the buffer would fail again when Python ends.
            discard(self._stream)
            raise OutputError(error) from None


class OutputError(CustodyError):
    """
    Raised when standard output cannot be written.

    :param error: why; None: it is closed.
    """

    def __init__(self, error: OSError | None = None) -> None:
        reason = "it is closed" if error is None else sanitize(error.strerror or error, 200)
        super().__init__(f"standard output cannot be written: {reason}", code="usage-wrong")


def discard(stream: TextIO) -> None:
    """Have all that is still printed go nowhere: Python would complain of it when it ends."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


def _to_json(data: Any, indent: int | None = None) -> str:
    """Return plain JSON data as JSON, in ASCII. A number that JSON has not is left out, and that is said."""
    try:
        return json.dumps(data, indent=indent, allow_nan=False)
    except ValueError:
        message("null stands for a number that JSON does not have")
        return json.dumps(_without_infinite(data), indent=indent, allow_nan=False)


def _in_lines(data: Mapping[str, Iterable[Any]]) -> str:
    lists = (
        f"    {json.dumps(name)}: [\n" + ",\n".join(f"      {_to_json(each)}" for each in found) + "\n    ]"
        if found
        else f"    {json.dumps(name)}: []"
        for name, found in data.items()
    )
    return "{\n" + ",\n".join(lists) + "\n  }"


def _without_infinite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_infinite(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_without_infinite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def to_yaml(data: Any) -> str:
    """Return plain JSON data as YAML, in ASCII."""
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False, default_flow_style=False, width=120))


def message(text: object) -> None:
    """Print a message on standard error, on one line."""
    if sys.stderr is None:
        return
    try:
        line = text.shorten(_MAX_MESSAGE) if isinstance(text, CustodyError) else sanitize(text, _MAX_MESSAGE)
        print(f"custody: {line}", file=sys.stderr)
    except OSError:
        discard(sys.stderr)


@contextmanager
def keep_clean(stream: TextIO) -> Iterator[None]:
    """Have everything but a command's data go to standard error: Airflow logs to standard output."""
    moved: list[logging.StreamHandler[Any]] = []
    # Handlers that look for standard output each time find the other stream from here on.
    with redirect_stdout(sys.stderr):
        for name in ("", *logging.root.manager.loggerDict):
            for handler in logging.getLogger(name).handlers:
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(sys.stderr)
                    moved.append(handler)
        try:
            yield
        finally:
            for handler in moved:
                handler.setStream(stream)
