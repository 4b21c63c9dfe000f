"""Hierarchical natural joins, kept live with their deltas: view trees over ordered indexes (Berkholz, Keppeler and Schweikardt, *Answering
Conjunctive Queries under Updates*). Start with `tree.ViewTree`."""
