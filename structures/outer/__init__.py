"""Rows of outer joins whose partners are counted by the pairs that the inner join tells: start with `counts.PairCounts`."""
