"""Rows of relations as Arrow and NumPy: storage, validation, filters, projection, indexes. Start with `store`."""
