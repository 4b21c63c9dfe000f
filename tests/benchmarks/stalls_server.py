"""`livejoin serve` that also writes, for each batch of the relation `unrelated`, a line to the file in STALLS_TIMES: when the batch arrived
(seconds of the system's monotonic clock), and the seconds of the writer's processor time until its answer."""

from __future__ import annotations

import os
import sys
import threading
import time

from livejoin.wire.batch import Batch
from service.cli import main
from service.engine.engine import Done, Engine

RELATION, TIMES = "unrelated", "STALLS_TIMES"


def measure() -> None:
    submit, times = Engine.submit, open(os.environ[TIMES], "w", buffering=1)

    def measured(engine: Engine, batch: Batch, done: Done) -> None:
        if [changes.relation for changes in batch.changes] != [RELATION]:
            return submit(engine, batch, done)
        (writer,) = (thread.ident for thread in threading.enumerate() if thread.name == "writer")
        assert writer is not None
        clock = time.pthread_getcpuclockid(writer)
        arrived, before = time.monotonic(), time.clock_gettime(clock)

        def answered(answer: object) -> None:
            spent = time.clock_gettime(clock) - before
            done(answer)  # type: ignore[arg-type]
            times.write(f"{arrived} {spent}\n")

        submit(engine, batch, answered)

    Engine.submit = measured  # type: ignore[method-assign]


if __name__ == "__main__":
    measure()
    sys.exit(main())
