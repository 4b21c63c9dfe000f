"""Overlap joins of 2 to 6 interval sets with any connected topology, maintained under updates in linear space (Tao and Yi, *Intersection
Joins under Updates*, Theorem 4). Start with `heap.IJHeap`."""
