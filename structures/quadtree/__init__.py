"""Relations as points in a grid of codes, live or compact, at every pinned version (Navarro, Reutter and Rojas-Ledesma, *Optimal Joins
using Compact Data Structures*, section 2). Start with `trees.QuadTrees`."""
