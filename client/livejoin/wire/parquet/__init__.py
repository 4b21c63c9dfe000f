"""Parquet: a file as changes (`decode`); the decoded size of its pages (`pages`); the structs of its metadata (`thrift`)."""
