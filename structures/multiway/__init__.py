"""The base of the IJ-heap and the clique tree: a balanced tree over the entries of all sets whose nodes keep extreme tuples (Tao and Yi,
*Intersection Joins under Updates*, sections 5 and 6). Start with `base.MultiwayTree` and `topology.Topology`."""
