"""What the service answers to changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

LISTED = 100  # bad rows that are listed, at most


class Receipt(NamedTuple):
    """What became of the changes of a call: they are on the service's disk, and in its newest version.

    `applied` + `ignored` + `skipped_count` = changes sent, unless `duplicate`: then the batch had been applied before. `ignored` counts
    deletes of keys that were not there. `skipped` lists the first 100 bad rows (`index`, `column`, `reason`) under `on_error="skip"`.
    `first`: of a duplicate that is the last batch of its source, the answer to the first one.
    """

    version: int = 0
    applied: int = 0
    ignored: int = 0
    skipped_count: int = 0
    skipped: list[dict[str, Any]] = []
    duplicate: bool = False
    first: dict[str, Any] | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Receipt:
        """Raises KeyError for what is none."""
        return cls(**{name: answer[name] for name in cls._fields if name != "first"}, first=answer.get("first"))

    def and_then(self, later: Receipt, first: int) -> Receipt:
        """Both together. `first` is the index of the first row of the later one."""
        room = max(0, LISTED - len(self.skipped))
        skipped = self.skipped + [shifted(error, first) for error in later.skipped[:room]]
        applied, ignored, count = self.applied + later.applied, self.ignored + later.ignored, self.skipped_count + later.skipped_count
        return Receipt(later.version, applied, ignored, count, skipped, later.duplicate)


def shifted(error: Mapping[str, Any], first: int) -> dict[str, Any]:
    """A bad row with its index counted from the beginning of the call."""
    return {**error, "index": error["index"] + first}
