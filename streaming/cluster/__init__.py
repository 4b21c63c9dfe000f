"""Joins on a Spark cluster: rows are sent to cells, each of which keeps them in the service's own structures. `batch` is the entry
point."""
