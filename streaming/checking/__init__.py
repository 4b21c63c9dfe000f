"""`livejoin stream --check`: checks whether a file would run."""
