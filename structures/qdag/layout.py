"""The arrays of a reading of qdags: its plan, its roots, its state. `walk.py` explains them.

    state    header | slots, cells, their levels, candidates of each atom, values of the variables | each atom's path to given values |
             frames [level, left, level in a cell or of leaves, ref in a cell, a ref for each atom]; level >= 0: a joint node, `left` its
             children; JOIN: leaves that are joined, `left` one more than the current atom; -1 - t: the rows of atom t in the cell, `left`
             entries or children. The refs are those of the joint atoms, then those of the tested ones
    ref      of an inner node place << AT; of a leaf place << AT | FRESH; of the loaded leaf some of its entries, as bits; of a tested atom
             also 0, nothing is there, or FULL, the given values are there and no variable is free
    leaves   the loaded leaf of each atom: LINE words, its coordinates (except given ones, in a cell of these) and the slots [LEAF each,
             int32]. On the path to a frame, and below it, an atom has only one.
    plan     joint atoms, all atoms, all quadrants, place of the given atom, words of an item, tested atoms, whether each tuple is reported
             once, given variables; an atom: arity, first, place, checks, variables, MAP, EXT, LATE, SOURCES, GROUP, WHOLE; the joint
             atoms come before those that are cells, the tested ones last
    roots    per atom: root, bits, base
    items    each the slot of the given row, and each variable's value, if it has one
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel
from structures.quadtree.layout import BASE, BITS, CODE_BITS, LEAF, MOST_ARITY, ROOT

MOST_VARIABLES = 6  # quadrants are bits of a word
MOST_ATOMS = 8

DEPTH, STEPS, GAP, SINCE, DEAD, ITEM, ITEMS = range(7)  # ITEM: read so far, of ITEMS
SLOTS, CELL, LEVEL, CANDIDATES, VALUES = 8, 16, 24, 32, 40
LOOKED_UP, EXCLUDED = 48, 49  # tuples that were looked up in tested atoms; items, cells and tuples that a group of these excluded
WAYS, WAY_WORDS = 56, CODE_BITS + 3  # per atom, for the last item bound: its number (-1: none), lowest level, ref at each level from -1
FRAMES = WAYS + MOST_ATOMS * WAY_WORDS
LINE = MOST_ARITY * LEAF + 16  # sixteen words are copied and compared at once

JOINT, ATOMS, ALL, GIVEN, WIDTH, TESTED, ONCE, BOUND = 0, 1, 2, 3, 4, 5, 6, 7
ATOM, ATOM_WORDS = 8, 92  # per atom, from here on
ARITY, FIRST, POSITION, CHECKS, VARIABLES, MAP, EXT, LATE, SOURCES, GROUP, WHOLE = 0, 1, 2, 3, 4, 8, 72, 88, 89, 90, 91
# CHECKS: coordinates whose variables atoms before it have, as bits; LATE: of these those of the atom just before it, at its
# coordinate SOURCES >> 4 j. GROUP of a tested atom, or MUST; WHOLE: whether all its variables are given.
MUST = -1
JOIN = -100
NOTHING = -2
AT = 20  # of a ref: where the place begins, behind the bits of a leaf's entries (LEAF at most) and FRESH
SUBSET = 2**AT - 1
FRESH = 2 ** (AT - 1)
FULL = FRESH  # of place 0, where nothing lies
ROOT_WORDS = 3  # of the roots, of an atom's tree: ROOT, BITS, BASE


def plan_words(atoms: int) -> int:
    return ATOM + atoms * ATOM_WORDS


def state_words(atoms: int) -> int:
    """Return the words of a cursor's state: a frame for each level of codes, and for each level of slots of each atom."""
    return FRAMES + (CODE_BITS + 2) * (1 + atoms) * (4 + atoms)


@kernel(forceinline=True)
def root_of(roots: Any, t: int) -> int:
    return roots[ROOT_WORDS * t + ROOT]


@kernel(forceinline=True)
def bits_of(roots: Any, t: int) -> int:
    """Return the number of levels of atom t's tree."""
    return roots[ROOT_WORDS * t + BITS]


@kernel(forceinline=True)
def base_of(roots: Any, t: int) -> int:
    """Return where the compact form of atom t's tree begins."""
    return roots[ROOT_WORDS * t + BASE]


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int32[::1]", "int64[::1]")
class QdagWalk(NamedTuple):
    """The arrays of a reading: what is read, and how far. See the drawing."""

    plan: np.ndarray
    roots: np.ndarray
    items: np.ndarray
    leaves: np.ndarray
    state: np.ndarray
