"""The overlapping pairs of two sets of boxes in two and more dimensions, kept live (Tao and Yi, *Intersection Joins under Updates*, Theorem
2). Start with `tree.BoxTree`."""
