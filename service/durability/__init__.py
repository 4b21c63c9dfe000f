"""What is on disk: the log, snapshots, the folder that they lie in, and how damage is noticed."""
