"""Acyclic natural joins by look-ups that learn which entries lead to no row: TreeTracker over ordered indexes (*TreeTracker Join: A
Composable Join Algorithm that Yields Optimal Acyclic Multi-Way Joins*). Start with `tracker.TreeTracker`."""
