"""The persistent ordered tree with leaf blocks, whose nodes summarise the intervals below them, and the search for the partners of an
interval (Tao and Yi, *Intersection Joins under Updates*, Theorem 1). Start with `tree.put` and `tree.cut`; `interval/` has the class around
them, `lists.py` that of a plain list."""
