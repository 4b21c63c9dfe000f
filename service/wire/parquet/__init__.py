"""Parquet: a file as changes (`decode`); what its pages become (`pages`); the structs in which it describes itself (`thrift`)."""
