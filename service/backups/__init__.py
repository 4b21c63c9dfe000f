"""Backups of a data folder: made while the service runs, verified, put together again; and the repair of a damaged folder."""
