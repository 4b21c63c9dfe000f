"""TPC-H's relations: refresh sets insert and delete orders with their lines; others change what these join with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal

from tests.service.tpc.data import COLOURS, MODES, NATIONS, PRIORITIES, SEGMENTS, Data, Row

_FIRST, _CURRENT = date(1992, 1, 1), date(1995, 6, 17)
_SIZES = [49, 14, 23, 45, 19, 3, 36, 9, 15]
_TYPES = [
    f"{size} {finish} {metal}"
    for size in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for finish in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for metal in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
]
_CONTAINERS = [f"{size} {kind}" for size in ("SM", "LG", "MED", "JUMBO", "WRAP") for kind in "CASE BOX BAG JAR PKG PACK CAN DRUM".split()]
_INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
_QUANTITIES = range(1, 51)


class TpchData(Data):
    def load(self) -> None:
        for key, name in enumerate(["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]):
            self.put("region", key, name, self.text())
        for key, (name, region) in enumerate(NATIONS):
            self.put("nation", key, name, region, self.text())
        for key in range(1, self.scaled(10_000) + 1):
            self._put_supplier(key)
        for key in range(1, self.scaled(200_000) + 1):
            self._put_part(key)
        for key in range(1, self.scaled(150_000) + 1):
            self._put_customer(key)
        self._next_order = 1
        for _ in range(self.scaled(1_500_000)):
            self._put_order()

    def kinds(self) -> Sequence[Callable[[], None]]:
        return (
            *[self._put_order] * 2, *[self._delete_order] * 2, self._delete_line, self._change_line, self._move_lines, self._change_order,
            self._change_part, self._change_supplier, self._change_customer, self._change_partsupp, self._change_nation,
            self._replace_customer, self._replace_part, self._replace_supplier,
        )  # fmt: skip

    def usual(self) -> Sequence[Callable[[], None]]:
        return self._put_order, self._delete_order

    def _nation(self) -> int:
        return int(self.one_of(range(25), [2, 3, 6, 7, 20]))

    def _put_supplier(self, key: int) -> None:
        nation = self._nation()
        self.put("supplier", key, f"Supplier#{key:09}", self.text(), nation, self._phone(nation), self.money(-99999, 999999), self.text())

    def _put_part(self, key: int) -> None:
        rng = self.rng
        name = " ".join([self.one_of(COLOURS, ["forest", "green"]), *rng.sample(COLOURS, 4)])
        brand = self.one_of([f"Brand#{one}{two}" for one in range(1, 6) for two in range(1, 6)], ["Brand#12", "Brand#23", "Brand#34"])
        type_ = self.one_of(_TYPES, ["ECONOMY ANODIZED STEEL", "PROMO PLATED BRASS"])
        price = Decimal(90000 + key // 10 % 20001 + 100 * (key % 1000)) / 100
        size, container = self.one_of(range(1, 51), _SIZES), self.one_of(_CONTAINERS, ["MED BOX", "SM BOX", "LG BOX"])
        self.put("part", key, name, f"Manufacturer#{brand[6]}", brand, type_, size, container, price, self.text())
        for supplier in {self.some("supplier")["s_suppkey"] for _ in range(4)}:
            self.put("partsupp", key, supplier, rng.randrange(1, 10000), self.money(100, 100001), self.text())

    def _put_customer(self, key: int) -> None:
        nation, segment = self._nation(), self.rng.choice(SEGMENTS)
        balance = self.money(-99999, 999999)
        self.put("customer", key, f"Customer#{key:09}", self.text(), nation, self._phone(nation), balance, segment, self.text())

    def _phone(self, nation: int) -> str:
        return f"{10 + nation}-{self.rng.randrange(100, 1000)}-{self.rng.randrange(100, 1000)}-{self.rng.randrange(1000, 10000)}"

    def _put_order(self) -> None:
        key, self._next_order = self._next_order, self._next_order + 1
        customer = self.some("customer")["c_custkey"]
        if customer % 3 == 0:  # a third of them never order
            customer = 1
        ordered = self.day(_FIRST, 2405)
        quantities = [max(_QUANTITIES)] * 7 if self.rng.random() < 0.01 else self.rng.choices(_QUANTITIES, k=self.rng.randrange(1, 8))
        for number, quantity in enumerate(quantities, 1):
            self._put_line(key, number, quantity, ordered)
        lines = self._lines(key)
        states = {line["l_linestatus"] for line in lines}
        total = sum((line["l_extendedprice"] for line in lines), Decimal(0))
        status = states.pop() if len(states) == 1 else "P"
        clerk, priority = f"Clerk#{self.rng.randrange(1000):09}", self.rng.choice(PRIORITIES)
        self.put("orders", key, customer, status, total, ordered, priority, clerk, 0, self.text())

    def _put_line(self, order: int, number: int, quantity: int, ordered: date) -> None:
        rng, offer = self.rng, self.some("partsupp")
        price = quantity * self._price(offer["ps_partkey"])
        shipped = ordered + timedelta(rng.randrange(1, 122))
        received = shipped + timedelta(rng.randrange(1, 31))
        returned = rng.choice("RA") if received <= _CURRENT else "N"
        self.put(
            "lineitem", order, offer["ps_partkey"], offer["ps_suppkey"], number, Decimal(quantity), price,
            self.money(0, 11), self.money(0, 9), returned,
            "O" if shipped > _CURRENT else "F", shipped, ordered + timedelta(rng.randrange(30, 91)), received,
            self.one_of(_INSTRUCTIONS, _INSTRUCTIONS[:1]), self.one_of(MODES, ["AIR", "MAIL"]), self.text(),
        )  # fmt: skip

    def _price(self, part: int) -> Decimal:
        row = self.rows["part"].get((part,))
        return row["p_retailprice"] if row else Decimal(1000)

    def _lines(self, order: int) -> list[Row]:
        found = (self.rows["lineitem"].get((order, number)) for number in range(1, 8))
        return [line for line in found if line is not None]

    # changes

    def _delete_order(self) -> None:
        order = self.some("orders")
        self.delete("orders", order)
        for line in self._lines(order["o_orderkey"]):
            self.delete("lineitem", line)

    def _delete_line(self) -> None:
        self.delete("lineitem", self.some("lineitem"))

    def _change_line(self) -> None:
        line, offer, quantity = self.some("lineitem"), self.some("partsupp"), self.rng.choice(_QUANTITIES)
        self.change("lineitem", line, l_partkey=offer["ps_partkey"], l_suppkey=offer["ps_suppkey"], l_quantity=Decimal(quantity))

    def _change_order(self) -> None:
        self.change("orders", self.some("orders"), o_custkey=self.some("customer")["c_custkey"], o_orderdate=self.day(_FIRST, 2405))

    def _change_part(self) -> None:
        self.change("part", self.some("part"), p_size=self.one_of(range(1, 51), _SIZES), p_type=self.rng.choice(_TYPES))

    def _change_supplier(self) -> None:
        self.change("supplier", self.some("supplier"), s_nationkey=self._nation(), s_comment=self.text())

    def _change_customer(self) -> None:
        nation, balance = self._nation(), self.money(-99999, 999999)
        self.change("customer", self.some("customer"), c_nationkey=nation, c_phone=self._phone(nation), c_acctbal=balance)

    def _change_partsupp(self) -> None:
        self.change("partsupp", self.some("partsupp"), ps_supplycost=self.money(100, 100001), ps_availqty=self.rng.randrange(1, 10000))

    def _change_nation(self) -> None:
        """Two nations exchange their names, and one its region."""
        one, other = self.some("nation"), self.some("nation")
        name = one["n_name"]
        self.change("nation", one, n_name=other["n_name"], n_regionkey=self.rng.randrange(5))
        self.change("nation", self.rows["nation"][other["n_nationkey"],], n_name=name)

    def _replace_customer(self) -> None:
        """A customer goes; of the orders, some go too, without their lines, and some move to another one; the key comes back."""
        customer = self.some("customer")
        self.delete("customer", customer)
        for order in [one for one in self.rows["orders"].values() if one["o_custkey"] == customer["c_custkey"]]:
            if self.rng.random() < 0.5:
                self.delete("orders", order)
            else:
                self.change("orders", order, o_custkey=self.some("customer")["c_custkey"])
        self._put_customer(customer["c_custkey"])

    def _replace_part(self) -> None:
        """A part goes together with its offers, and its lines lose their partner; it, or another one, comes."""
        part = self.some("part")
        offers = [one for one in self.rows["partsupp"].values() if one["ps_partkey"] == part["p_partkey"]]
        self.delete("part", part)
        for offer in offers:
            self.delete("partsupp", offer)
        self._put_part(self.same_or_new("part", part["p_partkey"]))

    def _replace_supplier(self) -> None:
        supplier = self.some("supplier")
        self.delete("supplier", supplier)
        self._put_supplier(self.same_or_new("supplier", supplier["s_suppkey"]))

    def _move_lines(self) -> None:
        """The lines of an order move to another one, which is new, and the old one goes."""
        order = self.some("orders")
        lines = self._lines(order["o_orderkey"])
        key, self._next_order = self._next_order, self._next_order + 1
        self.delete("orders", order)
        self.change("orders", order, o_orderkey=key)
        for line in lines:
            self.delete("lineitem", line)
            self.change("lineitem", line, l_orderkey=key)
