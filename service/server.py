"""`serve`: listens at once, opens the engine and compiles the kernels meanwhile, and stops cleanly.

    start   socket bound, /livez 200 -> a thread: kernels of the tables compiled or in the cache, folder recovered, and for each of its
            views its kernels -> /readyz 200; then all other kernels
    reload  SIGHUP, with TLS -> certificate and key read again, for new connections
    end     SIGTERM or Ctrl-C -> no new connections, streams aborted -> current batches answered (those that get no turn in time are
            refused) -> engine closed -> status 0; status 1 if anything has failed, or if the end took too long and was cut short

A batch is on disk before it is acknowledged, so an end that takes too long is cut short without loss.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NoReturn, cast

import uvicorn

from livejoin.wire.log_lines import start_log
from service.access.admin_file import BadAdminFile, take_admin_token
from service.access.store import read_tokens
from service.api.app import create_app
from service.api.context import Context
from service.durability.database import refuse_other
from service.durability.folder import DamagedFolder, FolderInUse, reason
from service.instance import Instance
from service.protocol import ConnectionLimits, Protocol, allow_files
from service.settings import Settings, is_loopback
from service.tls import BadPair, Certificate
from service.trimming import give_back, use_one_allocator
from service.warming import EVERY_BATCH, Kernels, Unusable

QUIET = 1.0  # seconds without work after which free memory is returned
BACKLOG = 2048
TURNS = 4.0  # seconds for batches that wait for their turns, once the end has begun
PATIENCE = 6  # seconds for current answers
DEADLINE = 9.0  # seconds from the signal to the end of the process, whatever happens
KEEP_ALIVE = 75  # seconds for which an idle connection is kept
# Objects of finished requests have no reference cycles, except those of rejected and aborted requests: searching for cycles as often as
# Python does by default takes a tenth of a change's time. A search of 20,000 objects takes up to 5 ms, for which no thread runs Python.
COLLECTOR_THRESHOLDS = (5_000, 20, 80)
_ON_PURPOSE = re.compile("without completing response|^Cancel ")  # uvicorn's messages about answers that we abort
TICK = 0.1  # seconds between two calls of `on_tick`, uvicorn's

log = logging.getLogger("livejoin.server")


class Server(uvicorn.Server):
    """uvicorn's server, stopped by a signal, which first aborts open streams. `cut_short` is called if it does not end in time."""

    def __init__(
        self, config: uvicorn.Config, context: Context, limits: ConnectionLimits, certificate: Certificate | None,
        listening: Callable[[], None],
        cut_short: Callable[[], None],
    ) -> None:  # fmt: skip
        super().__init__(config)
        config.load()
        config.ssl = None if certificate is None else certificate.context
        self._context = context
        self._limits = limits
        self._certificate = certificate
        self._listening = listening
        self._ticked: float | None = None
        self._work: object = None  # what was published and read, when it was last asked
        self._quiet: float | None = None  # when there was last work, until memory is returned
        self.deadline = threading.Timer(DEADLINE, cut_short)
        self.deadline.daemon = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._context.attach(loop, self.server_state.tasks)
        if self._certificate is None or sockets is None:
            await super().startup(sockets)
        else:  # like uvicorn, but with the time limit of a head for a handshake, which none of our connections sees before its end
            made = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
            protocol = partial(made, config=self.config, server_state=self.server_state, app_state={})
            patience = self._limits.settings.head_time
            self._certificate.context.admit = lambda handshake: self._limits.admit(handshake, len(self.server_state.connections))
            begun = [
                loop.create_server(protocol, sock=one, ssl=self._certificate.context, backlog=BACKLOG, ssl_handshake_timeout=patience)
                for one in sockets
            ]
            self.servers = [await server for server in begun]
            self.started = True
        self._listening()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        context = self._context
        now = time.monotonic()
        self._limits.sweep(now, self.server_state.connections)
        if self._ticked is not None:
            context.loop_delays.observe(max(0.0, now - self._ticked - TICK))
        self._ticked = now
        if context.ready:
            engine = context.engine
            work = (engine.published.number, engine.readers.rows_read)
            if work != self._work:
                self._work, self._quiet = work, now
            elif self._quiet is not None and now - self._quiet >= QUIET:
                self._quiet = None
                context.loop.run_in_executor(context.workers, give_back)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.deadline.start()
        self._context.break_streams()
        asyncio.get_running_loop().call_later(0.5, self._abort_stalled)
        asyncio.get_running_loop().call_later(TURNS, self._refuse_waiting)
        await super().shutdown(sockets)
        if left := len(self.server_state.tasks):
            log.warning("%d requests were not finished within %d s and are aborted", left, PATIENCE)

    def _refuse_waiting(self) -> None:
        if self._context.ready:
            self._context.engine.refuse_waiting()

    def _abort_stalled(self) -> None:
        """Abort connections that were closed, but would wait forever to send the rest to a client that does not read."""
        for connection in list(self.server_state.connections):
            if connection.transport.is_closing():
                connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, without raising the signal again afterwards: an end on demand is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        if self._certificate is not None and sys.platform != "win32":
            again = partial(asyncio.get_running_loop().call_soon_threadsafe, self._reload, self._certificate)
            handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda number, frame: again())
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    @staticmethod
    def _reload(certificate: Certificate) -> None:
        try:
            certificate.reload()
        except BadPair as error:
            log.error("the certificate was not replaced, and the earlier one is still used: %s", error)
        else:
            log.info("the certificate was read again; new connections use it")


