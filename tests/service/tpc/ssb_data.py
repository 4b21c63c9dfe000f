"""The relations of the Star Schema Benchmark: TPC-H's orders and lines as one relation, among four dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta

from tests.service.tpc.data import COLOURS, MODES, NATIONS, PRIORITIES, SEGMENTS, Data

_REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
_FIRST, _DAYS = date(1992, 1, 1), 2556


class SsbData(Data):
    def load(self) -> None:
        for number in range(_DAYS):
            self._put_day(_FIRST + timedelta(number))
        for key in range(1, self.scaled(30_000) + 1):
            self._put_customer(key)
        for key in range(1, self.scaled(2_000) + 1):
            self._put_supplier(key)
        for key in range(1, self.scaled(200_000) + 1):
            self._put_part(key)
        self._next_order = 1
        for _ in range(self.scaled(1_500_000)):
            self._put_order()

    def kinds(self) -> Sequence[Callable[[], None]]:
        return (
            self._put_order, self._put_order, self._delete_line, self._delete_line, self._change_line, self._move_line,
            self._replace_customer, self._replace_supplier, self._replace_part, self._change_day,
        )  # fmt: skip

    def usual(self) -> Sequence[Callable[[], None]]:
        return self._put_order, *[self._delete_line] * 4

    def _place(self) -> tuple[str, str, str]:
        name, region = self.one_of(NATIONS, [("UNITED STATES", 1), ("UNITED KINGDOM", 3), ("JAPAN", 2)])
        return f"{name[:9]:9}{self.one_of(range(10), [1, 5])}", name, _REGIONS[region]

    def _put_day(self, day: date) -> None:
        season = "Christmas" if day.month == 12 else "Summer" if day.month in (6, 7, 8) else "Winter"
        self.put(
            "dates", int(f"{day:%Y%m%d}"), f"{day:%B %d, %Y}", f"{day:%A}", f"{day:%B}", day.year, int(f"{day:%Y%m}"), f"{day:%b%Y}",
            day.isoweekday(), day.month, day.timetuple().tm_yday // 7 + 1, season,
        )  # fmt: skip

    def _put_customer(self, key: int) -> None:
        self.put("customer", key, f"Customer#{key:09}", self.text(), *self._place(), "10-100", self.rng.choice(SEGMENTS))

    def _put_supplier(self, key: int) -> None:
        self.put("supplier", key, f"Supplier#{key:09}", self.text(), *self._place(), "10-100")

    def _put_part(self, key: int) -> None:
        category = self.one_of([f"MFGR#{one}{two}" for one in range(1, 6) for two in range(1, 6)], ["MFGR#12", "MFGR#14", "MFGR#22"])
        brand = f"{category}{self.one_of(range(1, 41), [21, 25])}"
        colours = self.rng.sample(COLOURS, 2)
        self.put("part", key, " ".join(colours), category[:6], category, brand, colours[0], "STANDARD", self.rng.randrange(1, 51), "SM BOX")

    def _put_order(self) -> None:
        key, self._next_order = self._next_order, self._next_order + 1
        for number in range(1, self.rng.randrange(2, 9)):
            self._put_line(key, number)

    def _put_line(self, order: int, number: int) -> None:
        rng = self.rng
        quantity, price, discount = rng.randrange(1, 51), rng.randrange(90_000, 110_000), rng.randrange(11)
        keys = self.some("customer")["c_custkey"], self.some("part")["p_partkey"], self.some("supplier")["s_suppkey"]
        self.put(
            "lineorder", order, number, *keys, self._day(), rng.choice(PRIORITIES), "0", quantity, quantity * price, quantity * price * 3,
            discount, quantity * price * (100 - discount) // 100, 6 * price // 10, rng.randrange(9), self._day(), rng.choice(MODES),
        )  # fmt: skip

    def _day(self) -> int:
        return int(f"{self.day(_FIRST, 2405):%Y%m%d}") if self.rng.random() < 0.9 else int(f"{self.day(date(1997, 12, 1), 31):%Y%m%d}")

    # changes

    def _delete_line(self) -> None:
        self.delete("lineorder", self.some("lineorder"))

    def _change_line(self) -> None:
        line = self.some("lineorder")
        self.change("lineorder", line, lo_revenue=self.rng.randrange(10**7), lo_discount=self.rng.randrange(11))

    def _move_line(self) -> None:
        customer, part = self.some("customer")["c_custkey"], self.some("part")["p_partkey"]
        self.change("lineorder", self.some("lineorder"), lo_custkey=customer, lo_partkey=part, lo_orderdate=self._day())

    def _replace_customer(self) -> None:
        customer = self.some("customer")
        self.delete("customer", customer)
        self._put_customer(self.same_or_new("customer", customer["c_custkey"]))

    def _replace_supplier(self) -> None:
        supplier = self.some("supplier")
        self.delete("supplier", supplier)
        self._put_supplier(self.same_or_new("supplier", supplier["s_suppkey"]))

    def _replace_part(self) -> None:
        part = self.some("part")
        self.delete("part", part)
        self._put_part(self.same_or_new("part", part["p_partkey"]))

    def _change_day(self) -> None:
        """A day moves to another year and week."""
        day = self.some("dates")
        self.change("dates", day, d_year=self.rng.randrange(1992, 1999), d_weeknuminyear=self.one_of(range(1, 54), [6]))
