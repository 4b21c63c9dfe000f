"""Nexmark's persons, auctions and bids, as rows that may also change and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from tests.service.tpc.data import Data, Row

_FIRST = datetime(2026, 5, 1, 7, tzinfo=UTC)
_STATES = ["OR", "ID", "CA", "WA", "AZ", "WY"]
_CHANNELS = ["Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2"]


class NexmarkData(Data):
    """Of 50 events, one is a person, three are auctions, and the others bids; an event comes every 0.1 s or later."""

    def load(self) -> None:
        self._time, self._last = _FIRST, 0
        for key in range(0, 2000, 3):
            self.put("side_input", key, f"value {key}")
        for number in range(self.scaled(300_000)):
            kind = number % 50
            (self._put_person if kind == 0 else self._put_auction if kind < 4 else self._put_bid)()

    def kinds(self) -> Sequence[Callable[[], None]]:
        return (
            self._put_person, self._put_auction, *[self._put_bid] * 6, self._delete_bid, self._change_bid, self._move_bid,
            self._change_person, self._change_auction, self._replace_auction, self._replace_person, self._change_side,
        )  # fmt: skip

    def usual(self) -> Sequence[Callable[[], None]]:
        return self._put_person, *[self._put_auction] * 3, *[self._put_bid] * 46

    def _next(self) -> tuple[int, datetime]:
        self._last += 1
        self._time += timedelta(milliseconds=self.rng.randrange(100, 30_000))
        return self._last, self._time

    def _put_person(self) -> None:
        self._put_person_as(*self._next())

    def _put_person_as(self, key: int, at: datetime) -> None:
        self.put("person", key, f"person {key}", f"{key}@example.org", "1234", f"city {key % 7}", self.rng.choice(_STATES), at, self.text())

    def _put_auction(self) -> None:
        self._put_auction_as(*self._next())

    def _put_auction_as(self, key: int, at: datetime) -> None:
        rng, seller = self.rng, self.some("person")["id"]
        if rng.random() < 0.3:  # by somebody who has come just now
            seller = max(self.rows["person"])[0]
        expires = at + timedelta(seconds=rng.randrange(10, 2000))
        bid = rng.randrange(1, 1000)
        self.put("auction", key, f"item {key}", self.text(), bid, bid * 2, at, expires, seller, rng.randrange(10, 15), self.text())

    def _put_bid(self) -> None:
        key, at = self._next()
        rng, auction = self.rng, self._auction()
        channel = rng.choice(_CHANNELS)
        url = f"https://www.nexmark.com/{rng.choice('abc')}/{rng.choice('def')}/item.htm?query=1"
        if rng.random() < 0.5:
            url += f"&channel_id={rng.randrange(1000)}"
        price = int(10 ** (rng.random() * 6) * 100)
        self.put("bid", key, auction, self.some("person")["id"], price, channel, url, at, self.text())

    def _auction(self) -> int:
        """One of the newest, or any, or one that is not there."""
        drawn = self.rng.random()
        if drawn < 0.05:
            return self._last + 1
        return int(max(self.rows["auction"])[0] if drawn < 0.5 else self.some("auction")["id"])

    # changes

    def _delete_bid(self) -> None:
        self.delete("bid", self.some("bid"))

    def _change_bid(self) -> None:
        self.change("bid", self._highest() if self.rng.random() < 0.3 else self.some("bid"), price=self.rng.randrange(100, 10**8))

    def _highest(self) -> Row:
        auction = self.some("bid")["auction"]
        return max((one for one in self.rows["bid"].values() if one["auction"] == auction), key=lambda one: int(one["price"]))

    def _move_bid(self) -> None:
        self.change("bid", self.some("bid"), auction=self._auction())

    def _change_person(self) -> None:
        self.change("person", self.some("person"), state=self.rng.choice(_STATES))

    def _change_auction(self) -> None:
        auction = self.some("auction")
        expires = auction["date_time"] + timedelta(seconds=self.rng.randrange(10, 2000))
        self.change("auction", auction, category=self.rng.randrange(10, 15), expires=expires)

    def _replace_auction(self) -> None:
        """An auction goes with some of its bids; the others lose their partner, until the key comes back in a third of the cases."""
        auction = self.some("auction")
        self.delete("auction", auction)
        for bid in [one for one in self.rows["bid"].values() if one["auction"] == auction["id"]]:
            if self.rng.random() < 0.5:
                self.delete("bid", bid)
        if self.rng.random() < 0.3:
            self._put_auction_as(auction["id"], auction["date_time"])
        else:
            self._put_auction()

    def _replace_person(self) -> None:
        person = self.some("person")
        self.delete("person", person)
        if self.rng.random() < 0.5:
            self._put_person_as(person["id"], person["date_time"])
        else:
            self._put_person()

    def _change_side(self) -> None:
        side = self.some("side_input")
        self.delete("side_input", side)
        self.put("side_input", (side["key"] + 1) % 4000, self.text())
