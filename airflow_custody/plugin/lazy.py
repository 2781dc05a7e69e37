"""An ASGI app that is made when it is first called."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[_Message]]
Send = Callable[[_Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class LazyApp:
    """
    An ASGI app that imports and makes the real one at the first call.

    :param module: name of the module that makes it.
    :param function: name of the function there that returns it.
    """

    def __init__(self, module: str, function: str) -> None:
        self._module = module
        self._function = function
        self._app: App | None = None
        self._lock = threading.Lock()

    def _make(self) -> App:
        from importlib import import_module

        with self._lock:
            if self._app is None:
                self._app = getattr(import_module(self._module), self._function)()
            return self._app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if self._app is None:
            from asyncio import to_thread

            # The imports take too long for the event loop, which serves all of Airflow.
            await to_thread(self._make)
        await (self._app or self._make())(scope, receive, send)
