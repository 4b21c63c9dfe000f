"""Overlap joins of 2 to 6 interval sets along any connected topology, kept live in linear space (Tao and Yi, *Intersection Joins under
Updates*, Theorem 4). Start with `heap.IJHeap`."""
