"""
Control a sandbox by calling methods of its stores over HTTP. The real service has no such control.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import requests
from fastapi import APIRouter, Request, Response
from pydantic import validate_call

from airflow_custody.sandbox.errors import SandboxError, ServiceError, invalid, not_found
from airflow_custody.sandbox.faults.store import FaultStore
from airflow_custody.sandbox.health.store import HealthStore
from airflow_custody.sandbox.request_log import RequestLog
from airflow_custody.sandbox.rules.store import RuleStore
from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.users.store import UserStore
from airflow_custody.sandbox.users.tokens import TokenStore
from airflow_custody.sandbox.web import ServiceDep
from airflow_custody.sandbox.webhooks.calls import CallStore
from airflow_custody.sandbox.webhooks.store import WebhookStore
from airflow_custody.sandbox.whitelist.signers import SignerStore
from airflow_custody.sandbox.whitelist.store import WhitelistStore

P = ParamSpec("P")
R = TypeVar("R")

_TIMEOUT = 30.0
#: The methods of stores that can be called, by name.
_METHODS: dict[str, Callable[..., Any]] = {}


def _remote(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[SandboxControl, P], R]:
    """Return a method that calls a store's method in the sandbox."""
    signature = inspect.signature(method)
    _METHODS[method.__name__] = method

    @functools.wraps(method)
    def call(self: SandboxControl, /, *args: P.args, **options: P.kwargs) -> R:
        arguments = signature.bind(self, *args, **options).arguments
        del arguments["self"]
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(parameter.name, {})
        result: R = self.send(method.__name__, arguments)
        return result

    return call


class SandboxControl:
    """
    Controls a sandbox, in this process or another.

    A failed call raises :class:`SandboxError`. Each method except ``send`` and ``close`` is also a route,
    ``POST /sandbox/<name>``. The route requires the arguments as a JSON object, and the header
    ``Content-Type: application/json``.

    :param url: URL of the sandbox, such as ``http://127.0.0.1:43121``.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        # Do not use a proxy or ~/.netrc, because the sandbox is local.
        self._session.trust_env = False

    about = _remote(Service.about)
    reset = _remote(Service.reset)
    configure = _remote(State.configure)

    set_health = _remote(HealthStore.set_health)
    set_health_response = _remote(HealthStore.set_health_response)
    update_health = _remote(HealthStore.update_health)

    add_user = _remote(UserStore.add_user)
    add_token = _remote(TokenStore.add_token)
    revoke_tokens = _remote(TokenStore.revoke_tokens)
    add_api_key = _remote(TokenStore.add_api_key)

    set_approvers = _remote(RuleStore.set_approvers)
    pins = _remote(RuleStore.pins)

    whitelist_requests = _remote(WhitelistStore.whitelist_requests)
    change_whitelist_request = _remote(WhitelistStore.change_whitelist_request)
    set_whitelist_status = _remote(WhitelistStore.set_whitelist_status)
    set_whitelist_age = _remote(WhitelistStore.set_whitelist_age)
    set_whitelist_metadata = _remote(WhitelistStore.set_whitelist_metadata)
    set_whitelist_envelope = _remote(WhitelistStore.set_whitelist_envelope)
    add_whitelist_requests = _remote(SignerStore.add_whitelist_requests)
    sign_whitelist_requests = _remote(SignerStore.sign_whitelist_requests)
    add_signers = _remote(SignerStore.add_signers)
    private_keys = _remote(SignerStore.private_keys)

    webhooks = _remote(WebhookStore.webhooks)
    add_webhook = _remote(WebhookStore.add_webhook)
    add_webhook_call = _remote(CallStore.add_webhook_call)
    add_webhook_calls = _remote(CallStore.add_webhook_calls)
    send_event = _remote(CallStore.send_event)

    add_fault = _remote(FaultStore.add_fault)
    faults = _remote(FaultStore.faults)
    clear_faults = _remote(FaultStore.clear_faults)
    request_log = _remote(RequestLog.request_log)
    clear_request_log = _remote(RequestLog.clear_request_log)

    def send(self, name: str, arguments: Mapping[str, object]) -> Any:
        """
        Call a method in the sandbox, and return its result.

        :param name: the method's name.
        :param arguments: the arguments by name, as JSON data.
        """
        url = f"{self.url}/sandbox/{name}"
        try:
            response = self._session.post(url, json=arguments, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise SandboxError(f"no response from the sandbox at {url}: {error}") from error
        try:
            content = response.json()
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise SandboxError(f"the response from {url} is not from a sandbox (status {response.status_code})")
        if not response.ok:
            raise SandboxError(f"{name}: {content.get('message', response.status_code)}")
        return content.get("result")

    def close(self) -> None:
        """Close the connection to the sandbox."""
        self._session.close()


router = APIRouter()
_validated = functools.cache(validate_call)


@router.post("/{name}")
async def call(request: Request, service: ServiceDep, name: str) -> Response:
    """Call a method of a store. For tests only, so without authentication."""
    if name not in _METHODS:
        raise not_found(f"control {name}")
    # Require JSON, because a web page cannot send it to another server without a preflight request.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ServiceError(415, "the control requires JSON: send the header 'Content-Type: application/json'")
    try:
        arguments = json.loads(await request.body() or b"{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise invalid("the arguments must be a JSON object")
    parts = (service, *vars(service).values())
    part = next(each for each in parts if getattr(type(each), name, None) is _METHODS[name])
    result = _validated(_METHODS[name])(part, **arguments)
    # Escape all non-ASCII characters, because a test may have sent half of a surrogate pair, which UTF-8 cannot encode.
    return Response(json.dumps({"result": result}), media_type="application/json")
