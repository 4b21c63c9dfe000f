"""The overlapping pairs of two sets of boxes in two or more dimensions, maintained under updates (Tao and Yi, *Intersection Joins
under Updates*, Theorem 2). Start with `tree.BoxTree`."""
