"""Rows as files: `…/rows.parquet` and its kind, by address, whole or in parts. Begin with `endpoints`."""
