"""The service with TLS: what it refuses, who can connect, how its certificate is replaced."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from ssl import TLSVersion

import httpx
import pytest

import livejoin
from livejoin.commands import rows
from livejoin.terminal import Failure
from service.protocol import SPARE
from service.tls import BadPair, Certificate
from streaming.config import BadConfig, read_config
from streaming.connection import Service
from streaming.metrics import Metrics
from tests.certificates import Pair
from tests.forked import finished
from tests.server_process import ServerProcess
from tests.waiting import until

RELATION = {"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}
STREAM = '[service]\nurl = "https://127.0.0.1:1"\nca = "{ca}"\n[kafka]\nbrokers = "b:1"\n[[out]]\nview = "v"\ntopic = "t"\n'


class Pairs:
    """Two pairs of certificate and key, and the files that the server reads, which are initially those of the first pair."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = Pair(folder, "first"), Pair(folder, "second")
        self.certificate, self.key = folder / "used.pem", folder / "used.key"
        self.use(self.first)

    def use(self, certificate: Pair, key: Pair | None = None) -> None:
        shutil.copy(certificate.certificate, self.certificate)
        shutil.copy((key or certificate).key, self.key)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    return Pairs(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="module")
def server(pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    arguments = ["--tls-certificate", str(pairs.certificate), "--tls-key", str(pairs.key), "--head-time", "5"]
    with ServerProcess(tmp_path_factory.mktemp("tls") / "data", arguments=arguments, ca=pairs.first.certificate) as process:
        yield process


def shown(server: ServerProcess, lowest: TLSVersion = TLSVersion.TLSv1_2, highest: TLSVersion = TLSVersion.TLSv1_3) -> bytes:
    """Return the certificate that a new connection receives."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version, context.maximum_version = lowest, highest
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with socket.create_connection(("127.0.0.1", server.port)) as plain, context.wrap_socket(plain) as link:
        certificate = link.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


def of(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


def said(server: ServerProcess, words: str) -> int:
    return server.output().count(words)


def test_it_serves_https_alone(server: ServerProcess, pairs: Pairs) -> None:
    assert f"livejoin serves on https://127.0.0.1:{server.port}" in server.output()
    answer = server.client().get("/v1/relations")
    assert answer.status_code == 200
    assert server.client().get("/livez", headers={"Origin": server.url}).status_code == 200, "its own pages"
    assert server.client().get("/livez", headers={"Host": "evil.example"}).status_code == 403
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{server.port}/livez")


def test_versions_of_tls(server: ServerProcess, pairs: Pairs) -> None:
    for version in (TLSVersion.TLSv1_2, TLSVersion.TLSv1_3):
        assert shown(server, version, version) == of(pairs.first)
    with pytest.raises(ssl.SSLError), pytest.warns(DeprecationWarning):
        shown(server, TLSVersion.TLSv1, TLSVersion.TLSv1_1)


def test_who_is_told_the_ca_reaches_it(server: ServerProcess, pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client and the job take a path; a command takes its variable."""
    with livejoin.connect(server.url, ca=pairs.first.certificate) as client:
        assert client.relations() == []
    service = Service(server.url, threading.Event(), Metrics(), str(pairs.first.certificate))
    assert service.definitions([]) == {}
    service.close()
    with pytest.raises(livejoin.Unreachable, match=r"is not trusted .* \(--ca, LIVEJOIN_CA\)"):
        livejoin.connect(server.url, patience=0).relations()
    with pytest.raises(livejoin.Unreachable, match="is not trusted"):
        livejoin.connect(server.url, ca=pairs.second.certificate, patience=0).relations()
    monkeypatch.setenv("LIVEJOIN_CA", str(pairs.first.certificate))
    with livejoin.connect(server.url) as client:
        assert client.relations() == []
    with pytest.raises(Failure, match="no view or relation 'nothing'"):
        rows.main(["nothing", "--url", server.url])
    with pytest.raises(Failure, match="is not trusted"):
        rows.main(["nothing", "--url", server.url, "--ca", str(pairs.second.certificate)])


def test_a_ca_that_is_none(pairs: Pairs, tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.pem", "No such file"), (pairs.first.key, "contains no PEM certificate")):
        with pytest.raises(livejoin.BadFile, match=f"{path} cannot be used .*{reason}"):
            livejoin.connect("https://127.0.0.1:1", ca=path)
        with pytest.raises(Failure, match="cannot be used") as failure:
            rows.main(["nothing", "--url", "https://127.0.0.1:1", "--ca", str(path)])
        assert failure.value.status == 2
        file = tmp_path / "stream.toml"
        file.write_text(STREAM.format(ca=path))
        with pytest.raises(BadConfig, match="service.ca: the CA file"):
            read_config(file)


def test_a_new_pair_at_sighup(server: ServerProcess, pairs: Pairs) -> None:
    """New connections receive it; open connections continue, including a follower's. An invalid pair changes nothing."""
    client = server.client()
    assert client.put("/v1/relations/a", json=RELATION).status_code == 201
    assert client.put("/v1/views/v", json={"from": {"a": "a"}}).status_code in (201, 202)
    until(lambda: client.get("/v1/views/v").json()["state"] == "live")
    with server.client().stream("GET", "/v1/views/v/changes") as follower:
        records = follower.iter_lines()
        pairs.use(pairs.second, pairs.first)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: said(server, "does not belong to the first certificate") == 1)
        assert shown(server) == of(pairs.first)
        pairs.use(pairs.second)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: said(server, "the certificate was read again") == 1)
        assert shown(server) == of(pairs.second) and not said(server, "Traceback")
        change = {"changes": [{"relation": "a", "op": "upsert", "row": {"id": 1}}]}
        assert client.post("/v1/changes", json=change).json()["version"] == 1, "on the connection of before"
        assert '"op":"insert"' in next(records) and '"op":"progress"' in next(records)
    with livejoin.connect(server.url, ca=pairs.second.certificate) as again:
        assert len(again.relations()) == 1


