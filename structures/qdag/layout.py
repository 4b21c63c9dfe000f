"""The words that a reading of qdags goes by: its plan, its roots, its state. `walk.py` has the drawing in words.

    state    header | slots, cells, their levels, candidates of each atom, values of the variables | each atom's way down to the given
    values |
             frames [level, left, level in a cell or of leaves, ref in a cell, a ref an atom]; level >= 0: a joint node, `left` its
             children; JOIN: leaves that are joined, `left` one more than the atom in hand; -1 - t: the rows of atom t in the cell, `left`
             entries or children. The refs are those of the joint atoms, and then of the tested ones
    ref      place << AT of an inner node; place << AT | FRESH of a leaf; of a leaf in hand which of its entries, as bits; of a tested atom
             also 0, nothing is there, or FULL, the given values are there and no variable is free
    leaves   of each atom the leaf in hand: LINE words, its coordinates (but for given ones, in a cell of these) and the slots [LEAF each,
             int32]. On the way down to a frame, and below it, an atom has only one
    plan     joint atoms, all atoms, all quadrants, place of the given atom, words an item, tested atoms, whether each tuple is told once,
             which variables are given; an atom: arity, first, place, checks, variables, MAP, EXT, LATE, SOURCES, GROUP, WHOLE; the joint
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

DEPTH, STEPS, GAP, SINCE, DEAD, ITEM, ITEMS = 0, 1, 2, 3, 4, 5, 6  # ITEM: read so far, of ITEMS
SLOTS, CELL, LEVEL, CANDIDATES, VALUES = 8, 16, 24, 32, 40
LOOKED_UP, EXCLUDED = 48, 49  # tuples that were looked up in tested atoms; items, cells and tuples that a group of these ended
WAYS, WAY_WORDS = 56, CODE_BITS + 3  # per atom: of the last item that was bound its number (-1: none is), lowest level, ref at each from -1
FRAMES = WAYS + MOST_ATOMS * WAY_WORDS
LINE = MOST_ARITY * LEAF + 16  # sixteen words are copied and compared at once

JOINT, ATOMS, ALL, GIVEN, WIDTH, TESTED, ONCE, BOUND = 0, 1, 2, 3, 4, 5, 6, 7
ATOM, ATOM_WORDS = 8, 92  # per atom, from here on
ARITY, FIRST, PLACE, CHECKS, VARIABLES, MAP, EXT, LATE, SOURCES, GROUP, WHOLE = 0, 1, 2, 3, 4, 8, 72, 88, 89, 90, 91
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
    """A cursor's state: a frame a level of codes, and a level of slots an atom."""
    return FRAMES + (CODE_BITS + 2) * (1 + atoms) * (4 + atoms)


def line_words(atoms: int) -> int:
    """Leaves in hand."""
    return atoms * LINE


@kernel(forceinline=True)
def root_of(roots: Any, t: int) -> int:
    return roots[ROOT_WORDS * t + ROOT]


@kernel(forceinline=True)
def bits_of(roots: Any, t: int) -> int:
    """The levels of atom t's tree."""
    return roots[ROOT_WORDS * t + BITS]


@kernel(forceinline=True)
def base_of(roots: Any, t: int) -> int:
    """Where the compact form of atom t's tree begins."""
    return roots[ROOT_WORDS * t + BASE]


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int32[::1]", "int64[::1]")
class Walking(NamedTuple):
    """What is read, and how far: see the drawing."""

    plan: np.ndarray
    roots: np.ndarray
    items: np.ndarray
    leaves: np.ndarray
    state: np.ndarray
