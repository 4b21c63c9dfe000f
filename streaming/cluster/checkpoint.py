"""The folder of a checkpoint, as Spark writes it: which epochs it has, and how one checkpoint continues another.

    metadata        the identity of the query
    offsets/N       what epoch N reads: a version, settings, a line for each source
    commits/N       epoch N is complete
    sources/        additional files of some sources
    state/          of operators, by their numbers: version N + 1 is that after epoch N
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def not_kept(folder: str, epoch: int, first: int, last: int) -> ValueError:
    """The error for an epoch that is not between the first and the last available one."""
    said = f"epoch {epoch} is not kept: {folder} has {first} to {last}"
    return ValueError(f"{said} (spark.sql.streaming.minBatchesToRetain sets how many are kept)")


class Checkpoint:
    """Uses the classes of Spark in its JVM, so it works wherever checkpoints can be. PySparkAttributeError: over Connect there is no
    JVM."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._session: Any = spark._jsparkSession
        self._conf: Any = self._session.sessionState().newHadoopConf()
        resolved = self._jvm.org.apache.spark.sql.execution.streaming.utils.StreamingUtils.resolvedCheckpointLocation
        self.folder, self._format = str(resolved(self._conf, folder)), spark.conf.get(_FORMAT, "1")
        manager = self._jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
        self._files: Any = manager.create(self._path(), self._conf)

    def exists(self) -> bool:
        return bool(self._files.exists(self._path()))

    def id(self) -> str:
        """The id of the query. Raises ValueError."""
        if not self._files.exists(self._path("metadata")):
            raise ValueError(f"{self.folder} is not a checkpoint")
        return str(json.loads(self._read("metadata"))["id"])

    def last(self) -> int:
        """The last completed epoch. Raises ValueError."""
        if not (done := self._epochs("commits")):
            raise ValueError(f"{self.folder} has no completed epoch yet")
        return done[-1]

    def require_kept(self, epoch: int) -> None:
        """Raises ValueError."""
        done = self._epochs("commits")
        if epoch not in done:
            raise not_kept(self.folder, epoch, done[0], done[-1])
        if self._format != "1":
            raise ValueError(f"{_FORMAT} is {self._format}, whose states cannot be written as those of another epoch: set it to 1")

    def write_states(self, old: Checkpoint, epoch: int) -> None:
        """Write the states of epoch 0 as those of another epoch, from which the old checkpoint's sources continue."""
        self._write(f"offsets/{epoch}", self._offsets(old, epoch))
        nothing = self._jvm.scala.Option.empty()
        rewriter = self._jvm.org.apache.spark.sql.execution.streaming.state.StateRewriter
        rewriter(self._session, 0, epoch, self.folder, self._conf, nothing, nothing, nothing).run()

    def go_on(self, old: Checkpoint, epoch: int, as_the_same: bool) -> None:
        """Epoch 0 becomes this epoch. `as_the_same`: the query keeps its identity, including the epoch that it has planned but not
        completed."""
        commit, planned = self._read("commits/0"), old._epochs("offsets")
        kept = {one: self._offsets(old, one) for one in planned if one in (epoch - 1, epoch) or (as_the_same and one > epoch)}
        if epoch:
            kept.setdefault(epoch - 1, kept[epoch])  # Spark looks for it when it starts
        for name in ("commits/0", "offsets/0", "sources"):
            self._delete(name)
        if old._files.exists(old._path("sources")):
            self._copy(old, "sources")
        for one, offsets in kept.items():
            self._write(f"offsets/{one}", offsets)
        if as_the_same:
            self._write("metadata", old._read("metadata"))
        self._write(f"commits/{epoch}", commit)

    def _offsets(self, old: Checkpoint, epoch: int) -> str:
        """Those of the old checkpoint with the settings of epoch 0, above all the number of partitions."""
        version, _, sources = old._read(f"offsets/{epoch}").split("\n", 2)
        return "\n".join([version, self._read("offsets/0").split("\n", 2)[1], sources])

    def _epochs(self, log: str) -> list[int]:
        names = [str(one.getPath().getName()) for one in self._files.list(self._path(log))] if self._files.exists(self._path(log)) else []
        return sorted(int(name) for name in names if name.isdecimal())

    def _path(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}" if name else self.folder)

    def _read(self, name: str) -> str:
        with closing(self._files.open(self._path(name))) as stream:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))

    def _write(self, name: str, text: str) -> None:
        stream = self._files.createAtomic(self._path(name), True)
        stream.write(text.encode())
        stream.close()

    def _delete(self, name: str) -> None:
        self._files.delete(self._path(name))

    def _copy(self, old: Checkpoint, name: str) -> None:
        self._files.mkdirs(self._path(name))
        for one in old._files.list(old._path(name)):
            below = f"{name}/{one.getPath().getName()}"
            if one.isDirectory():
                self._copy(old, below)
            else:
                self._write(below, old._read(below))