def test_it_ends_in_time(pairs: Pairs, tmp_path: Path) -> None:
    """An idle connection whose client does not take part in the end of TLS does not delay the stop."""
    arguments = ["--tls-certificate", str(pairs.first.certificate), "--tls-key", str(pairs.first.key)]
    with ServerProcess(tmp_path / "data", arguments=arguments, ca=pairs.first.certificate) as server:
        assert server.client().get("/livez").status_code == 200
        assert server.stop(limit=10) == 0
        assert "ERROR" not in server.output()


BAD = {
    "no file": (lambda pairs, folder: (folder / "none", pairs.first.key), r"--tls-certificate.*/none cannot be read \(No such"),
    "no certificate": (lambda pairs, folder: (pairs.first.key, pairs.first.key), "contains no PEM certificate"),
    "no key": (lambda pairs, folder: (pairs.first.certificate, pairs.first.certificate), "--tls-key.* contains no PEM private key"),
    "not its key": (lambda pairs, folder: (pairs.first.certificate, pairs.second.key), "does not belong .* give the key that"),
    "encrypted": (lambda pairs, folder: (pairs.first.certificate, encrypted(pairs.first.key, folder)), "is encrypted: give one without"),
    "torn": (lambda pairs, folder: (torn(pairs.first.certificate, folder), pairs.first.key), "cannot be used .* whole and in PEM"),
}


def encrypted(key: Path, folder: Path) -> Path:
    made = folder / "encrypted.key"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:word", "-out", made], check=True, capture_output=True)
    return made


def torn(certificate: Path, folder: Path) -> Path:
    made = folder / "torn.pem"
    made.write_text(certificate.read_text()[:200])
    return made


@pytest.mark.parametrize("case", BAD)
def test_a_bad_pair(pairs: Pairs, tmp_path: Path, case: str) -> None:
    files, emitted = BAD[case]
    with pytest.raises(BadPair, match=emitted):
        Certificate(*files(pairs, tmp_path))


def test_a_start_with_a_bad_pair(pairs: Pairs, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for arguments, status, emitted in (
        (["--tls-certificate", str(pairs.first.certificate)], 2, "--tls-certificate and --tls-key go together"),
        (["--tls-certificate", str(pairs.first.certificate), "--tls-key", str(pairs.second.key)], 1, "does not belong"),
    ):
        ended, output = finished(["serve", "--data", str(folder), "--port", "0", *arguments])
        (line,) = output.splitlines()
        assert ended == status and line.startswith("livejoin: ") and emitted in line
    assert not folder.exists()


@pytest.mark.parametrize("begin", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_does_not_end(server: ServerProcess, begin: bytes) -> None:
    """Seen: 2,500 connections that sent nothing occupied all open files that the service may have, for a minute."""
    with socket.create_connection(("127.0.0.1", server.port), 50) as connection:
        connection.sendall(begin)
        try:
            assert connection.recv(1000) == b""
        except ConnectionResetError:
            pass


def test_handshakes_count_as_connections(pairs: Pairs, tmp_path: Path) -> None:
    """Connections beyond the limit are closed at once, however many others send nothing; new ones are accepted when these have ended."""
    arguments = ["--tls-certificate", str(pairs.first.certificate), "--tls-key", str(pairs.first.key)]
    arguments += ["--head-time", "600", "--max-connections", "5"]
    with ServerProcess(tmp_path / "data", arguments=arguments, ca=pairs.first.certificate) as server:
        silent = []
        with ExitStack() as stack:
            for _ in range(5 + SPARE):
                silent.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 50)))
            with socket.create_connection(("127.0.0.1", server.port), 50) as one_more, suppress(ConnectionResetError):
                assert one_more.recv(1) == b""
            silent.pop().close()
            until(lambda: reached(server, "/livez") == 200)
            until(lambda: reached(server, "/v1/status") == 429)  # once the previous connection has been removed
        until(lambda: reached(server, "/v1/status") == 200)


def reached(server: ServerProcess, path: str) -> int | None:
    """Return the status of an answer on a new connection; None: it was closed."""
    try:
        with server.client() as client:
            return client.get(path, headers={"Connection": "close"}).status_code
    except httpx.TransportError:
        return None
