"""The plans, one module per class of joins: the requirements on a query, the guarantee, the input of the structure.

Classes; `BUILT` in `planning/planner.py` has their order
    selection   one relation, filtered: a tree of one set
    pair        two sets and one overlap, distance or comparison; self-joins of them, each pair once or in both orders (Theorem 1)
    clique      three and more interchangeable aliases of one relation that all overlap, each combination once or in all orders
    heap        two to six sets, each with one interval in all its overlaps, any connected topology, one common key or none (Theorem 4)
    boxes       two sets whose rows meet in two to eight dimensions: overlaps, distances, comparisons (Theorem 2)
    tree        two or more that form a tree, each edge with equalities and at most one interval condition (`join_tree`)
    view_tree   hierarchical natural joins, over shared ordered indexes
    qdag        natural joins, cyclic ones above all: quadtrees (`hypergraph`)
    lqdag       natural joins with NOT EXISTS, UNION or EXCEPT: quadtrees
    tree_tracker  acyclic natural joins, over shared ordered indexes, without structures of their own
    minesweeper  natural joins, over shared ordered indexes, with a cache of the gaps in these
    intersect   natural joins of a chain of variable sets, over shared ordered indexes
    bow_tie     natural joins of the shape R(X), S(X, Y), T(Y), over shared ordered indexes and a two-dimensional tree
    stages/latest  the first rows of each key of one relation, in an order
    stages/as_of   two relations, of each row of the one the latest row of the other
    indexed     everything else: one alias after another, by indexes (`binding`)
    product     parts that no condition connects: each part by its own class

Each module's `make` returns a Plan, or None if the query is not of its class. `plan` has the shared parts.
"""
