"""Rows of relations as Arrow and NumPy: stored, judged against, filtered, projected, indexed. Begin with `store`."""
