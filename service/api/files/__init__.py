"""Rows as files: `…/rows.parquet` and the other formats, at fixed addresses, whole or in parts. Start with `endpoints`."""
