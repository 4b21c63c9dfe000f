"""Tokens: what this folder sealed opens, and nothing else does; which versions they stand for, over timelines."""

from __future__ import annotations

import base64
import string
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from service.reading.tokens import ForgedToken, Signer, Token, Tokens

SECRET = bytes(range(32))
SIGNER = Signer("the folder", SECRET)
MAC = 16
FIELDS = st.lists(st.text(max_size=20) | st.integers(-(2**63), 2**63 - 1), max_size=5)
URL_SAFE = set(string.ascii_letters + string.digits + "-_")


def data_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def spelled(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forged(text: str, signer: Signer = SIGNER, kind: str = "cursor") -> None:
    with pytest.raises(ForgedToken) as caught:
        signer.open(kind, text)
    assert caught.value.args == (text,)


def of_every_length() -> list[str]:
    """Texts whose last character stands for 2, 4 and 6 bits of the payload."""
    texts = [SIGNER.seal("cursor", "view v", "x" * more) for more in range(3)]
    assert {len(data_of(text)) % 3 for text in texts} == {0, 1, 2}
    return texts


@given(kind=st.text(max_size=10), fields=FIELDS)
@example(kind="cursor", fields=["view v 00ff", 17])
@example(kind="", fields=[])
@example(kind="ä", fields=['"', "\\", "\0", "\udc80", "", -(2**63), 2**63 - 1, 0])
def test_fields_come_back(kind: str, fields: list[Any]) -> None:
    text = SIGNER.seal(kind, *fields)
    assert set(text) <= URL_SAFE, "it goes into URLs and headers as it is"
    assert SIGNER.open(kind, text) == fields and SIGNER.seal(kind, *fields) == text


@given(FIELDS, FIELDS)
def test_different_fields_have_different_texts(some: list[Any], others: list[Any]) -> None:
    assume(some != others)
    assert SIGNER.seal("cursor", *some) != SIGNER.seal("cursor", *others)
    assert data_of(SIGNER.seal("cursor", *some))[:MAC] != data_of(SIGNER.seal("cursor", *others))[:MAC]


@pytest.mark.parametrize("kind", ["feed", "", "Cursor", "cursor ", "curso"])
def test_another_kind(kind: str) -> None:
    forged(SIGNER.seal(kind, "view v", 1))
    forged(SIGNER.seal("cursor", "view v", 1), kind=kind)
    assert SIGNER.open(kind, SIGNER.seal(kind, "cursor")) == ["cursor"]


@pytest.mark.parametrize(
    "other",
    [
        Signer("another folder", SECRET), Signer("the folder", SECRET[::-1]), Signer("the folder", SECRET + b"!"), Signer("", SECRET),
        Signer("the folder\0", SECRET),
    ],
    ids=["folder", "secret", "longer secret", "no folder", "folder with a zero"],
)  # fmt: skip
def test_another_folder_or_secret(other: Signer) -> None:
    forged(SIGNER.seal("cursor", "view v", 1), other)
    forged(other.seal("cursor", "view v", 1))
    assert other.open("cursor", other.seal("cursor", "view v", 1)) == ["view v", 1]


def test_another_start() -> None:
    text = Signer("the folder", SECRET).seal("token", 1, "v", "00ff", 7)
    assert SIGNER.open("token", text) == [1, "v", "00ff", 7]


def test_tokens_on_timelines() -> None:
    """A timeline is left where the next one begins, or a later one that began before that: what was behind it is lost."""
    timelines = [(1, 0), (5, 100), (7, 200), (9, 150)]
    for number, last in ((1, 100), (5, 150), (7, 150), (9, 10**9)):
        at_the_time = Tokens(SIGNER, [*timelines[: [n for n, _ in timelines].index(number)], (number, 0)])
        for version in (0, last - 1, last, last + 1):
            found = Tokens(SIGNER, timelines).open(at_the_time.seal("v", "00ff", version))
            assert found == Token("v", "00ff", version, version <= last or number == 9), (number, version)
    unknown = Tokens(SIGNER, [(1, 0), (6, 0)]).seal("v", "00ff", 0)
    assert not Tokens(SIGNER, timelines).open(unknown).is_of_here, "of another copy of the folder"
    with pytest.raises(ForgedToken):
        Tokens(SIGNER, timelines).open(SIGNER.seal("cursor", 9, "v", "00ff", 0))


def test_every_flipped_bit_of_what_was_sealed() -> None:
    for text in of_every_length():
        data = data_of(text)
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit >> 3] ^= 1 << (bit & 7)
            forged(spelled(bytes(flipped)))


def test_every_flipped_bit_of_the_text() -> None:
    """Of the last character some bits stand for nothing: flipping them is another spelling of the same."""
    for text in of_every_length():
        again = 0
        for bit in range(7 * len(text)):
            at = bit // 7
            flipped = text[:at] + chr(ord(text[at]) ^ 1 << bit % 7) + text[at + 1 :]
            same = set(flipped) <= URL_SAFE and data_of(flipped) == data_of(text)
            again += same
            if same:
                assert SIGNER.open("cursor", flipped) == SIGNER.open("cursor", text) and at == len(text) - 1
            else:
                forged(flipped)
        assert again == 0 or len(text) % 4 != 0


def test_what_is_cut_off_or_added() -> None:
    for text in of_every_length():
        for length in range(len(text)):
            forged(text[:length])
            forged(text[length + 1 :])
        for more in ("A", "AA", "AAAA", text, " ", "\n", "\0", ".", "~", "é"):
            forged(text + more)
            forged(more + text)
        forged(text[: len(text) // 2] + "\n" + text[len(text) // 2 :])
    for length in range(MAC + 2):
        forged(spelled(bytes(length)))


def same_or_forged(text: str, spelling: str) -> None:
    """What base64 takes for another spelling of the same bytes may open, with the same fields."""
    try:
        assert SIGNER.open("cursor", spelling) == SIGNER.open("cursor", text)
    except ForgedToken:
        pass


def test_padding() -> None:
    for text in of_every_length():
        missing = -len(text) % 4
        assert "=" not in text and SIGNER.open("cursor", text + "=" * missing) == SIGNER.open("cursor", text)
        for more in range(9):
            same_or_forged(text, text + "=" * more)
        for wrong in ("=" + text, "=" * 4 + text, text[:4] + "=" + text[4:], text[:8] + "====" + text[8:], text[:-1] + "="):
            forged(wrong)
    for count in range(1, 9):
        forged("=" * count)


def test_what_is_no_base64() -> None:
    text = SIGNER.seal("cursor", "view v", 1)
    forged("")
    for strange in (" ", "\0", "é", "🦉", "\udc80", "\uff41", "\u0663", "%2B", "{}", "null", "\n", "\r\n"):
        forged(strange)
        for at in (0, 7, len(text)):
            forged(text[:at] + strange + text[at:])
            forged(text[:at] + strange + text[at + len(strange) :])


@given(st.text(max_size=80) | st.text(sorted(URL_SAFE | {"=", "+", "/"}), max_size=80))
def test_any_text(text: str) -> None:
    forged(text)


@given(st.binary(min_size=MAC, max_size=60), st.data())
def test_any_bytes_behind_a_mac_of_ours(payload: bytes, data: st.DataObject) -> None:
    mac = data_of(SIGNER.seal("cursor", "view v", 1))[:MAC]
    forged(spelled(mac + payload))
    at, to = sorted((data.draw(st.integers(0, len(payload))), data.draw(st.integers(0, len(payload)))))
    forged(spelled(payload[:at] + mac + payload[to:]))
