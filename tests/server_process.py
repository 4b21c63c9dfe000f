"""A real `livejoin serve` in a process of its own, accessed over HTTP only."""
from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import httpx

from streaming.kafka_broker import free_port
from tests.forked import Forked

ROOT = Path(__file__).resolve().parent.parent
_READ_AT_IMPORT = {"LIVEJOIN_JIT", "LIVEJOIN_CACHE"}  # read by the service from variables that tests set
_FAULTS = ("Fatal Python error", "RuntimeWarning: ")  # a crash of native code; a result of NumPy that nobody has thought of
START_LIMIT = 300.0  # seconds; kernels may have to be compiled first, on a busy machine


def client_of(url: str, timeout: float = 60, ca: Path | None = None) -> httpx.Client:
    """`ca`: for a server with TLS. Without it, no certificates are read, which would take 40 ms."""
    return httpx.Client(base_url=url, timeout=timeout, verify=ca is not None and ssl.create_default_context(cafile=ca))


class NotStarted(Exception):
    """The server ended before it was ready: `status`, and `errors`, its standard error."""

    def __init__(self, status: int, errors: str) -> None:
        super().__init__(f"the server ended with status {status}:\n{errors}")
        self.status, self.errors = status, errors


class Crashed(Exception):
    """The server ended, and no test had ended it or waited for its end; or its output has a fault. The text has the output."""


class ServerProcess:
    """One server on the folder `data`. `with ServerProcess(folder) as server:` starts it, waits for /readyz, and kills it at the end;
    if it has ended by itself before, this raises Crashed.

    `environment` is added to the environment of the tests (LIVEJOIN_… variables), `arguments` to the command; `before` runs in the child
    before the command (to limit resources); `log` is the file for its output (by default beside the folder). `port`: by default a free one.
    `fresh`: start it by the command, as users do; otherwise, it is forked from a process that has imported the service. `ca`: it serves
    HTTPS.
    """

    _module = "service.cli"

    def __init__(
        self,
        data: Path,
        *,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        before: Callable[[], None] | None = None,
        log: Path | None = None,
        port: int | None = None,
        fresh: bool = False,
        ca: Path | None = None,
    ) -> None:
        self.data = data
        self._chooses_port = port is None
        self.port = free_port() if port is None else port
        self._ca = ca
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._more = arguments
        self._before = before
        self._fresh = fresh or not _READ_AT_IMPORT.isdisjoint(environment or {})
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self.log_path = log or data.with_name(f"{data.name}.{self.port}.log")
        self._clients: list[httpx.Client] = []
        self._may_end = False  # a test has ended it, or waited for its end

    @property
    def url(self) -> str:
        return f"{'https' if self._ca else 'http'}://127.0.0.1:{self.port}"

    @property
    def _arguments(self) -> list[str]:
        return ["serve", "--data", str(self.data), "--port", str(self.port), *self._more]

    def start(self, wait: bool = True) -> ServerProcess:
        """Start the server; with `wait`, wait until it is ready. Raises NotStarted."""
        first = self._process is None
        self._may_end = False
        with open(self.log_path, "wb") as log:
            if self._fresh:
                command = [sys.executable, "-m", self._module, *self._arguments]
                self._process = subprocess.Popen(
                    command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, preexec_fn=self._before, start_new_session=True
                )
            else:
                self._process = Forked(self._arguments, self._environment, self.log_path, self._before)
        if wait:
            try:
                self.wait_ready()
            except BaseException as error:
                if first and self._chooses_port and isinstance(error, NotStarted) and "already in use" in error.errors:
                    self.port, self._process, self._chooses_port = free_port(), None, False  # another test has taken the port first
                    return self.start()
                self.close()
                raise
        return self

    def wait_ready(self, limit: float = START_LIMIT) -> None:
        end = time.monotonic() + limit
        with client_of(self.url, ca=self._ca) as client:
            while time.monotonic() < end:
                if (status := self.process.poll()) is not None:
                    raise NotStarted(status, self.output())
                try:
                    if client.get("/readyz", timeout=10).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.02)
        raise TimeoutError(f"not ready after {limit} s:\n{self.output()}")

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process is not None, "not started"
        return self._process

    def client(self, timeout: float = 60) -> httpx.Client:
        """Return a new client with connections of its own; it is closed with the server."""
        client = client_of(self.url, timeout, self._ca)
        self._clients.append(client)
        return client

    def output(self) -> str:
        """Return the contents of standard output and standard error."""
        return self.log_path.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self._may_end = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, sign: signal.Signals = signal.SIGTERM, limit: float = 30) -> int:
        """Ask the server to end; return its exit status. Raises subprocess.TimeoutExpired."""
        self.process.send_signal(sign)
        return self.wait(limit)

    def wait(self, limit: float = 30) -> int:
        """Wait until the server ends; return its exit status."""
        self._may_end = True
        return self.process.wait(limit)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._process is not None:
            self.kill()

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is None:
            return
        by_itself = not self._may_end and self._process.poll() is not None
        self.close()
        status, output = self._process.poll(), self.output()
        faults = [output.index(one) for one in _FAULTS if one in output]
        shown = output[min(faults) :] if faults else output[-4000:]
        emitted = f"the server on {self.data} ended with status {status}:\n{shown}"
        if error is not None:
            print(emitted)
        elif by_itself or faults:
            raise Crashed(emitted)
