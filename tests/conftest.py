"""Fixtures for everybody."""

from __future__ import annotations

import atexit
import gc
import logging
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import settings

if TYPE_CHECKING:  # the processes of modes do without what it imports
    from tests.server_process import ServerProcess

# No test depends on the clock or on luck: the same code meets the same examples. New ones are for `make soak`.
settings.register_profile("livejoin", deadline=None, derandomize=True)
settings.load_profile("livejoin")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: Python looks for no circles in it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# Modules of DuckDB complain of what is never collected. Not in a hook: pytest looks for circles several times behind those.
atexit.register(gc.unfreeze)

_FEW = 3  # tests of a file of the pipeline that are long
_SPARK = "tests/streaming/spark"  # files with a Spark in their own process: one Java process for all
_WITH_SPARK = ("tests/streaming/cluster/test_batch.py", "tests/streaming/cluster/test_streams.py", "tests/streaming/datasource/")
_LONGEST = (_SPARK, "tests/streaming/test_job.py", "tests/streaming/publishing/test_publisher.py")
_LONG = ("tests/faults/", "tests/histories/", "tests/test_lint.py")  # of the others: half a minute a file or more, of few tests


@pytest.fixture(autouse=True)
def no_log_is_left_behind() -> Iterator[None]:
    """Some tests start the log of the service in their own process; others look at all that is written on standard error."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not type(handler).__module__.startswith("service.")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Before the processes of tests are started."""
    from tests import forked

    forked.share()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file share a process, as its fixtures do; those of modes share nothing, and go to whoever is idle. Files that have
    Spark in their own process share it: Java starts once, and becomes quick once.

    Tests of the pipeline wait for Kafka and Spark most of the time: the first three processes have them, while the others compute; each
    takes of the other kind when nothing is left of its own. Of the pipeline's files, those that take several minutes come
    first, then those of few tests, as these tests take a minute each; then, as everywhere, those of many. Of the others too, long
    files of few tests come first: begun last, they would be waited for.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(_WITH_SPARK):
                return _SPARK
            return nodeid if "/test_modes.py::" in nodeid else super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            waits = node in self.nodes[:3]
            own = [scope for scope in self.workqueue if scope.startswith("tests/streaming/") == waits]

            def order(scope: str) -> tuple[bool, bool]:
                long = scope in _LONGEST if waits else scope.startswith(_LONG)
                return not long, waits and len(self.workqueue[scope]) > _FEW

            if own:
                self.workqueue.move_to_end(min(own, key=order), last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


_RESERVED = 20 << 40  # bytes of address space; a process has 128 TiB


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """What a file's tests have reserved is free for the next: engines that failed on purpose are in reference cycles with their errors."""
    yield
    if psutil.Process().memory_info().vms > _RESERVED:
        gc.collect()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server on a fresh folder, of this test only."""
    from tests.server_process import ServerProcess

    with ServerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for many tests: for those that use names of their own and leave nothing behind that others read."""
    from tests.server_process import ServerProcess

    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture(scope="session")
def quick_java() -> Iterator[None]:
    """For all that starts Spark or brokers."""
    from tests.streaming import java_classes  # of Kafka and Spark, which most tests do without

    with pytest.MonkeyPatch.context() as patch:
        java_classes.use(patch)
        yield
