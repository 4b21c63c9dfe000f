"""Joins that adapt to the data, whose cost is that of the shortest proof of their result: chains of variables, and bow-ties (*Towards
Instance Optimal Join Algorithms for Data in Indexes*). Start with `intersect.Intersect` and `bow_tie.BowTie`."""
