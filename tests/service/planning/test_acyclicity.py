"""The classes of hypergraphs and their treewidth, against the definitions taken literally, on random ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, pairwise, permutations, product

import pytest

from service.planning.acyclicity import (
    MOST_EXACT,
    Edge,
    is_acyclic,
    is_hierarchical,
    least_width_order,
    nested_elimination_order,
    nested_elimination_orders,
    treewidth,
    variables,
)


def edges(*words: str) -> list[Edge]:
    """A letter a variable."""
    return [frozenset(ord(letter) - ord("a") for letter in word) for word in words]


def has_join_tree(given: Sequence[Edge]) -> bool:
    """Some tree over the edges in which those of each variable hang together (by all trees: each but the root has one parent before it)."""
    return any(
        all(sum(v in given[i] and v in given[parent] for i, parent in enumerate(parents, 1)) == sum(v in one for one in given) - 1
            for v in variables(given))
        for parents in _trees(len(given))
    )  # fmt: skip


def _trees(count: int) -> list[tuple[int, ...]]:
    """Parents of 1 … count - 1, of every tree: number 0 is the root, and parents may have greater numbers."""
    return [parents for parents in product(*(range(count) for _ in range(1, count))) if _reaches_root(parents)]


def _reaches_root(parents: tuple[int, ...]) -> bool:
    for start in range(1, len(parents) + 1):
        position = start
        for _ in parents:
            position = parents[position - 1] if position else 0
        if position:
            return False
    return True


def is_beta(given: Sequence[Edge]) -> bool:
    """Every part of its edges is acyclic."""
    return all(has_join_tree(part) for size in range(1, len(given) + 1) for part in combinations(given, size))


def hangs_below_one(given: Sequence[Edge]) -> bool:
    """Each connected part that has variables has one in all its edges, and is of this kind without it."""
    given = [one for one in given if one]
    if not given:
        return True
    part, rest = [given[0]], given[1:]
    while touching := [one for one in rest if any(one & other for other in part)]:
        part, rest = part + touching, [one for one in rest if one not in touching]
    common = frozenset.intersection(*part)
    return bool(common) and hangs_below_one([one - common for one in part]) and hangs_below_one(rest)


def width_of(given: Sequence[Edge], order: Sequence[int]) -> int:
    graph = {v: {w for edge in given for w in edge if v in edge} - {v} for v in variables(given)}
    width = 0
    for v in order:
        around = graph.pop(v)
        width = max(width, len(around))
        for x in around:
            graph[x] = (graph[x] | around) - {x, v}
    return width


def drawn(rng: random.Random, most_edges: int, most_variables: int) -> list[Edge]:
    count = rng.randint(1, most_variables)
    return [frozenset(rng.sample(range(count), rng.randint(0, min(count, 4)))) for _ in range(rng.randint(1, most_edges))]


@pytest.mark.parametrize("seed", range(4))
def test_classes_are_their_definitions(seed: int) -> None:
    rng = random.Random(seed)
    met = set()
    for _ in range(800):
        given = drawn(rng, 5, rng.choice((3, 5)))
        found = is_hierarchical(given), nested_elimination_order(given) is not None, is_acyclic(given)
        assert found == (hangs_below_one(given), is_beta(given), has_join_tree(given)), given
        assert sorted(found) == list(found), "hierarchical, then beta-acyclic, then acyclic"
        met.add(found)
    assert len(met) >= 3


@pytest.mark.parametrize("seed", range(4))
def test_a_nested_elimination_order_nests(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        given = drawn(rng, 5, 6)
        order = nested_elimination_order(given)
        if order is None:
            continue
        assert sorted(order) == variables(given)
        for k, v in enumerate(order):
            cut = sorted((edge & frozenset(order[: k + 1]) for edge in given if v in edge), key=len)
            assert all(x <= y for x, y in pairwise(cut)), (given, order)


@pytest.mark.parametrize("seed", range(2))
def test_all_nested_elimination_orders(seed: int) -> None:
    def nests(given: list[Edge], order: tuple[int, ...]) -> bool:
        cuts = [sorted((edge & frozenset(order[: k + 1]) for edge in given if v in edge), key=len) for k, v in enumerate(order)]
        return all(x <= y for cut in cuts for x, y in pairwise(cut))

    rng = random.Random(seed)
    for _ in range(60):
        given = drawn(rng, 5, 4)
        wanted = {order for order in permutations(variables(given)) if nests(given, order)}
        found = list(nested_elimination_orders(given))
        assert set(found) == wanted and len(found) == len(wanted), given
        assert (nested_elimination_order(given) in wanted) == bool(wanted)


@pytest.mark.parametrize("seed", range(2))
def test_an_order_of_least_width(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        given = drawn(rng, 6, 6)
        order = least_width_order(given)
        assert sorted(order) == variables(given) and width_of(given, order[::-1]) == treewidth(given)[0], (given, order)


@pytest.mark.parametrize("seed", range(4))
def test_treewidth_is_the_least_width_of_an_order(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        given = drawn(rng, 8, 6)
        assert treewidth(given) == (min(width_of(given, order) for order in permutations(variables(given))), True), given


def grid(input: int) -> list[Edge]:
    down = [frozenset((input * i + j, input * i + input + j)) for i in range(input - 1) for j in range(input)]
    return down + [frozenset((input * i + j, input * i + j + 1)) for i in range(input) for j in range(input - 1)]


def test_known_ones() -> None:
    assert treewidth(edges("ab", "bc", "ca")) == (2, True)
    assert treewidth(grid(3)) == (3, True)
    width, exact = treewidth(grid(4))  # 16 variables
    assert not exact and 4 <= width <= 6 and MOST_EXACT < 16
    star = edges(*("a" + letter for letter in "bcdefghijklm"))
    assert treewidth(star) == (1, True) and is_hierarchical(star)
    path = edges("ab", "bc", "cd")
    assert not is_hierarchical(path) and nested_elimination_order(path) is not None
    covered = edges("ab", "bc", "ca", "abc")  # acyclic, and its part is not
    assert is_acyclic(covered) and nested_elimination_order(covered) is None
    assert not is_acyclic(edges("ab", "bc", "cd", "da"))
    assert is_acyclic([]) and is_hierarchical([]) and treewidth([]) == (0, True)
