"""What a token is for, and what cannot be one."""

from __future__ import annotations

import math
from typing import Any

from service.access.access_token import EVERYONE, PREFIX, SCOPES, TEXT, AccessToken, digest, make, moment, new_text, of_json

NOW = 1_800_000_000.0  # 2027-01-15


def made(**form: Any) -> AccessToken:
    return make({"name": "etl", "scope": "read", **form}, "lj_" + "a" * 43, NOW)


def test_who_names_neither_gets_all_and_who_names_one_kind_gets_none_of_the_other() -> None:
    everything, some, mixed = made(), made(relations=["a", "b"]), made(relations=["a"], views=["*"])
    assert everything.covers_all and everything.covers_relation("x") and everything.covers_view("x")
    assert some.covers_relation("a") and not some.covers_relation("c") and not some.covers_view("a") and not some.covers_all
    assert mixed.covers_relation("a") and not mixed.covers_relation("b") and mixed.covers_view("any")
    assert not made(views=["v"]).covers_relation("v") and made(relations=None, views=None).covers_all


def test_each_scope_includes_those_before_it() -> None:
    held = {scope: [wanted for wanted in SCOPES if made(scope=scope).has(wanted)] for scope in SCOPES}
    assert held == {"read": ["read"], "write": ["read", "write"], "admin": ["read", "write", "admin"]}
    assert EVERYONE.has("admin") and EVERYONE.covers_all


def test_expiry_is_told_in_utc() -> None:
    token = made(expires="2030-01-01T02:00:00.5+02:00")
    assert token.expires == 1_893_456_000 and token.to_json()["expires"] == "2030-01-01T00:00:00Z" == moment(token.expires)
    assert made().to_json()["expires"] is None and math.isinf(made().expires)


def test_what_is_kept_gives_the_same_token_and_not_its_text() -> None:
    for form in ({}, {"relations": ["b", "a"], "views": ["*"]}, {"views": ["v"], "expires": "2030-01-01T00:00:00Z"}):
        token = made(**form)
        shown = token.to_json()
        assert "sha256" not in shown and "token" not in shown
        assert of_json(shown | {"sha256": token.digest.hex()}) == token
    assert made(relations=["b", "a", "b"], views=["*", "v"]).to_json()["relations"] == ["a", "b"]
    assert made(relations=["b"], views=["*", "v"]).to_json()["views"] == ["*"]


def test_texts_cannot_be_guessed() -> None:
    texts = {new_text() for _ in range(100)}
    assert len(texts) == 100 and all(TEXT.fullmatch(text) and text.startswith(PREFIX) and len(text) == 46 for text in texts)
    assert len({digest(text) for text in texts}) == 100
