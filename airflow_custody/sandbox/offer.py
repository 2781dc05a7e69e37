"""Reject calls of operations that the service does not offer according to its settings."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from airflow_custody.sandbox.errors import error_body
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.web import json_response
from airflow_custody.sandbox.wire import ROOT

_CONTRACT = ("GET /health", "POST /whitelists/addresses", "PATCH /webhooks/{id}", "DELETE /webhooks/{id}")


class Offer:
    """
    A plain ASGI middleware that rejects calls of operations that the settings exclude, before anything else is checked.

    :param app: the application.
    :param state: the state, with the settings.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        refusal = self._refusal(scope["method"], path.removeprefix(ROOT)) if path.startswith(f"{ROOT}/") else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        await json_response(error_body(*refusal), refusal[0])(scope, receive, send)

    def _refusal(self, method: str, path: str) -> tuple[int, str] | None:
        """Return status and message of the rejection; None if the operation is offered."""
        settings = self._state.settings
        is_in_contract = any(_is_call_of(each, method, path) for each in _CONTRACT)
        is_missing = any(_is_call_of(each, method, path) for each in settings.not_offered)
        if is_missing or (settings.operations == "contract" and not is_in_contract):
            return 404, "Not Found"
        if any(_is_call_of(each, method, path) for each in settings.disabled):
            return 403, "This endpoint has been disabled"
        return None


def _is_call_of(operation: str, method: str, path: str) -> bool:
    """Tell whether a call is one of an operation, whose path may have parameters such as ``{id}``."""
    parts = (re.escape(each) for each in re.split(r"\{\w+\}", operation))
    return re.fullmatch("[^/]+".join(parts), f"{method} {path}") is not None
