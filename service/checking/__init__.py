"""The checks of `livejoin check`: verification of a folder, and a view's rows computed by brute force."""
