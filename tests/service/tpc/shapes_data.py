"""Small relations with many ties and nulls, whose changes meet: batches move join keys, and delete the partners of what they insert."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.service.tpc.data import Data, Row

_KEYS, _VALUES = range(5), range(6)


class ShapesData(Data):
    times = 5

    def load(self) -> None:
        self._last = 0
        for name in self.relations:
            for _ in range(14):
                self._put(name)

    def kinds(self) -> Sequence[Callable[[], None]]:
        return (
            self._put_some, self._put_some, self._delete, self._delete, self._move, self._move, self._change, self._exchange,
            self._replace_partners, self._replace, self._delete_key, self._change_greatest, self._perhaps_empty,
        )  # fmt: skip

    def _put(self, name: str, key: int | None = None) -> None:
        self._last += 1
        self.put(name, self._last, self._drawn(name, _KEYS) if key is None else key, self._drawn(name, _VALUES), self.rng.choice("aab"))

    def _drawn(self, name: str, values: Sequence[int]) -> int | None:
        return None if name != "w" and self.rng.random() < 0.1 else self.rng.choice(values)

    def _name(self) -> str:
        """Mostly one of the first three, which most shapes read."""
        return self.rng.choice("rrrssttuvw")

    def _one(self) -> tuple[str, Row]:
        """Return a row of a relation; relations are kept from becoming empty."""
        name = self._name()
        while len(self.rows[name]) < 4:
            self._put(name)
        return name, self.some(name)

        self._put(self._name())

    def _put_some(self) -> None:
        self._put(self._name())

    def _delete(self) -> None:
        self.delete(*self._one())

    def _move(self) -> None:
        name, row = self._one()
        self.change(name, row, k=self._drawn(name, _KEYS))

    def _change(self) -> None:
        name, row = self._one()
        self.change(name, row, x=self._drawn(name, _VALUES), g=self.rng.choice("ab"))

    def _exchange(self) -> None:
        """Two rows exchange their keys."""
        name, one = self._one()
        other = self.some(name)
        key = one["k"]
        self.change(name, one, k=other["k"])
        self.change(name, other, k=key)

    def _replace_partners(self) -> None:
        """A row moves to another key; all partners there go, and one comes."""
        name, row = self._one()
        key, other = self.rng.choice(_KEYS), self._name()
        self.change(name, row, k=key)
        for partner in [one for one in self.rows[other].values() if one["k"] == key and (other, one["id"]) != (name, row["id"])]:
            self.delete(other, partner)
        self._put(other, key)

    def _replace(self) -> None:
        """A row goes, and comes again as another one."""
        name, row = self._one()
        self.delete(name, row)
        self.put(name, row["id"], self._drawn(name, _KEYS), self._drawn(name, _VALUES), row["g"])

    def _delete_key(self) -> None:
        """A key goes from one relation, and another relation's rows take it."""
        name, row = self._one()
        for one in [one for one in self.rows[name].values() if one["k"] == row["k"]]:
            self.delete(name, one)
        if row["k"] is not None:
            other, moved = self._one()
            self.change(other, moved, k=row["k"])

    def _perhaps_empty(self) -> None:
        """A relation loses all of its rows, and mostly gets others."""
        if self.rng.random() < 0.2:
            self.truncate(name := self._name())
            for _ in range(self.rng.choice((0, 5, 14, 14))):
                self._put(name)

    def _change_greatest(self) -> None:
        """The greatest value of all, or of a key, goes, or another one comes."""
        name, row = self._one()
        of = [one for one in self.rows[name].values() if one["x"] is not None and self.rng.choice((True, one["k"] == row["k"]))]
        if of:
            greatest = max(of, key=lambda one: int(one["x"]))
            self.change(name, greatest, x=self.rng.choice((0, greatest["x"] + 1, 6)))
