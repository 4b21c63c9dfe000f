"""Spark's data source `livejoin`: views read in parts and as streams of changes, and relations written, through the Python client alone."""

from livejoin.datasource import versions as versions  # what PySpark 4.0 lacks, before the modules that use it
