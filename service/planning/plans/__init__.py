"""How each class of joins is kept, a module a class: what a query has to be, what is promised, what the structure is given.

Classes, the best first
    selection   one relation, filtered: a tree of one set
    pair        two sets and one overlap, distance or comparison; self-joins of them, each pair once or in both orders (Theorem 1)
    clique      three and more interchangeable aliases of one relation that all overlap, each combination once or in all orders
    heap        two to six sets, each with one interval in all its overlaps, any connected topology, one common key or none (Theorem 4)
    boxes       two sets whose rows meet in two to eight dimensions: overlaps, distances, comparisons (Theorem 2)
    tree        two and more that hang together as a tree, each edge by equalities and one condition of intervals at most (`join_tree`)
    view_tree   hierarchical natural joins, over shared ordered indexes
    qdag        natural joins, cyclic ones above all: quadtrees (`hypergraph`)
    tree_tracker  acyclic natural joins, over shared ordered indexes, with nothing kept beside them
    indexed     everything else: alias after alias, by indexes (`binding`)
    product     what no condition connects: each part by its own class

Each module's `make` gives a Plan, or None where the query is not of its class. `plan` has what they share.
"""
