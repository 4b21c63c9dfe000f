"""What `livejoin check` knows: whether a folder is what was written, and a view's rows by brute force."""
