"""Each row of a join is found in one cell, whatever the layout; and cells are about equally full. Pure NumPy, without Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from service.query.model import Query
from streaming.cluster import layout as layouts
from streaming.cluster import stream_layout
from streaming.cluster.candidates import NotDistributable, choose
from streaming.cluster.layout import Coordinate, CoordinateValues, Layout, Member, Role, RoutedRows
from streaming.cluster.sampling import Sample, bounds_of, pairs_of

LOW, HIGH = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Row(NamedTuple):
    key: int
    start: int
    end: int
    tie: int


Join = dict[str, list[Row]]


def rows(most: int = 6) -> st.SearchStrategy[list[Row]]:
    """Few values, so that starts, keys and ties are equal, intervals touch, and some are open."""
    start = st.sampled_from([LOW, 0, 1, 2, 3])
    length = st.sampled_from([0, 0, 1, 2, 9, HIGH])
    key, tie = st.sampled_from([0, 0, 0, 1]), st.integers(-1, 1)
    row = st.builds(lambda key, start, length, tie: Row(key, start, min(HIGH, max(start, 0) + length), tie), key, start, length, tie)
    return st.lists(row, max_size=most)


@st.composite
def clique(draw: st.DrawFn) -> tuple[Layout, Join]:
    """Two or three members that all overlap, with a key."""
    aliases = [f"t{number}" for number in range(draw(st.integers(2, 3)))]
    relations = {alias: draw(rows()) for alias in aliases}
    point = st.tuples(st.integers(-1, 1), st.integers(-1, 6), st.integers(-1, 1))
    starts = [(row.key, row.start, row.tie) for own in relations.values() for row in own]  # of which quantiles are made
    bounds = tuple(sorted(draw(st.lists(st.one_of(st.sampled_from(starts), point) if starts else point, max_size=6))))
    members = {alias: Member(("key",), "i") for alias in aliases}
    slabs = Coordinate("slabs", members, len(bounds) + 1, bounds)
    hot = draw(st.sampled_from([None, (), (0,)]))
    bands = Coordinate("bands", members, draw(st.integers(1, 5)), width=draw(st.sampled_from([1, 2, 3, HIGH])), hot=hot)
    return Layout(tuple((alias, alias) for alias in aliases), (draw(st.sampled_from([bands, slabs])),)), relations


def arrays(some: Sequence[Row]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    keys, starts, ends, ties = np.array(some, np.int64).reshape(-1, 4).T
    return keys, starts, ends, ties


def found(layout: Layout, relations: Join, meets: Callable[[tuple[Row, ...]], bool]) -> Counter[tuple[int, ...]]:
    """What all cells report: combinations of places of rows, each as often as it is reported."""
    held: list[dict[str, list[tuple[int, list[Any]]]]] = [{alias: [] for alias, _ in layout.aliases} for _ in range(layout.cells)]
    for number, (alias, relation) in enumerate(layout.aliases):
        role = layout._role(layout.aliases[number])
        keys, starts, ends, ties = arrays(relations[relation])
        ends_of = {True: CoordinateValues(keys, starts, ends), False: CoordinateValues(keys)}
        own = [None if one is None else ends_of[bool(one.interval)] for one in role.members]
        routed = layout.route(role, ties, own)
        is_first = layout.firsts(role)[routed.cells]
        for flags in routed.here:
            is_first = is_first if flags is None else is_first & flags
        assert sorted(routed.rows[is_first].tolist()) == list(range(len(ties))), "of the copies of a row, one is the first"
        for copy, (cell, row) in enumerate(zip(routed.cells.tolist(), routed.rows.tolist(), strict=True)):
            held[cell][alias].append((row, [None if one is None else bool(one[copy]) for one in routed.here]))
    reported: Counter[tuple[int, ...]] = Counter()
    aliases = [alias for alias, _ in layout.aliases]
    for cell, tests in product(held, layout.home_tests()):
        for chosen in product(*(cell[alias] for alias in aliases)):
            flags = dict(zip(aliases, (one[1] for one in chosen), strict=True))
            rows = {alias: relations[name][one[0]] for (alias, name), one in zip(layout.aliases, chosen, strict=True)}
            last = [(number, max(intervals, key=lambda alias, rows=rows: rows[alias].start)) for number, intervals in layout.homes()]
            is_home = all(flags[alias][number] for number, alias in last)
            if is_home and all(flags[alias][number] == wanted for alias, number, wanted in tests):
                combination = tuple(one[0] for one in chosen)
                if meets(tuple(relations[name][row] for (_, name), row in zip(layout.aliases, combination, strict=True))):
                    reported[combination] += 1
    return reported


def expected(layout: Layout, relations: Join, meets: Callable[[tuple[Row, ...]], bool]) -> Counter[tuple[int, ...]]:
    parts = [list(enumerate(relations[name])) for _, name in layout.aliases]
    return Counter(tuple(position for position, _ in some) for some in product(*parts) if meets(tuple(row for _, row in some)))


def all_overlap(some: tuple[Row, ...]) -> bool:
    return len({row.key for row in some}) == 1 and max(row.start for row in some) <= min(row.end for row in some)


def check_clique(drawn: tuple[Layout, Join]) -> None:
    layout, relations = drawn
    assert Layout.of_json(layout.to_json()) == layout
    assert found(layout, relations, all_overlap) == expected(layout, relations, all_overlap)


@settings(max_examples=200)
@given(clique())
def test_a_clique_is_reported_once(drawn: tuple[Layout, Join]) -> None:
    check_clique(drawn)


def _first_alias_at_home(layout: Layout) -> Iterator[list[tuple[str, int, bool]]]:
    yield [(next(iter(one.members)), number, True) for number, one in enumerate(layout.coordinates)]


def _first_start_at_home(layout: Layout) -> Iterator[list[tuple[str, int, bool]]]:
    """The place of the member that starts first, in place of the last one's: those that start later are not there, unless they start there
    too."""
    yield [(alias, number, True) for number, one in enumerate(layout.coordinates) for alias in one.members]


_ROUTE = Layout.route


def _not_to_the_end(layout: Layout, role: Role, ties: Any, given: Sequence[CoordinateValues | None]) -> RoutedRows:
    """`<` for `<=`."""
    shorter = [one and one._replace(ends=np.maximum(one.starts, one.ends - (one.ends > LOW))) for one in given]
    return _ROUTE(layout, role, ties, shorter)


def _everywhere(layout: Layout) -> Iterator[tuple[int, dict[str, str]]]:
    yield from ()


@pytest.mark.parametrize(
    ("name", "planted"),
    [("route", _not_to_the_end), ("home_tests", _first_alias_at_home), ("home_tests", _first_start_at_home), ("homes", _everywhere)],
)
def test_a_planted_bug_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str, planted: Any) -> None:
    monkeypatch.setattr(Layout, name, planted)
    with pytest.raises(AssertionError):
        settings(max_examples=800, database=None, phases=[Phase.generate])(given(clique())(check_clique))()


@st.composite
def path(draw: st.DrawFn) -> tuple[Layout, Join]:
    """x - y - z by two overlaps, of which none has to be of x with z; x and z may be of one relation, which takes part in both."""
    coordinates = []
    for members in (("x", "y"), ("y", "z")):
        starts = sorted(draw(st.lists(st.integers(-1, 6), max_size=2)))
        bounds = tuple((0, start, 0) for start in starts)
        coordinates.append(Coordinate("slabs", {alias: Member((), "i") for alias in members}, len(bounds) + 1, bounds))
    names = draw(st.sampled_from([("a", "b", "c"), ("a", "b", "a"), ("a", "a", "a")]))
    relations = {name: [row._replace(key=0) for row in draw(rows(5))] for name in sorted(set(names))}
    return Layout(tuple(zip("xyz", names, strict=True)), tuple(coordinates)), relations


@settings(max_examples=100)
@given(path())
def test_a_path_is_reported_once(drawn: tuple[Layout, Join]) -> None:
    layout, relations = drawn

    def meets(some: tuple[Row, ...]) -> bool:
        x, y, z = some
        return all(max(one.start, y.start) <= min(one.end, y.end) for one in (x, z))

    assert found(layout, relations, meets) == expected(layout, relations, meets)


@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(1, 3), st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), max_size=8))
def test_a_triangle_over_one_relation_is_reported_once(p: int, q: int, edges: list[tuple[int, int]]) -> None:
    """Its aliases have different roles: start and end stand for the columns."""
    aliases = (("x", "e"), ("y", "e"), ("z", "e"))
    coordinates = (
        Coordinate("hash", {"x": Member(("to",)), "y": Member(("from",))}, p),
        Coordinate("hash", {"y": Member(("to",)), "z": Member(("from",))}, q),
        Coordinate("hash", {"z": Member(("to",)), "x": Member(("from",))}, 2),
    )
    layout = Layout(aliases, coordinates)
    assert len(layout.roles) == 3 and len(set(layout.names().values())) == 3
    columns = {"from": np.array([edge[0] for edge in edges], np.int64), "to": np.array([edge[1] for edge in edges], np.int64)}
    reported: Counter[tuple[int, ...]] = Counter()
    held: dict[int, list[list[int]]] = {}
    for position, role in enumerate(layout.roles):
        own = [None if one is None else CoordinateValues(columns[one.columns[0]]) for one in role.members]
        routed = layout.route(role, np.zeros(len(edges), np.int64), own)
        for cell, row in zip(routed.cells.tolist(), routed.rows.tolist(), strict=True):
            held.setdefault(cell, [[], [], []])[position].append(row)
    for cell in held.values():
        for x, y, z in product(*cell):
            if edges[x][1] == edges[y][0] and edges[y][1] == edges[z][0] and edges[z][1] == edges[x][0]:
                reported[x, y, z] += 1
    every = [
        (x, y, z)
        for x, y, z in product(range(len(edges)), repeat=3)
        if edges[x][1] == edges[y][0] and edges[y][1] == edges[z][0] and edges[z][1] == edges[x][0]
    ]
    assert reported == Counter(every)


def sample(name: str, number: int = 4000, seed: int = 7) -> Sample:
    """Rows that are not spread evenly: see the names."""
    rng = np.random.default_rng(seed)
    starts, lengths, keys = rng.integers(0, 10**6, number), rng.integers(1, 50, number), rng.integers(0, 50, number)
    if name == "hot key":
        keys = np.where(rng.random(number) < 0.8, 7, keys)
    if name == "equal starts":
        starts, keys = np.where(rng.random(number) < 0.7, 5, starts), np.zeros(number, np.int64)
    if name.startswith("open ends"):
        lengths = np.where(rng.random(number) < 0.2, 2**62, lengths)
    if name.endswith("no key"):
        keys = np.zeros(number, np.int64)
    if name == "burst":
        starts = np.where(rng.random(number) < 0.5, rng.integers(0, 1000, number), starts)
    return Sample(number, rng.integers(LOW, HIGH, number), {0: CoordinateValues(keys, starts, starts + lengths), 1: CoordinateValues(keys)})


KEYED = [
    Coordinate("slabs", {"x": Member(("k",), "i"), "y": Member(("k",), "i")}),
    Coordinate("hash", {"x": Member(("k",)), "y": Member(("k",))}),
]
ALIASES = (("x", "a"), ("y", "b"))
QUERY = cast(Query, SimpleNamespace(whole=SimpleNamespace(aliases=ALIASES)))  # what layouts by samples ask for
CELLS = 16


def routed_by(layout: Layout, samples: Mapping[str, Sample]) -> dict[str, RoutedRows]:
    """`layout` has one coordinate, of both."""
    (coordinate,) = layout.coordinates
    number = 1 if coordinate.kind == "hash" else 0
    roles = zip(layout.aliases, layout.roles, strict=True)
    return {alias: layout.route(role, samples[alias].ties, [samples[alias].given[number]]) for (alias, _), role in roles}


@pytest.mark.parametrize("name", ["uniform", "hot key", "equal starts", "open ends", "burst"])
def test_cells_have_about_equally_much_to_do(name: str) -> None:
    """A row, each copy of it, and eight partners that are there when it starts, count alike."""
    samples = {"x": sample(name), "y": sample(name, seed=8)}
    chosen = choose(ALIASES, KEYED, samples, CELLS)
    (coordinate,) = chosen.layout.coordinates
    assert coordinate.kind == "slabs" or name not in ("hot key", "equal starts")
    work = np.zeros(CELLS)
    for (alias, routed), other in zip(routed_by(chosen.layout, samples).items(), "yx", strict=True):
        mine = slice(None) if routed.here[0] is None else routed.here[0]
        (keys, starts, _), (others, begun, ended) = samples[alias].given[0], samples[other].given[0]
        assert starts is not None and begun is not None and ended is not None
        depth = np.count_nonzero((keys[:, None] == others) & (begun <= starts[:, None]) & (starts[:, None] <= ended), axis=1)
        work += np.bincount(routed.cells, minlength=CELLS)
        work += np.bincount(routed.cells[mine], (depth / 8)[routed.rows[mine]], minlength=CELLS)
    assert work.max() <= 1.5 * work.mean()


def skewed(name: str) -> dict[str, Sample]:
    """Rows of both, whose keys have hashes as they come."""
    rng = np.random.default_rng(3)
    if "keys a cell" in name:
        keys = rng.integers(0, CELLS * int(name.split()[0]), (2, 4000))
    else:  # of 3 %, some part is open
        keys = np.where(rng.random((2, 4000)) < 0.03, 0, rng.integers(1, 4000, (2, 4000)))
    hashes, found = rng.integers(LOW, HIGH, 4000), {}
    for alias, own in zip("xy", keys, strict=True):
        starts, lengths = rng.integers(0, 10**6, 4000), rng.integers(1, 50, 4000)
        if name.endswith("open ends"):
            lengths = np.where(rng.random(4000) < 0.2, 2**62, lengths)
        found[alias] = Sample(4000, rng.integers(LOW, HIGH, 4000), {0: CoordinateValues(hashes[own], starts, starts + lengths)})
    return found


def fullest(name: str) -> tuple[float, float]:
    """Of a cell in bands by samples: its rows beside what each would have without copies; and the copies of a row."""
    samples = skewed(name)
    layout = Layout.of_json(stream_layout.choose_layout(QUERY, KEYED[:1], samples, CELLS, 8.0, None))
    rows = np.zeros(CELLS)
    for alias, routed in routed_by(layout, samples).items():
        of_alias = np.bincount(routed.cells, minlength=CELLS)
        role, given = dict(zip(samples, layout.roles, strict=True))[alias], samples[alias].given[0]
        assert np.array_equal(layout.rows_by_cell(role, samples[alias].ties, given), of_alias)
        rows += of_alias
    return rows.max() * CELLS / 8000, rows.sum() / 8000


SKEWED = [*(f"{number} keys a cell" for number in (1, 4, 5, 8, 12)), "a small hot key", "a small hot key with open ends"]


@pytest.mark.parametrize("name", SKEWED)
def test_keys_that_share_a_cell_by_chance_do_not_fill_it(name: str) -> None:
    """Those just below a quarter of a cell's part were not divided, and the fullest cell had 2.2 times its part. The rows of one small
    key that was divided were in all cells."""
    largest, copies = fullest(name)
    assert largest <= 1.4 and copies <= 1.25


def test_keys_with_open_ends_are_not_divided_for_little() -> None:
    """With a fifth of the rows in all cells, the fullest had more than four times the part of one."""
    largest, copies = fullest("5 keys a cell with open ends")
    assert largest <= 2 and copies <= 1.25


@pytest.mark.parametrize("name", ["uniform", "hot key", "open ends", "open ends, no key", "burst"])
def test_bands_have_about_equally_many_rows(name: str) -> None:
    """Copies included; of those that start there too. Open ends alone have many copies: with these, no width that divides new starts has
    few, and one that has few took all of them to one cell."""
    samples = {"x": sample(name), "y": sample(name, seed=8)}
    layout = Layout.of_json(stream_layout.choose_layout(QUERY, KEYED, samples, CELLS, 8.0, None))
    (coordinate,) = layout.coordinates
    assert coordinate.kind == "bands" and bool(coordinate.hot) == (name != "open ends"), "few keys of which a fifth would be everywhere"
    rows, starts, short = np.zeros(CELLS), np.zeros(CELLS), 0
    for alias, routed in routed_by(layout, samples).items():
        assert routed.here[0] is not None
        rows += np.bincount(routed.cells, minlength=CELLS)
        starts += np.bincount(routed.cells[routed.here[0]], minlength=CELLS)
        ends = samples[alias].given[0].ends
        assert ends is not None
        short += np.count_nonzero(ends[routed.rows] < 2**62)
    assert rows.max() <= 1.5 * rows.mean() and starts.max() <= 1.5 * starts.mean()
    assert short <= 1.5 * 8000


def test_samples_of_too_short_a_time_do_not_copy_all_rows() -> None:
    """All rows that are there start together."""
    samples = {alias: sample("uniform") for alias in "xy"}
    for alias, one in samples.items():
        keys, starts, ends = one.given[0]
        assert starts is not None and ends is not None
        samples[alias] = one._replace(given={0: CoordinateValues(0 * keys, 0 * starts, ends - starts)})
    (coordinate,) = Layout.of_json(stream_layout.choose_layout(QUERY, KEYED[:1], samples, CELLS, 2.0, None)).coordinates
    assert coordinate.width >= 32, "as intervals are long"


def test_copies_in_bands_are_limited() -> None:
    samples = {alias: sample("open ends, no key") for alias in "xy"}
    with pytest.raises(NotDistributable, match="each row would go to 4.* of 16 cells on average; .* set max_copies=5"):
        stream_layout.choose_layout(QUERY, KEYED, samples, CELLS, 4.0, None)


def test_without_ties_equal_starts_stay_in_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary of the last."""
    positions = layouts.positions
    monkeypatch.setattr(layouts, "positions", lambda bounds, hashes, points, ties: positions(bounds, hashes, points, 0 * ties))
    with pytest.raises(AssertionError):
        test_cells_have_about_equally_much_to_do("equal starts")


