"""Hierarchical natural joins with their deltas, maintained under updates: view trees over ordered indexes (Berkholz, Keppeler
and Schweikardt, *Answering Conjunctive Queries under Updates*). Start with `tree.ViewTree`."""
