"""The browser of the dashboard's tests: `LIVEJOIN_BROWSER`, one that is installed, or the Chromium that a package of npm carries.

`python -m tests.dashboard.chromium` sets it up, in some seconds the first time; a test that finds none does so itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Playwright

PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
DIGEST = "18fe5404ce845594cd7d592fc07f37a19514079ba4d9c27192ad8b908743f16b"
HOME = Path(sys.prefix) / "browser" / VERSION
FRAMES = """() => {
    window.frames_ = [];
    const next = (now) => { window.frames_.push(now); requestAnimationFrame(next); };
    requestAnimationFrame(next);
}"""
"""Evaluated in a page, it notes the time of each frame from now on, in milliseconds."""
_INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PARTS = {"chromium": "chromium", "al2023.tar": "libraries", "swiftshader.tar": "", "fonts.tar": "fonts"}  # in bin/*.br → where it goes
_UNPACK = """
const [from, to] = process.argv.slice(1), fs = require("fs");
fs.writeFileSync(to, require("zlib").brotliDecompressSync(fs.readFileSync(from)));
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{home}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{home}/cache</cachedir>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


class NoBrowser(Exception):
    """There is none, and none can be fetched. The message says what to install."""


class Browser(NamedTuple):
    path: str
    arguments: list[str]
    environment: dict[str, str]


def browser() -> Browser:
    """The first that there is. Raises NoBrowser."""
    named = os.environ.get("LIVEJOIN_BROWSER")
    if named and not shutil.which(named):
        raise NoBrowser(f"LIVEJOIN_BROWSER names {named}, which is no program: correct or unset it")
    for name in (named, *_INSTALLED):
        if name and (found := shutil.which(name)):
            return Browser(found, ["--no-sandbox"] if os.geteuid() == 0 else [], {})
    if not HOME.exists():
        _set_up()
    environment = {"FONTCONFIG_PATH": str(HOME), "LD_LIBRARY_PATH": str(HOME / "libraries" / "lib")}
    return Browser(str(HOME / "chromium"), ["--no-sandbox", "--no-zygote", "--disable-gpu"], environment)


def launched(playwright: Playwright, zone: str) -> Chromium:
    """It runs, with its clock in this time zone. Raises NoBrowser."""
    found = browser()
    environment = {**os.environ, **found.environment, "TZ": zone}
    return playwright.chromium.launch(executable_path=found.path, args=found.arguments, env=environment)


def _set_up() -> None:
    """Fetch and unpack the package. Several processes may come at once: one does it."""
    HOME.parent.mkdir(parents=True, exist_ok=True)
    with open(HOME.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if HOME.exists():
            return
        with tempfile.TemporaryDirectory(dir=HOME.parent) as position:
            folder = Path(position)
            with tarfile.open(_fetched(folder)) as package:
                package.extractall(folder, filter="data")
            made = folder / "made"
            made.mkdir()
            for name, target in _PARTS.items():
                _unpack(folder / "package" / "bin" / f"{name}.br", made, name, target)
            (made / "fonts.conf").write_text(_FONTS.format(home=HOME))
            made.rename(HOME)


def _fetched(folder: Path) -> Path:
    """The package's file, as its digest proves."""
    missing = [name for name in ("npm", "node") if shutil.which(name) is None]
    advice = "install Chromium (chromium or google-chrome), name a browser in LIVEJOIN_BROWSER, or install Node.js with npm"
    if missing:
        raise NoBrowser(f"the tests of the dashboard need a browser, and {' and '.join(missing)} to fetch one are missing: {advice}")
    command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent", "--pack-destination", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoBrowser(f"npm cannot fetch {PACKAGE}@{VERSION}: {done.stderr.strip()}\n{advice}")
    (file,) = folder.glob("*.tgz")
    if hashlib.sha256(file.read_bytes()).hexdigest() != DIGEST:
        raise NoBrowser(f"what npm has fetched is not {PACKAGE}@{VERSION}: its digest differs from the one in {__name__}")
    return file


def _unpack(file: Path, folder: Path, name: str, target: str) -> None:
    plain = folder / name
    subprocess.run(["node", "-e", _UNPACK, str(file), str(plain)], check=True)
    if name.endswith(".tar"):
        with tarfile.open(plain) as archive:
            archive.extractall(folder / target, filter="data")
        plain.unlink()
    else:
        plain.chmod(0o755)


if __name__ == "__main__":
    try:
        print(f"browser: {browser().path}")
    except NoBrowser as error:
        sys.exit(f"livejoin: {error}")
