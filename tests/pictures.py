"""The pictures of the README, recorded from the running demo: `make pictures`, or `python -m tests.pictures FOLDER`.

`terminal.svg` shows a moment of the demo on a terminal, `timeline.png` the dashboard's page of one of its views in Chromium, with the last
sixty years in view.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from io import StringIO
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from streaming.kafka_broker import free_port
from tests.dashboard.chromium import launched
from tests.server_process import ROOT

FOLDER = ROOT / "docs" / "pictures"
COLUMNS = 112
MOMENT = "2005-07-01"  # of history, which the terminal shows
ROAD = "through Kafka and Spark"
VIEW = "presidents_with_vices"
_AGAIN = re.compile(rb"\r(?:\x1b\[1A)?\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")  # rich goes back to the first line of the panel
_DAY = re.compile(r"\x1b\[1m(\d{4}-\d\d-\d\d)")
_PACE = 1  # years a second
_CLOSER = 4  # turns of the mouse wheel, towards today
_ELSEWHERE = re.compile(r"@font-face \{.*?\}|<!--.*?-->", re.DOTALL)  # fonts would be downloaded


class Demo:
    """`livejoin demo` on a terminal, until it has replayed everything; it keeps serving while the context is open."""

    def __init__(self) -> None:
        self.port = free_port()
        self._leader, follower = pty.openpty()
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "service.cli", "demo", "--pace", f"{_PACE}", "--port", f"{self.port}"]
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=follower, stderr=follower)
        os.close(follower)
        self.shown = b""

    def __enter__(self) -> Demo:
        while b"The service keeps running" not in self.shown:
            try:
                self.shown += os.read(self._leader, 65536)
            except OSError:  # Linux reports the end in this way
                raise RuntimeError(self.shown.decode(errors="replace")) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        os.close(self._leader)

    def frame(self) -> str:
        """Return the first panel from this moment on, with its colours."""
        for frame in _AGAIN.split(self.shown):
            text = frame.decode().replace("\r", "").strip("\n")
            if (day := _DAY.search(text)) and day[1] >= MOMENT and ROAD in text:
                return text
        raise LookupError(f"{MOMENT}, {ROAD}")


def terminal(frame: str, path: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text("$ make demo\n"), Text.from_ansi(frame), sep="\n")
    path.write_text(_ELSEWHERE.sub("", console.export_svg(title="livejoin demo", unique_id="livejoin")))


def timeline(port: int, path: Path) -> None:
    with sync_playwright() as playwright:
        program = launched(playwright, "UTC")
        page = program.new_page(viewport={"width": 1200, "height": 840}, color_scheme="light", reduced_motion="reduce")
        page.goto(f"http://127.0.0.1:{port}/#/views/{VIEW}")
        page.locator(".timeline .note", has_text="rows in view").wait_for()
        page.locator("#link[data-state=live]").wait_for()
        box = page.locator("canvas").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
        page.keyboard.down("Control")
        for _ in range(_CLOSER):
            page.mouse.wheel(0, -100)
        page.keyboard.up("Control")
        page.mouse.move(0, 0)
        page.locator(".timeline .note", has_text=re.compile(r"^1\d rows in view")).wait_for()
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(path=path)
        program.close()


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with Demo() as demo:
        terminal(demo.frame(), folder / "terminal.svg")
        timeline(demo.port, folder / "timeline.png")
    print(f"pictures: {', '.join(f'{path.name} ({path.stat().st_size:,} bytes)' for path in sorted(folder.iterdir()))}")


if __name__ == "__main__":
    main(sys.argv[1:])
