"""The checks of `livejoin check`: verification of a folder, and a view's rows by brute force."""
