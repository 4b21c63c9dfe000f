"""The rows of a relation by slot, with their keys and lives, readable by many while one writes. Start with `rows.Rows`."""
