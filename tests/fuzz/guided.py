"""Coverage-guided fuzzing of a target with Atheris (`pip install atheris`).

    python -m tests.fuzz.guided TARGET FOLDER [-runs=100000 -max_total_time=600 ...]

FOLDER keeps the inputs that reached new code, including the samples; the other arguments are libFuzzer's. The first bug ends the run.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["service", "streaming"]):
    from tests.fuzz.mutations import MOST_BYTES, WORDS
    from tests.fuzz.targets import TARGETS


def main(name: str, folder: Path, options: list[str]) -> None:
    target = TARGETS[name]
    folder.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(target.samples):
        (folder / f"sample-{number}").write_bytes(sample)
    words = folder.with_name(f"{folder.name}.words")
    texts = ["".join(rf"\x{byte:02x}" for byte in word) for word in (*WORDS, *target.words) if 0 < len(word) < 100]
    words.write_text("".join(f'"{text}"\n' for text in texts))
    atheris.Setup([name, f"-dict={words}", f"-max_len={MOST_BYTES}", "-timeout=10", *options, str(folder)], target.feed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
