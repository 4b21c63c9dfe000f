"""Readers: rows of one pinned version, in pages or streams, by windows and lookups. Start with `cursors`."""
