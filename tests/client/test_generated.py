"""The half of the client without asyncio is what `client/generate.py` writes."""

from __future__ import annotations

import importlib.util

import livejoin
from tests.datasets import ROOT


def test_the_generated_half_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "client" / "generate.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    files = generate.generated()
    assert len(files) > 5
    stale = [path.name for path, text in files.items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run `make client`"
    assert set((ROOT / "client" / "livejoin" / "_sync").glob("*.py")) == files.keys()


def test_both_halves_offer_the_same() -> None:
    for name in ("Client", "Relation", "View", "Batch", "Rows", "Arrow", "Changes", "Follow"):
        one, other = getattr(livejoin, name), getattr(livejoin, f"Async{name}")
        assert {word for word in dir(one) if word[0] != "_"} == {
            {"aclose": "close"}.get(word, word) for word in dir(other) if word[0] != "_"
        }
