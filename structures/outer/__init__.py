"""Rows of outer joins, whose partners are counted from the pairs that the inner join reports: start with `counts.PairCounts`."""
