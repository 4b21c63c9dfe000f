"""Data on disk: the log, snapshots, their folder, and the detection of damage."""
