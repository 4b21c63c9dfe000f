"""Backups of a data folder: made while the service runs, verified, reassembled; and the repair of a damaged folder."""
