"""Fixtures for all tests."""

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

if TYPE_CHECKING:  # the processes of modes do not need its imports
    from tests.server_process import ServerProcess

# No test depends on the clock or on chance: the same code gets the same examples. `make soak` tries new ones.
settings.register_profile("livejoin", deadline=None, derandomize=True)
settings.load_profile("livejoin")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude collected tests from garbage collection, as they are never freed."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# DuckDB's modules print warnings about objects that are never freed. Not in a hook: pytest runs the collector several times after those.
atexit.register(gc.unfreeze)

_FEW = 3  # a file of the pipeline with at most this number of tests has long tests
_SPARK = "tests/streaming/spark"  # files with a Spark in their own process: one Java process for all
_WITH_SPARK = ("tests/streaming/cluster/test_batch.py", "tests/streaming/cluster/test_streams.py", "tests/streaming/datasource/")
_LONGEST = (_SPARK, "tests/streaming/test_job.py", "tests/streaming/publishing/test_publisher.py")
_LONG = (  # other files with few tests that take half a minute or more
    "tests/deploy/test_wheels.py", "tests/faults/", "tests/histories/", "tests/service/engine/test_loaded_kernels.py",
    "tests/service/matrix/", "tests/test_lint.py",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_log_is_left_behind() -> Iterator[None]:
    """Remove the log handlers of the service: some tests start its log in their own process, others check all that is written on standard
    error."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not type(handler).__module__.startswith("service.")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Called before the test processes are started."""
    from tests import forked

    forked.share()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file share a process, as they share its fixtures; tests of modes share nothing, and each goes to any idle process.
    Files that run Spark in their own process share one, so that Java starts and warms up only once.

    Tests of the pipeline mostly wait for Kafka and Spark. The first three processes take these, while the others compute; a process takes
    tests of the other kind when none of its own kind are left. Among the files of the pipeline, those that take several minutes come first,
    then those with few tests, because each of these tests takes a minute; then, as everywhere, those with many. Among the others too, long
    files with few tests come first: if they began last, all would wait for them.
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
    """Free the address space that a file's tests have reserved: engines that failed on purpose are in reference cycles with their
    errors."""
    yield
    if psutil.Process().memory_info().vms > _RESERVED:
        gc.collect()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server on a new folder, for this test only."""
    from tests.server_process import ServerProcess

    with ServerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for many tests: for tests that use their own names and leave nothing behind that others read."""
    from tests.server_process import ServerProcess

    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as process:
        yield process


@pytest.fixture(scope="session")
def quick_java() -> Iterator[None]:
    """Class data that makes Java start faster, for tests that start Spark or brokers."""
    from tests.streaming import java_classes  # of Kafka and Spark, which most tests do without

    with pytest.MonkeyPatch.context() as patch:
        java_classes.use(patch)
        yield
