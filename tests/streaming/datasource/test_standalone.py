"""The data source by spark-submit on a standalone cluster of two workers, which have PyArrow alone, each in a Python of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pyspark

from deploy.checks.wheels import build, install
from streaming.java import find_java
from streaming.kafka_broker import free_port
from tests.client.test_wheel import linked, needed
from tests.server_process import ServerProcess
from tests.streaming.datasource.test_versions import QUICK, job_folder
from tests.waiting import until

SPARK = Path(pyspark.__file__).parent


@contextmanager
def running(name: str, path: Path, *arguments: str) -> Iterator[None]:
    """A master or a worker, which finds its Python in this folder."""
    command = [str(find_java()), *QUICK.split(), "-Xmx256m", "-cp", f"{SPARK}/jars/*", f"org.apache.spark.deploy.{name}", *arguments]
    inherited = {one: value for one, value in os.environ.items() if not one.startswith(("PYSPARK", "PYTHON", "SPARK"))}
    own = {"PATH": f"{path}:{os.defpath}", "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    with subprocess.Popen([*command, "--host", "127.0.0.1"], env=inherited | own, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()


def python_with(folder: Path, *packages: str) -> Path:
    """The folder of the programs of a new Python that has these packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    linked(site, packages)
    return folder / "bin"


def packed(wheel: Path, folder: Path) -> Path:
    """What `pip install --target` makes of the client's wheel, without PyArrow, as an archive."""
    install([wheel], folder)
    (site,) = folder.glob("lib/python*/site-packages")
    linked(site, needed("livejoin-client") - {"pyarrow"})
    (site / "others.pth").unlink()
    with tarfile.open(folder.with_suffix(".tgz"), "w:gz", compresslevel=1, dereference=True) as archive:
        archive.add(site, ".")
    return folder.with_suffix(".tgz")


def alive_workers(port: int) -> int:
    try:
        return int(httpx.get(f"http://127.0.0.1:{port}/json/").json()["aliveworkers"])
    except (httpx.TransportError, ValueError):  # it does not listen yet, or has only its first page
        return 0


def test_a_job_on_two_workers(tmp_path: Path, quick_java: None) -> None:
    """The archive brings the client to the executors, whose Pythons are at other paths than the driver's."""
    (wheel, _) = build(tmp_path / "wheels")
    archive = packed(wheel, tmp_path / "client")
    driver = install([wheel], tmp_path / "driver").parent
    pythons = [python_with(tmp_path / f"worker{number}", "pyarrow") for number in range(2)]
    folder, port, web = job_folder(tmp_path / "job"), free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as cluster, ServerProcess(tmp_path / "data") as server:
        cluster.enter_context(running("master.Master", driver, "--port", str(port), "--webui-port", str(web)))
        for number, path in enumerate(pythons):
            size = ("--cores", "1", "--memory", "512m", "--webui-port", "0", "--work-dir", str(tmp_path / f"work{number}"))
            cluster.enter_context(running("worker.Worker", path, *size, master))
        until(lambda: alive_workers(web) == 2)
        conf = {
            "spark.pyspark.python": "python3", "spark.pyspark.driver.python": str(driver / "python3"),
            "spark.archives": f"{archive}#client", "spark.executorEnv.PYTHONPATH": "client",
            "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": QUICK, "spark.task.maxFailures": "1",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
        }  # fmt: skip
        command = [str(SPARK / "bin" / "spark-submit"), "--master", master, "--driver-java-options", QUICK]
        command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        own = {"SPARK_HOME": str(SPARK), "JAVA_HOME": str(find_java().resolve().parent.parent), "SPARK_LOCAL_IP": "127.0.0.1"}
        own |= {"PATH": f"{driver}:{os.environ['PATH']}"}
        job = [*command, "user_job.py", server.url, str(tmp_path)]
        done = subprocess.run(job, cwd=folder, env=inherited | own, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-20_000:]
    places = json.loads(done.stdout.splitlines()[-1])["places"]
    assert sorted(place.split()[1] for place in places) == [str(path / "python3") for path in pythons]
