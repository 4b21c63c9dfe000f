"""Self-signed certificates for the tests: each is its own CA."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Pair:
    """A new certificate for 127.0.0.1 and localhost, in `folder`/`name`.pem, with its key. Requires the program openssl."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate, self.key = folder / f"{name}.pem", folder / f"{name}.key"
        command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run([*command, "-keyout", self.key, "-out", self.certificate], check=True, capture_output=True)
