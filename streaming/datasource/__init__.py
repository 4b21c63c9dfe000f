"""Spark's data source `livejoin`: views read in parts and as streams of changes, relations written. Over the Python client alone."""
