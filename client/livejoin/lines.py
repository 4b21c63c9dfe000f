"""JSON lines out of the blocks of a body. Cut at newlines only: JSON text may hold U+2028 and its kind."""

from __future__ import annotations

JSONL = "application/jsonl"


class Lines:
    """Takes a body block by block."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []  # of a line whose end has not come

    def add(self, block: bytes) -> bytes:
        """The whole lines that are complete with this block, each with its newline."""
        cut = block.rfind(b"\n") + 1
        if not cut:
            self._begun.append(block)
            return b""
        whole = b"".join((*self._begun, block[:cut]))
        self._begun = [block[cut:]] if cut < len(block) else []
        return whole

    def end(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._begun)
