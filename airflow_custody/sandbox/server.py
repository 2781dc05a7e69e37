"""Run the sandbox on a thread of this process."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import socket
import ssl
import threading
from contextlib import suppress
from types import TracebackType

import uvicorn

from airflow_custody.sandbox.access import Service
from airflow_custody.sandbox.app import build_app
from airflow_custody.sandbox.control import SandboxControl
from airflow_custody.sandbox.errors import SandboxError
from airflow_custody.sandbox.gate import Gate
from airflow_custody.sandbox.pauses import Pauses
from airflow_custody.sandbox.state import State
from airflow_custody.sandbox.transport import Connections

_Path = str | os.PathLike[str]

# Longer than a client lets a connection rest, so that it is not closed under a call.
_KEEP_ALIVE = 75


class Sandbox:
    """Run a stand-in for the custody service; a context manager.

    :param host: address to listen on. The control routes have no authentication: keep it a loopback address.
    :param port: port to listen on; 0 takes a free one, and keeps it when the sandbox is started again.
    :param token: token that has every role; by default the one kept in the state, else a new one.
    :param state: file that keeps the state; by default it is kept in memory until the sandbox stops.
    :param certfile: certificate chain in PEM (and key, unless ``keyfile`` is given): speak HTTPS.
    :param client_ca: PEM file; ask for client certificates and accept those signed by these authorities.
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
    ) -> None:
        if certfile is None and (keyfile is not None or client_ca is not None):
            raise SandboxError("keyfile and client_ca need a certfile")
        self.host = host
        self.port = port
        self.token = token or ""
        self.url = ""
        self._state_path = state
        self._certfile = certfile
        self._keyfile = keyfile
        self._client_ca = client_ca
        self._control: SandboxControl | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def control(self) -> SandboxControl:
        """Drive the sandbox from tests."""
        if self._control is None:
            raise SandboxError("the sandbox is not running")
        return self._control

    def connection(self) -> str:
        """Describe the sandbox as an Airflow connection, in JSON."""
        return json.dumps({"conn_type": "custody", "host": self.url, "password": self.token})

    def start(self) -> Sandbox:
        """Start serving; when this returns, calls are answered."""
        if self._thread is not None:
            raise SandboxError("the sandbox is running already")
        self._stopping, self._ready, self._failure = asyncio.Event(), threading.Event(), None
        state = State(self._state_path)
        sockets: list[socket.socket] = []
        try:
            service = Service(state)
            self.token = service.tokens.main(self.token or None)
            connections = Connections()
            app = Gate(
                build_app(service),
                faults=service.faults,
                received=service.received,
                connections=connections,
                pauses=service.pauses,
            )
            sockets.append(_listen(self.host, self.port))
            servers = [self._server(app, service, connections, encrypted=self._certfile is not None)]
            if self._certfile is not None:
                # Tests in this process need neither trust the certificate nor have one of their own.
                sockets.append(_listen("127.0.0.1", 0))
                servers.append(self._server(app, service, connections, encrypted=False))
            self._thread = threading.Thread(
                target=self._run,
                args=(servers, sockets, state),
                name="custody-sandbox",
                daemon=True,
            )
            self._thread.start()
        except BaseException:
            self._thread = None
            for one in sockets:
                one.close()
            state.close()
            raise
        self._ready.wait()
        if self._failure is not None:
            self.stop()
            raise SandboxError(f"the sandbox did not start: {self._failure}") from self._failure
        self.port = sockets[0].getsockname()[1]
        self.url = f"{'http' if self._certfile is None else 'https'}://{_reachable(self.host)}:{self.port}"
        self._control = SandboxControl(
            self.url if self._certfile is None else f"http://127.0.0.1:{sockets[1].getsockname()[1]}"
        )
        return self

    def stop(self) -> None:
        """Stop serving at once, calls under way included; does nothing when it is not running."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._loop is not None:
            # The loop is closed already if it failed.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
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

    def _server(self, app: Gate, service: Service, connections: Connections, *, encrypted: bool) -> _Server:
        config = uvicorn.Config(
            app,
            http=connections.protocol(),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            # The two ends of a connection must stay what they are, or it could not be found.
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE,
        )
        if encrypted:
            config.ssl_certfile = self._certfile
            config.ssl_keyfile = self._keyfile
            if self._client_ca is not None:
                config.ssl_ca_certs = self._client_ca
                config.ssl_cert_reqs = ssl.CERT_REQUIRED
        try:
            # Here and not on the thread, where nobody would see what is wrong with the files.
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise SandboxError(f"cannot use the certificate files: {error}") from error
        return _Server(config, service.pauses, connections, self._stopping)

    def _run(self, servers: list[_Server], sockets: list[socket.socket], state: State) -> None:
        try:
            asyncio.run(self._serve(servers, sockets))
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error
        finally:
            for one in sockets:
                one.close()
            state.close()
            self._ready.set()

    async def _serve(self, servers: list[_Server], sockets: list[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        serving = [
            asyncio.create_task(server.serve(sockets=[one])) for server, one in zip(servers, sockets, strict=True)
        ]
        while not all(server.started for server in servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.001)
        self._ready.set()
        await self._stopping.wait()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*serving)


class _Server(uvicorn.Server):
    """Stop at once where uvicorn would look ten times a second and wait for calls to end."""

    def __init__(
        self, config: uvicorn.Config, pauses: Pauses, connections: Connections, stopping: asyncio.Event
    ) -> None:
        super().__init__(config)
        self._pauses = pauses
        self._connections = connections
        self._stopping = stopping

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
            if self._stopping.is_set():
                return

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Stop accepting, and let what was accepted a moment ago arrive: asyncio cannot close a listener under it.
        loop = asyncio.get_running_loop()
        for listener in self.servers:
            for one in listener.sockets:
                with suppress(NotImplementedError):
                    loop.remove_reader(one.fileno())
        for _ in range(5):
            await asyncio.sleep(0)
        for listener in self.servers:
            listener.close()
        self._pauses.close()
        self._connections.abort_all()
        if self.server_state.tasks:
            await asyncio.wait(list(self.server_state.tasks), timeout=1.0)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        # The system would take it modulo 65536.
        raise SandboxError(f"cannot listen on {host} port {port}: no such port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, ValueError) as error:
        raise SandboxError(f"cannot listen on {host} port {port}: {error}") from error
    try:
        # A port that was used a moment ago is free; one that is in use is still refused.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SandboxError(f"cannot listen on {host} port {port}: {error}") from error
    return listener


def _reachable(host: str) -> str:
    """Write a host for a URL; one that stands for all addresses is reached over the loopback one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"
