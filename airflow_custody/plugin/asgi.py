"""The types of an ASGI app, and the path of the pages. Operators import this, so nothing heavy is imported here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: The path at which the pages are mounted, below Airflow's own address.
PATH = "/custody"
