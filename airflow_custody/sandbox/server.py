"""Run the sandbox as a server on a thread of this process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from types import TracebackType

import uvicorn
from fastapi import FastAPI

from airflow_custody.sandbox.control import SandboxControl
from airflow_custody.sandbox.control import router as control_routes
from airflow_custody.sandbox.errors import SandboxError
from airflow_custody.sandbox.faults.middleware import FaultMiddleware
from airflow_custody.sandbox.guard import PageGuard
from airflow_custody.sandbox.health import routes as health
from airflow_custody.sandbox.offer import Offer
from airflow_custody.sandbox.rules import routes as rules
from airflow_custody.sandbox.service import Service
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.tenant import routes as tenant
from airflow_custody.sandbox.users import routes as users
from airflow_custody.sandbox.web import add_error_handlers
from airflow_custody.sandbox.webhooks import routes as webhooks
from airflow_custody.sandbox.whitelist import routes as whitelist
from airflow_custody.sandbox.wire import ROOT

_Path = str | os.PathLike[str]

# How long idle connections are kept. Clients keep them for less time, so the server never closes a connection just
# before a client reuses it.
_KEEP_ALIVE_SECONDS = 75


class Sandbox:
    """
    A stand-in for the custody service, used as a context manager.

    :param host: address to listen on. The control routes need no authentication: use a loopback address.
    :param port: port to listen on. 0 chooses a free port, and restarting the sandbox reuses it.
    :param token: token with all roles. Default: the token in the state, or else a random token.
    :param state: file for the state, which only its owner can read. Default: in memory, until the sandbox stops.
    :param certfile: PEM file with the certificate chain; enables HTTPS.
    :param keyfile: PEM file with the private key. Default: the key is in ``certfile``.
    :param client_ca: PEM file with certificate authorities. Clients must then have a certificate issued by one of them.
    :param allowed_hosts: further names of this machine that clients may use, besides ``localhost`` and ``host``.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        state: _Path | None = None,
        certfile: _Path | None = None,
        keyfile: _Path | None = None,
        client_ca: _Path | None = None,
        allowed_hosts: Iterable[str] = (),
    ) -> None:
        needs_certfile = keyfile is not None or client_ca is not None
        if needs_certfile and certfile is None:
            raise SandboxError("keyfile and client_ca require a certfile")
        self.host = host
        self.port = port
        self.token = token or ""
        self.url = ""
        self._state_path = state
        self._certfile = certfile
        self._keyfile = keyfile
        self._client_ca = client_ca
        self._allowed_hosts = tuple(allowed_hosts)
        self._control: SandboxControl | None = None
        self._thread: threading.Thread | None = None
        self._servers: list[_Server] = []

    @property
    def control(self) -> SandboxControl:
        """The control of the running sandbox."""
        if self._control is None:
            raise SandboxError("the sandbox is not running")
        return self._control

    def connection(self, *, pins: bool = False, **settings: object) -> str:
        """
        Return an Airflow connection to the sandbox, as JSON.

        :param pins: whether to add the super-administrators' public keys, so that signatures are verified.
        :param settings: more settings of the connection, such as ``effective_statuses="ACTIVE"`` for a sandbox with
            other ``status_words``.
        """
        extra = {**(self.control.pins() if pins else {}), **settings}
        more = {"extra": extra} if extra else {}
        return json.dumps({"conn_type": "custody", "host": self.url, "password": self.token, **more})

    def start(self) -> Sandbox:
        """Start the sandbox, and wait until it accepts calls."""
        if self._thread is not None:
            raise SandboxError("the sandbox is already running")
        with ExitStack() as opened:
            state = opened.enter_context(closing(State(self._state_path)))
            service = Service(state)
            self.token = service.tokens.set_main(self.token or None)
            sockets = [opened.enter_context(_listen(self.host, self.port))]
            servers = [self._server(service, encrypted=self._certfile is not None)]
            if self._certfile is not None:
                # Also listen on an unencrypted port, so that SandboxControl needs no certificates.
                sockets.append(opened.enter_context(_listen("127.0.0.1", 0)))
                servers.append(self._server(service, encrypted=False))
            # From here on, the thread closes the state and the sockets.
            arguments = (servers, sockets, opened.pop_all())
            thread = threading.Thread(target=_run, args=arguments, name="custody-sandbox", daemon=True)
        self._thread, self._servers = thread, servers
        thread.start()
        self.port, control_port = sockets[0].getsockname()[1], sockets[-1].getsockname()[1]
        while not all(server.started for server in servers):
            if not thread.is_alive():
                self.stop()
                raise SandboxError("the sandbox did not start")
            time.sleep(0.001)
        self.url = f"{'http' if self._certfile is None else 'https'}://{_url_host(self.host)}:{self.port}"
        self._control = SandboxControl(self.url if self._certfile is None else f"http://127.0.0.1:{control_port}")
        return self

    def stop(self) -> None:
        """Stop the sandbox, and abort calls in progress. If the sandbox is not running, do nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        for server in self._servers:
            server.should_exit = True
        thread.join()
        if self._control is not None:
            self._control.close()
            self._control = None

    def __enter__(self) -> Sandbox:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _server(self, service: Service, *, encrypted: bool) -> _Server:
        config = uvicorn.Config(
            PageGuard(
                FaultMiddleware(Offer(build_app(service), service.state), service), self.host, self._allowed_hosts
            ),
            http=service.connections.protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            # Disable this option, because it would change the addresses by which connections are found.
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            ssl_certfile=self._certfile if encrypted else None,
            ssl_keyfile=self._keyfile if encrypted else None,
            ssl_ca_certs=self._client_ca if encrypted else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if self._client_ca else ssl.CERT_NONE,
        )
        try:
            # Load the files here and not on the thread, so that the caller gets the error.
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise SandboxError(f"cannot use the certificate files: {error}") from error
        return _Server(config, service)


def connection_variables(connection: str, signers: Iterable[Mapping[str, str]] = ()) -> dict[str, str]:
    """
    Return the connections for the example DAGs, as environment variables.

    :param connection: ``custody_default``, as JSON.
    :param signers: signers, in the form that the control returns. Each adds a connection to the service, such as
        ``custody_first_signer``, and a connection with the key, such as ``custody_first_key``.
    """
    variables = {"AIRFLOW_CONN_CUSTODY_DEFAULT": connection}
    for each in signers:
        prefix = f"AIRFLOW_CONN_CUSTODY_{each['group'].upper()}"
        variables[f"{prefix}_SIGNER"] = json.dumps({**json.loads(connection), "password": each["token"]})
        key = {"conn_type": "generic", "extra": {"private_key": each["private_key"]}}
        variables[f"{prefix}_KEY"] = json.dumps(key)
    return variables


def build_app(service: Service) -> FastAPI:
    """Return the application: routes of the service and its control."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    for subject in (health, whitelist, rules, webhooks, users, tenant):
        app.include_router(subject.router, prefix=ROOT)
    app.include_router(control_routes, prefix="/sandbox")
    add_error_handlers(app)
    return app


class _Server(uvicorn.Server):
    """A uvicorn server that stops immediately, without waiting for calls to end."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Stop accepting connections. Before closing the listeners, let asyncio register the connections that were just
        # accepted.
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for listener in server.sockets:
                with suppress(NotImplementedError):
                    loop.remove_reader(listener.fileno())
        for _ in range(5):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        self._service.connections.close()
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=1.0)


def _run(servers: list[_Server], sockets: list[socket.socket], opened: ExitStack) -> None:
    """Serve until all servers are stopped; then close state and sockets."""

    async def serve() -> None:
        await asyncio.gather(*(each.serve([listener]) for each, listener in zip(servers, sockets, strict=True)))

    with opened:
        asyncio.run(serve())


def _listen(host: str, port: int) -> socket.socket:
    # Pass IPPROTO_TCP, because asyncio then disables Nagle's algorithm, which would delay each response.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Allow a port that was just released. Binding to a port in use still fails.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError, ValueError) as error:
        listener.close()
        raise SandboxError(f"cannot listen on {host} port {port}: {error}") from error
    return listener


def _url_host(host: str) -> str:
    """Return the host as in a URL; a wildcard address becomes loopback."""
    loopback = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return loopback.get(host, f"[{host}]" if ":" in host else host)
