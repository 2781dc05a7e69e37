"""
The plugin's pages about the custody service, within Airflow's own.

Operators and every Airflow process import this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: The path at which the pages are mounted, below Airflow's own address.
PATH = "/custody"
