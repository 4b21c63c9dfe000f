"""The pairs of two sets of intervals that meet, and the intervals of either that meet none, maintained together."""
