"""The rows of a relation by slot, with their keys and lives, for many readers and one writer. Start with `rows.Rows`."""
