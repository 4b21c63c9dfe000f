"""The overlapping pairs of two sets of intervals, or of one, under updates (Tao and Yi, *Intersection Joins under Updates*, Theorem 1).
Start with `tree.IntervalTree`."""
