"""Readers: rows of one pinned version, in pages or streams, by windows and look-ups. Start with `cursors`."""
