"""The persistent ordered tree with leaf blocks, whose nodes summarise the intervals below them, and the search for the partners of an
interval (Tao and Yi, *Intersection Joins under Updates*, Theorem 1). Kernels only: start with `tree.put` and `tree.cut`; `interval/` has
the class around them."""
