"""Our own files in a checkpoint, next to Spark's: on this machine's disk, or where only Spark can read and write."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streaming.pipeline.checkpoint import Checkpoint, local_folder, read_checkpoint

_LOCK = ".livejoin.lock"  # with a dot, as Spark's temporary files


class LocalFiles:
    """For a checkpoint in a folder of this machine; its address as text. Methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For one job at a time: raises BlockingIOError for a second one, OSError. Creates the folder."""
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with (self._folder / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if isinstance(error, BlockingIOError):
                    raise  # else a file system without locks: two queries of Spark collide at their next batch
            yield

    def state(self) -> Checkpoint | None:
        """Spark's state, as far as it is readable. Raises UnreadableCheckpoint."""
        return read_checkpoint(self._folder)

    def read(self, name: str) -> str | None:
        """A file of ours; None when there is none."""
        path = self._folder / name
        return path.read_text(errors="replace") if path.exists() else None

    def write(self, name: str, text: str) -> None:
        """Writes the file atomically; it is on disk on return."""
        draft = self._folder / f".{name}.draft"
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._folder / name)


class SparkFiles:
    """For a checkpoint at an address that Spark's Hadoop supports (`hdfs://…`, `s3a://…`), written as Spark writes there. As LocalFiles."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._address = address
        self._jvm: Any = spark._jvm
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()

    def __str__(self) -> str:
        return self._address

    def state(self) -> Checkpoint | None:
        return None

    def read(self, name: str) -> str | None:
        try:
            manager, path = self._manager(), self._path(name)
            if not manager.exists(path):
                return None
            stream = manager.open(path)
            try:
                return bytes(stream.readAllBytes()).decode(errors="replace")
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise _as_os_error(error) from error

    def write(self, name: str, text: str) -> None:
        try:
            manager = self._manager()
            manager.mkdirs(self._path())
            stream = manager.createAtomic(self._path(name), True)
            stream.write(text.encode())
            stream.close()
        except Py4JJavaError as error:
            raise _as_os_error(error) from error

    def _manager(self) -> Any:
        managers = getattr(self._jvm.org.apache.spark.sql.execution.streaming.checkpointing, "CheckpointFileManager$")
        return getattr(managers, "MODULE$").create(self._path(), self._conf)

    def _path(self, *name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path("/".join((self._address.rstrip("/"), *name)))


CheckpointFiles = LocalFiles | SparkFiles


def _as_os_error(error: Py4JJavaError) -> OSError:
    return OSError(0, str(error.java_exception).partition("\n")[0])


def files_of(address: str) -> LocalFiles | None:
    """The files of a checkpoint on this machine; None for one that only Spark can reach."""
    folder = local_folder(address)
    return None if folder is None else LocalFiles(folder)
