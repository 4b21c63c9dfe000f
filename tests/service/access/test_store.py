"""The file of tokens, and the service's view of it."""

from __future__ import annotations

import math
import os
import re
import threading
from pathlib import Path

import pytest

from service.access.access_token import AccessToken, Scope, digest, new_text
from service.access.admin_file import NAME, BadAdminFile, take_admin_token
from service.access.guard import Guard
from service.access.store import TOKENS, add_token, end_token_mode, read_tokens, remove_token
from service.durability.folder import DamagedFolder, FolderInUse, FolderLock
from service.errors import Problem

TEXT = new_text()


def token(name: str, text: str = "", scope: Scope = "admin", expires: float = math.inf, views: frozenset[str] | None = None) -> AccessToken:
    return AccessToken(name, scope, views and frozenset(), views, expires, 1000.0, digest(text or new_text()))


def test_the_first_token_begins_token_mode_and_the_last_does_not_end_it(tmp_path: Path) -> None:
    assert read_tokens(tmp_path) is None
    with pytest.raises(Problem, match="forbidden"):
        add_token(tmp_path, token("a"), begin=False)
    assert read_tokens(tmp_path) is None
    assert add_token(tmp_path, token("a"), begin=True)
    assert not add_token(tmp_path, token("b"), begin=False)
    assert list(read_tokens(tmp_path) or ()) == ["a", "b"]
    assert (tmp_path / TOKENS).stat().st_mode & 0o777 == 0o600
    remove_token(tmp_path, "a")
    remove_token(tmp_path, "b")
    assert read_tokens(tmp_path) == {} and Guard(tmp_path).refresh()
    assert os.listdir(tmp_path) == [TOKENS]


def test_names_are_used_once(tmp_path: Path) -> None:
    first = token("a")
    add_token(tmp_path, first, begin=True)
    with pytest.raises(Problem, match="definition-differs"):
        add_token(tmp_path, token("a"), begin=True)
    assert read_tokens(tmp_path) == {"a": first}
    with pytest.raises(Problem, match="not-found"):
        remove_token(tmp_path, "b")


def test_the_last_admin_token_stays_where_it_must(tmp_path: Path) -> None:
    others = (token("reader", scope="read"), token("former", expires=2000.0), token("of_some", views=frozenset("v")))
    for one in (token("a"), token("b"), *others):
        add_token(tmp_path, one, begin=True)
    remove_token(tmp_path, "b", keep_admin_at=2000.0)
    with pytest.raises(Problem, match="forbidden"):
        remove_token(tmp_path, "a", keep_admin_at=2000.0)
    for one in others:
        remove_token(tmp_path, one.name, keep_admin_at=2000.0)
    assert list(read_tokens(tmp_path) or ()) == ["a"]
    remove_token(tmp_path, "a")


def test_token_mode_ends_only_offline(tmp_path: Path) -> None:
    add_token(tmp_path, token("a"), begin=True)
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderInUse):
        end_token_mode(tmp_path)
    assert read_tokens(tmp_path)
    lock.release()
    assert end_token_mode(tmp_path) == 1
    assert read_tokens(tmp_path) is None and not Guard(tmp_path).refresh()


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    add_token(tmp_path, token("a"), begin=True)
    path = tmp_path / TOKENS
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :])
        with pytest.raises(DamagedFolder, match=re.escape(str(path))):
            read_tokens(tmp_path)
    path.write_bytes(sound[:-20])
    with pytest.raises(DamagedFolder):
        Guard(tmp_path)
    assert end_token_mode(tmp_path) == 0  # the way out


def test_a_newer_file_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.access.store.FORMAT", 2)
        add_token(tmp_path, token("a"), begin=True)
    with pytest.raises(DamagedFolder, match="format 2 instead of 1"):
        read_tokens(tmp_path)


def test_tokens_created_at_once_are_all_there(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(8)]
    threads = [threading.Thread(target=add_token, args=(tmp_path, token(name)), kwargs={"begin": True}) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(read_tokens(tmp_path) or ()) == names


def test_a_guard_sees_each_change_at_its_next_look(tmp_path: Path) -> None:
    clock = [2000.0]
    guard = Guard(tmp_path, now=lambda: clock[0], pause=0)
    assert not guard.refresh() and guard.find(TEXT) is None
    made = token("a", TEXT, expires=3000.0)
    add_token(tmp_path, made, begin=True)
    assert guard.refresh() and guard.find(TEXT) == made == guard.find(TEXT)
    assert guard.is_in_force(made)
    clock[0] = 3000.0
    assert not guard.is_in_force(made)
    clock[0] = 2000.0
    for wrong in (TEXT[:-1], TEXT + "a", TEXT.swapcase(), "", "lj_", "a" * 46, TEXT + "\n"):
        assert guard.find(wrong) is None
    other = new_text()
    add_token(tmp_path, token("a", other), begin=True, replace=True)
    assert not guard.is_in_force(made)
    assert guard.find(TEXT) is None and guard.find(other) is not None
    remove_token(tmp_path, "a")
    assert guard.refresh() and guard.find(other) is None and guard.all() == []


def test_a_running_service_never_leaves_token_mode(tmp_path: Path) -> None:
    add_token(tmp_path, token("a", TEXT), begin=True)
    guard = Guard(tmp_path, pause=0)
    found = guard.find(TEXT)
    assert found is not None and guard.is_in_force(found)
    (tmp_path / TOKENS).unlink()
    assert guard.refresh() and guard.find(TEXT) is None and not guard.is_in_force(found)


@pytest.mark.parametrize("pause", [0.0, 60.0])
def test_a_file_damaged_under_way_lets_nobody_in(tmp_path: Path, pause: float) -> None:
    """Seen: of the requests within a pause, only the first was told that the file is damaged; the others, that their token is not valid."""
    add_token(tmp_path, token("a", TEXT), begin=True)
    guard = Guard(tmp_path, pause=pause)
    found = guard.find(TEXT)
    assert found is not None
    (tmp_path / TOKENS).write_bytes(b"{}\n")
    guard.look_again()
    for _ in range(2):
        assert not guard.is_in_force(found)
        with pytest.raises(DamagedFolder):
            guard.refresh()
        assert guard.find(TEXT) is None


def test_the_admin_token_of_a_file(tmp_path: Path) -> None:
    folder, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text(f"{TEXT}\n")
    take_admin_token(folder, secret)
    take_admin_token(folder, secret)
    found = Guard(folder).find(TEXT)
    assert found is not None and found.name == NAME and found.covers_all and found.has("admin")
    assert folder.stat().st_mode & 0o777 == 0o700
    other = new_text()
    secret.write_text(other)
    take_admin_token(folder, secret)
    assert Guard(folder).find(TEXT) is None and Guard(folder).find(other) is not None
    for bad in ("", "lj_short", "hunter2" * 10, f"{TEXT}\n{TEXT}", "é" * 50):
        secret.write_text(bad)
        with pytest.raises(BadAdminFile) as caught:
            take_admin_token(folder, secret)
        assert bad == "" or bad not in str(caught.value)
    secret.unlink()
    with pytest.raises(BadAdminFile, match="No such file"):
        take_admin_token(folder, secret)
    assert Guard(folder).find(other) is not None