def test_slabs_have_no_more_copies_than_intervals_are_long() -> None:
    one = {"x": sample("uniform"), "y": sample("uniform")}
    unkeyed = Coordinate("slabs", {"x": Member((), "i"), "y": Member((), "i")})
    without = {alias: each._replace(given={0: each.given[0]._replace(hashes=0 * each.ties)}) for alias, each in one.items()}
    bounds = bounds_of(0, unkeyed, without, 64)
    assert len(bounds) == 63 and list(bounds) == sorted(bounds)
    chosen = choose(ALIASES, [unkeyed], without, 64)
    assert 1.0 <= chosen.copies < 1.05


def test_pairs_are_estimated() -> None:
    x, y = sample("uniform"), sample("burst")
    keys, starts, ends = x.given[0].hashes, x.given[0].starts, x.given[0].ends
    other = y.given[0]
    assert starts is not None and ends is not None and other.starts is not None and other.ends is not None
    meet = (keys[:, None] == other.hashes) & (starts[:, None] <= other.ends) & (other.starts <= ends[:, None])
    assert pairs_of(x, y, 0) == meet.sum()
    rng = random.Random(3)
    half = [np.array(sorted(rng.sample(range(4000), 2000))) for _ in range(2)]
    part = [
        Sample(4000, one.ties[some], {0: CoordinateValues(*(column[some] for column in one.given[0] if column is not None))})
        for one, some in zip((x, y), half, strict=True)
    ]
    assert 0.8 * meet.sum() < pairs_of(part[0], part[1], 0) < 1.2 * meet.sum()
