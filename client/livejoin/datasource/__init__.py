"""Spark's data source `livejoin`: views read in parts and as streams of changes, and relations written, through the Python client alone."""
