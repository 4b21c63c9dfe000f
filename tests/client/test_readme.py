"""The example of client/README.md runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.datasets import ROOT
from tests.server_process import ServerProcess


def test_the_example(server: ServerProcess, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "client" / "README.md").read_text(), re.DOTALL)
    program = example.replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Receipt(version=3, applied=1, ignored=1,")
    assert lines[1:3] == ["{'a': 1, 'b': 2}", "1 pyarrow.Table"] and lines[-1] == "3 insert {'a': 1, 'b': 2}"
    assert not (tmp_path / "clashes.token").exists()
