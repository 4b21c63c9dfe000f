"""Failpoints by how they are reached, for the tests that kill the service there."""

from __future__ import annotations

from service.durability.failpoints import BACKUP_STEPS, STEPS

ELSEWHERE = {  # those that clients of a running service do not reach, and the tests that kill the service there
    **dict.fromkeys(BACKUP_STEPS, "tests/end_to_end/test_backups.py"),
    "in-repair": "tests/end_to_end/test_repair.py",
}
AT_A_START = ("in-recovery", "in-replay")  # on a folder that has contents
AT_WORK = [step for step in STEPS if step not in (*ELSEWHERE, *AT_A_START, "in-patch")]  # reached by any client that sends batches
