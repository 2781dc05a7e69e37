"""
The Custody page in Airflow's UI, and the links from tasks to it.

Every Airflow process imports this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: The path of the pages below Airflow's own address.
PATH = "/custody"