class Starter(threading.Thread):
    """Opens the engine and has the kernels compiled, while the server is already listening."""

    def __init__(self, context: Context, fail: Callable[[], None]) -> None:
        super().__init__(name="starter", daemon=True)
        self._context = context
        self._fail = fail
        self.engine: Instance | None = None
        self.failure: Exception | None = None
        self._is_ending = False
        self.kernels = Kernels()

    def run(self) -> None:
        context = self._context
        try:
            context.report("opening", 0.0)
            self.engine = Instance(context.settings.data, context.settings)
            self.engine.on_failure = self._give_up
            self.engine.kernels = self.kernels
            context.report("compiling", 0.0)
            self.kernels.start()
            self.kernels.require(EVERY_BATCH, lambda done, total: context.report("compiling", done / total))
            self.engine.recover(context.report, self._open)
        except Exception as error:
            if not (self._is_ending and isinstance(error, Unusable)):
                self.failure = error
                self._fail()
        else:
            if self.engine.state != "ready":  # it has ended meanwhile
                return
            give_back()  # memory freed by the builds
            self.kernels.stand_back()
            context.become_ready()
            log.info("livejoin is ready after %.1f s", context.ready_after)

    def stop(self) -> None:
        """End a start that does not accept batches yet; the folder is closed, or `failure` is set."""
        self._is_ending = True
        self.kernels.end()  # the start may be waiting for kernels
        if self.engine is not None:
            self.engine.close()
        self.join()
        self.kernels.end()
        if self.engine is not None:
            self.engine.close()

    def _give_up(self, error: BaseException) -> None:
        """End the service: the engine has failed, for example because of its disk."""
        log.critical("the service stops, because it cannot know what is on disk; start it again on this folder", exc_info=error)
        self._fail()

    def _open(self) -> None:
        """Admit requests: relations can be read and written while views are being built."""
        assert self.engine is not None
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        gc.collect()
        give_back()  # memory freed by recovery
        gc.freeze()  # the objects of the start are permanent: no request must wait while Python searches them for cycles
        self._context.open(self.engine)
        if self._context.settings.ready == "relations":
            self._context.become_ready()


def serve(settings: Settings) -> int:
    """Run the service until a signal. Return the status: 0 after a clean end, 1 after a failure, 2 for inconsistent settings."""
    start_log(settings.log_format, settings.log_level)
    try:
        refuse_other(settings.data)
        if settings.admin_token_file is not None:
            take_admin_token(settings.data, settings.admin_token_file)
        token_mode = read_tokens(settings.data) is not None
    except (BadAdminFile, DamagedFolder, FolderInUse, OSError, sqlite3.Error) as error:
        complain(_reason(error, settings))
        return 1
    if not token_mode and not is_loopback(settings.host):
        create = f"run `livejoin token create NAME --scope admin --data {settings.data}` first, or use --host 127.0.0.1"
        complain(f"{settings.host} is reachable from other machines, and the data folder has no access tokens: {create}")
        return 2
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        complain("--tls-certificate and --tls-key go together: give both for HTTPS, or neither")
        return 2
    try:
        certificate = Certificate(settings.tls_certificate, settings.tls_key) if settings.tls_certificate and settings.tls_key else None
    except BadPair as error:
        complain(str(error))
        return 1
    try:
        listener = _bind(settings)
    except OSError as error:
        complain(f"cannot listen on {settings.host}:{settings.port} ({error.strerror}): use another --port, or 0 for any free one")
        return 1
    logging.getLogger("uvicorn.error").addFilter(lambda record: not _ON_PURPOSE.search(record.getMessage()))
    use_one_allocator()
    try:
        context, limits = Context(settings), ConnectionLimits(settings)
    except (DamagedFolder, OSError) as error:
        complain(_reason(error, settings))
        return 1
    allow_files(settings.max_connections)
    config = uvicorn.Config(
        create_app(context),
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http=cast(type[Protocol], partial(Protocol, limits)),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=PATIENCE,
    )
    scheme = "http" if certificate is None else "https"
    server = Server(
        config, context, limits, certificate, lambda: log.info("livejoin serves on %s://%s", scheme, _address(listener)),
        lambda: _cut_short(starter),
    )  # fmt: skip
    starter = Starter(context, lambda: setattr(server, "should_exit", True))
    starter.start()
    server.run(sockets=[listener])
    try:
        return _end(context, starter)
    finally:
        server.deadline.cancel()


def _end(context: Context, starter: Starter) -> int:
    """Finish the waiting batches and close the folder; the process then ends. Return its status."""
    if starter.failure is None and not (starter.engine is not None and starter.engine.is_open):
        starter.stop()
    if starter.failure is not None:
        log.error("%s", _reason(starter.failure, context.settings))
        starter.kernels.end()
        return 1
    assert starter.engine is not None
    is_clean = starter.engine.close()
    starter.kernels.end()
    context.release_threads()
    return 0 if is_clean else 1


def _cut_short(starter: Starter) -> None:
    """End the process. Acknowledged batches are on disk all the same."""
    waiting = starter.engine.waiting if starter.engine is not None else 0
    left = f"{waiting} batches that were waiting were not applied, and have not been acknowledged" if waiting else "no batch was waiting"
    log.error("the stop took longer than %.0f s and was cut short; %s; the next start reads the log", DEADLINE, left)
    _exit(1)


def _reason(failure: Exception, settings: Settings) -> str:
    if isinstance(failure, OSError | sqlite3.Error):
        where = f"the data folder {settings.data} cannot be used"
        return f"{where} ({reason(failure)}): choose another --data, or make room and allow writing there"
    return str(failure) or type(failure).__name__


def _exit(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _bind(settings: Settings) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def complain(sentence: str) -> None:
    print(f"livejoin: {sentence}", file=sys.stderr, flush=True)
