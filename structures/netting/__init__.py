"""The net changes of a version: what remains of the rows that its changes report."""
