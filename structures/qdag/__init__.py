"""Worst-case optimal natural joins over quadtrees: qdags and their AND (Navarro, Reutter and Rojas-Ledesma, *Optimal Joins using Compact
Data Structures*, Theorem 3.8). Start with `qdag.And`."""
